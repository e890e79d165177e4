"""The best layouts for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.times import label
from hyscale_model.report.units import NOTHING, gib, ratio, seconds

NAMES = {"micro_batch_size": "mbs", "index_storage": "indices"}


def render_search(data: Mapping[str, Any], console: Console) -> None:
    """The best layouts of each system, why they are, and what the systems are worth to each other."""
    canvas.heading(console, f"{data['name']}: {data['searched']:,} layouts on {data['gpus']:,} GPUs")
    for name, system in data["systems"].items():
        _render_system(name, system, console)
    _render_ratios(data, console)


def _render_system(name: str, system: Mapping[str, Any], console: Console) -> None:
    canvas.heading(console, name)
    rows: Sequence[Mapping[str, Any]] = system["top"]
    own = system["own"]
    if not rows:
        canvas.sentence(console, f"none of {system['searched']:,} layouts fits the memory of a GPU")
        return
    listed = [*rows, own] if own is not None else rows
    same = {
        name: value for name, value in rows[0]["layout"].items() if all(row["layout"][name] == value for row in listed)
    }
    fields = [name for name in rows[0]["layout"] if name not in same]
    lines = [[str(place), *_layout(row, fields), *_results(row)] for place, row in enumerate(rows, start=1)]
    if own is not None:
        lines.append(["yours", *_layout(own, fields), *_results(own)])
    if same:
        canvas.sentence(
            console, ", ".join(f"{NAMES.get(name, name)} {value}" for name, value in same.items()) + " in all"
        )
    head = ["", *(NAMES.get(field, field) for field in fields), "step", "p10 to p90", "peak, p90"]
    console.print(canvas.plain_table(head, lines))
    best = rows[0]
    if own is None:
        canvas.sentence(console, "Your own layout is not possible for this system.")
    elif best.get("because"):
        parts = ", ".join(f"{label(each['term'])} {_signed(each['change_s'])}" for each in best["because"])
        faster = own["step_time_s"]["nominal"] / best["step_time_s"]["nominal"]
        canvas.sentence(console, f"The first is {ratio(faster)} as fast as yours: {parts}")
    if best["extrapolated"]:
        terms = ", ".join(label(term) for term in best["extrapolated"])
        canvas.sentence(console, f"Of the first, beyond what the profile measured: {terms}.")
    front = system["pareto"]
    leanest = front[-1]
    canvas.sentence(
        console,
        f"{len(front)} layouts are best for some memory, down to {gib(leanest['peak_bytes'])} "
        f"at {seconds(leanest['step_time_s'])}.",
    )


def _layout(row: Mapping[str, Any], fields: Sequence[str]) -> list[str]:
    return [str(row["layout"][field]) for field in fields]


def _results(row: Mapping[str, Any]) -> list[str]:
    time = row["step_time_s"]
    return [seconds(time["nominal"]), f"{time['p10']:.2f} to {time['p90']:.2f}", gib(row["peak_bytes"]["p90"])]


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '-'}{seconds(abs(value))}"


def _render_ratios(data: Mapping[str, Any], console: Console) -> None:
    pairs = list(data["each_at_its_best"]["speedup"])
    if not pairs:
        return
    canvas.heading(console, "What the systems are worth to each other")
    rows = [(f"in the best layout of {row['layout_of']}", row["speedup"]) for row in data["like_for_like"]]
    rows.append(("each in its own best layout", data["each_at_its_best"]["speedup"]))
    lines = [[text, *(_interval(speedups.get(pair)) for pair in pairs)] for text, speedups in rows]
    head = ["", *(pair.replace("/", " / ") for pair in pairs)]
    console.print(canvas.plain_table(head, lines, fold=range(len(head))))


def _interval(value: Mapping[str, float] | None) -> str:
    return NOTHING if value is None else f"{ratio(value['nominal'])} ({value['p10']:.2f} to {value['p90']:.2f})"
