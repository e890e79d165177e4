"""Sensitivity: what moves the speed-up, what would leave no gain, where each change pays, what to measure first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyscale_model import figures
from hyscale_model.errors import InputError
from hyscale_model.report.markup import Markup
from hyscale_model.report.units import NOTHING, interval, or_nothing, percent, ratio, seconds, tokens
from hyscale_model.studies.measurements import first_measurements
from hyscale_model.studies.measuring import LEAST_GAIN
from hyscale_model.studies.sensitivity import sensitivity
from hyscale_model.views.cards import Card, Choice, command_box, pending, problem, sentences, table, told
from hyscale_model.views.page import Page, Progress

# Time for measurements that a reader may choose, in minutes.
_MINUTES, _USUAL_MINUTES = ("2", "5", "10", "30", "60"), "10"
_MOST_OTHERS = 5


def build(page: Page) -> list[Card]:
    """A tornado of the unknowns, two tables, and what to measure first."""
    try:
        data = sensitivity(page.resolved, draws=page.data["draws"], seed=page.data["seed"])
    except InputError as error:
        # A scenario that can be predicted, but compares nothing.
        about = f"Nothing to compare: {error.problem}. This view needs {error.expected}."
        return [Card(name="nothing", title="Sensitivity", about=about, wide=True)]
    name = str(data["metric"]).removeprefix("speedup.").replace("/", " over ")
    against = data["all_against"]
    ending = "and still a gain" if against["holds"] else "no gain is left"
    cards: list[Card] = []
    if data["inputs"]:
        cards.append(
            Card(
                name="tornado",
                title=f"What moves {name}",
                about=f"Nominal {ratio(data['nominal'])}; each unknown alone, from the 10th to the 90th percentile.",
                figure=figures.tornado(data, page.theme),
                content=(sentences([f"All of them against it at once: {ratio(against['speedup'])}, {ending}."]),),
                wide=True,
            )
        )
    if data["vanishes"]:
        cards.append(
            Card(
                name="vanishes",
                title="What would have to be true for no gain at all",
                about="Parts of the first system's step, and how fast each alone would have to be.",
                content=(_vanishing(data),),
                csv="vanishes",
                wide=True,
            )
        )
    if data["break_even"]:
        cards.append(
            Card(
                name="break-even",
                title="From which sequence length on each change pays",
                about="Each change alone on the first system; it pays where it is worth 1 %, surely where the 10th "
                "percentile is.",
                content=(_lengths(data),),
                csv="break-even",
                wide=True,
            )
        )
    return [*cards, *_first(page)]


def _first(page: Page) -> list[Card]:
    """What to measure first, once it is known; no card where nothing can be measured."""
    minutes = page.options.get("minutes", "")
    minutes = minutes if minutes in _MINUTES else _USUAL_MINUTES
    scenario, seed = page.resolved.scenario, page.data["seed"]

    def work(_run: object = None) -> Mapping[str, Any]:
        return first_measurements(scenario, minutes=float(minutes), seed=seed) or {}

    choices = (Choice("minutes", "Time", {each: f"{each} minutes" for each in _MINUTES}, minutes),)
    card = Card(
        name="measure-first",
        title=f"What to measure first on your {scenario.cluster.gpu.name}",
        about="Of what is open in the speed-up, the share that each benchmark takes away behind those before it.",
        choices=choices if page.study is not None else (),
        wide=True,
    )
    try:
        found = work() if page.study is None else page.study(f"measure first {minutes}", work, later=True)
    except InputError as error:
        return [replace(card, content=(problem(error),))]
    if not found:
        return []
    if isinstance(found, Progress):
        return [replace(card, content=(pending(found),))]
    boxes = [command_box(each, f"measure-{number}") for number, each in enumerate(found["commands"], start=1)]
    return [replace(card, content=(_measurements(found), sentences(_expected(found)), *boxes), csv="measure-first")]


def _measurements(found: Mapping[str, Any]) -> Markup:
    rows = [
        [
            row["name"],
            percent(row["gain"]),
            f"{row['seconds']:.0f} s",
            "yes" if row["chosen"] else NOTHING,
        ]
        for row in found["measurements"]
        if row["chosen"] or row["gain"] >= LEAST_GAIN
    ]
    return table("measure-first", ["benchmark", "of the variance", "takes about", "chosen"], rows)


def _expected(found: Mapping[str, Any]) -> list[str]:
    """What the measurements bring, and what none of them settles."""
    now, then = (interval(found[each], ratio) for each in ("now", "then"))
    texts = ["Nothing that can be measured in this time would narrow it."]
    if found["commands"]:
        texts = [f"With these the interval is expected to narrow from {now} to {then}."]
    others = ", ".join(f"{row['input']} {percent(row['share'])}" for row in found["others"][:_MOST_OTHERS])
    if others:
        texts.append(f"No benchmark settles {others}: decide them, or fit a step of your own (hyscale fit-run).")
    return texts


def _vanishing(data: Mapping[str, Any]) -> Markup:
    rows = [
        [
            row["part"],
            seconds(row["seconds"]),
            "even 0 s would leave a gain" if row["needed_s"] is None else seconds(row["needed_s"]),
            NOTHING if row["times_faster"] is None else f"{row['times_faster']:.1f} times faster",
        ]
        for row in data["vanishes"]
    ]
    return table("vanishes", ["part", "is", "would have to be", ""], rows)


def _lengths(data: Mapping[str, Any]) -> Markup:
    lengths = [gain["tokens"] for gain in data["break_even"][0]["gains"]]
    rows = []
    for row in data["break_even"]:
        gains = [
            told(ratio(gain["nominal"]), f"80 % of the draws: {ratio(gain['p10'])} to {ratio(gain['p90'])}")
            for gain in row["gains"]
        ]
        surely = [or_nothing(row[key], tokens) for key in ("from_tokens", "sure_from_tokens")]
        rows.append([row["change"], *surely, *gains])
    return table("break-even", ["change", "from", "surely from", *map(tokens, lengths)], rows)
