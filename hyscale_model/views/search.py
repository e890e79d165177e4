"""Search: the best layouts of each system, as a card with the front of time against memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyscale_model import figures
from hyscale_model.errors import InputError
from hyscale_model.figures.front import layout_text
from hyscale_model.report.markup import Markup, element, joined
from hyscale_model.report.units import gib, interval, ratio, seconds
from hyscale_model.studies.search import search
from hyscale_model.views.cards import Card, Choice, Tick, pending, problem, sentences, table, tip, told
from hyscale_model.views.page import Page, Progress

_TOP = 10


def searched(page: Page) -> Card:
    """The search as far as it is: asked for, at work, or its front with the best layouts."""
    on = page.options.get("search") == "on"
    about = "Every layout that the cluster allows, with the same model, batch and everything else: some seconds."
    choice = Tick("search", "Search every layout", on)
    card = Card(name="front", title="The best layouts", about=about, choices=(choice,), wide=True)
    if page.study is None:
        said = "A report does not search, which takes some seconds: hyscale search lists the best layouts."
        return replace(card, about=said, choices=())
    if not on:
        return card
    draws, seed = page.data["draws"], page.data["seed"]
    try:
        data = page.study("search", lambda run: search(page.resolved, top=_TOP, draws=draws, seed=seed, run=run))
    except InputError as error:
        return replace(card, content=(problem(error),))
    if isinstance(data, Progress):
        return replace(card, content=(pending(data),))
    system = page.option("system", data["systems"])
    return replace(
        card,
        choices=(choice, Choice("system", "System", {name: name for name in data["systems"]}, system)),
        about=f"{data['searched']:,} layouts on {data['gpus']:,} GPUs. Lines join those that no other one beats in "
        "both time and memory; squares are the scenario's own layout.",
        figure=figures.front(data, float(page.resolved.scenario.cluster.gpu.memory_bytes), page.theme),
        content=(sentences(_worth(data, system)), _layouts(data["systems"][system])),
        csv="layouts",
    )


def _layouts(system: Mapping[str, Any]) -> Markup | None:
    own = system["own"]
    listed = [*enumerate(system["top"], start=1), *([("the scenario's", own)] if own is not None else [])]
    if not listed:
        return None
    layouts = [row["layout"] for _, row in listed]
    same = {name: value for name, value in layouts[0].items() if all(each[name] == value for each in layouts)}
    fields = [name for name in layouts[0] if name not in same]
    rows = []
    for place, row in listed:
        time, peak = row["step_time_s"], row["peak_bytes"]
        lines = (f"80 % of the draws: {interval(time, seconds)}", _because(row), _beyond(row))
        rows.append(
            [
                str(place),
                *(str(row["layout"][name]) for name in fields),
                told(seconds(time["nominal"]), tip(*lines)),
                told(gib(peak["p90"]), f"nominal {gib(peak['nominal'])}, p10 {gib(peak['p10'])}"),
            ]
        )
    head = ["", *(name.replace("_", " ") for name in fields), "step", "peak, p90"]
    about = element("p", f"The same in all: {layout_text(same)}.", class_="about") if same else None
    return joined(about, table("layouts", head, rows))


def _worth(data: Mapping[str, Any], system: str) -> list[str]:
    """What the systems are worth to each other in which layout."""
    found = data["systems"][system]
    texts = []
    if not found["top"]:
        texts.append(f"None of {found['searched']:,} layouts of {system} fits the memory of a GPU.")
    elif found["own"] is not None:
        best, own = found["top"][0], found["own"]
        gain = own["step_time_s"]["nominal"] / best["step_time_s"]["nominal"]
        texts.append(
            f"The first layout of {system} is {ratio(gain)} as fast as the scenario's: {layout_text(best['changes'])}; "
            f"{_because(best)}."
            if best["changes"]
            else f"The scenario's own layout is the fastest of {system}."
        )
    if found["top"] and _beyond(found["top"][0]):
        texts.append(f"The first layout is {_beyond(found['top'][0])}.")
    for pair, gain in data["each_at_its_best"]["speedup"].items():
        same = [
            f"{ratio(row['speedup'][pair]['nominal'])} in the best layout of {row['layout_of']}"
            for row in data["like_for_like"]
            if pair in row["speedup"]
        ]
        over = pair.replace("/", " over ")
        texts.append(
            f"{over}, each in its own best layout: {ratio(gain['nominal'])} ({interval(gain, ratio)}); "
            f"{', '.join(same)}."
        )
    return texts


def _beyond(row: Mapping[str, Any]) -> str:
    """Which terms of a layout lie outside what the profile measured; empty where none does."""
    return f"beyond what was measured: {', '.join(row['extrapolated'])}" if row["extrapolated"] else ""


def _because(row: Mapping[str, Any]) -> str:
    """The terms in which a layout differs most from the scenario's."""
    return ", ".join(f"{each['term']} {_signed(each['change_s'])}" for each in row.get("because", ()))


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−'}{seconds(abs(value))}"
