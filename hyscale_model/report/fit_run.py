"""What a measured step told, for people: before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.times import label
from hyscale_model.report.units import percent, ratio, seconds, significant, unit_of

MOST_INPUTS = 10
# Less than this is what draws do by themselves.
LEAST_MOVE = 0.02
# Characters of a kernel's name that are shown.
NAME = 60
# Characters of a line of names.
WIDEST = 40
TERM_PREFIX = "time_s."


def render_fit_run(data: Mapping[str, Any], console: Console) -> None:
    """What was measured, what it says of every system, and which unknowns it moved."""
    canvas.heading(console, f"{data['name']}: a measured step of {data['system']}")
    if "trace" in data:
        _render_trace(data["trace"], console)
        canvas.heading(console, "Measured and predicted")
    lines = []
    for row in data["measured"]:
        show = unit_of(row["metric"])
        told = [show(row["value"]), _range(row["before"], show), _after(row, show)]
        lines.append([_metric(row["metric"]), *told])
    console.print(canvas.plain_table(["", "measured", "before", "after"], lines, fold=(0,)))
    if not data["explained"]:
        canvas.sentence(
            console,
            "The measurement lies outside what the scenario leaves open: next to no draw comes near it, so nothing is "
            "narrowed. Check that the scenario says what was run, or widen its assumptions.",
            "bold",
        )
        return
    canvas.sentence(console, f"{data['effective_draws']:,.0f} of {data['draws']:,} draws are left in effect.")
    canvas.heading(console, "Predicted, before and after")
    lines = [
        [f"step of {name}", _range(row["before"], seconds), _after(row, seconds)]
        for name, row in data["systems"].items()
    ]
    lines += [[name, _range(row["before"], ratio), _after(row, ratio)] for name, row in data["speedup"].items()]
    console.print(canvas.plain_table(["", "p10 to p90 before", "after"], lines))
    moved = [row for row in data["inputs"] if row["moved"] >= LEAST_MOVE][:MOST_INPUTS]
    if moved:
        canvas.heading(console, "What it says of the unknowns")
        table = [_input(row) for row in moved]
        console.print(canvas.plain_table(["", "before", "after"], table, left=(0, 1, 2), fold=(1, 2)))


def _render_trace(trace: Mapping[str, Any], console: Console) -> None:
    """Where the time of the traced step went."""
    step = trace["step_time_s"]
    gpu = canvas.printable(trace["device"] or "a GPU")
    ran, known = percent(trace["busy_s"] / step["median"]), percent(trace["attributed_share"])
    steps = "the whole trace" if not trace["steps_marked"] else f"the median of {trace['steps']} steps"
    canvas.sentence(
        console,
        f"Traced on {gpu}: {seconds(step['median'])}, {steps}; kernels ran for {ran} of it, of which {known} are "
        "attributed.",
    )
    lines = [
        [
            _together(part["terms"]),
            seconds(part["seconds"]),
            percent(part["seconds"] / step["median"]),
            seconds(part["hidden_s"]) if part["hidden_s"] else "",
        ]
        for part in trace["parts"]
    ]
    others = (
        ("of several terms", trace["uncertain_s"]),
        ("unattributed", trace["unattributed_s"]),
        ("nothing ran", step["median"] - trace["busy_s"]),
    )
    lines += [[name, seconds(own), percent(own / step["median"]), ""] for name, own in others if own > 0]
    console.print(canvas.plain_table(["", "of the step", "share", "hidden"], lines, left=(0,)))
    if trace["largest_unattributed"]:
        canvas.heading(console, "Kernels that no rule knows; --kernels RULES names their terms")
        unknown = [
            [canvas.printable(row["kernel"])[:NAME], seconds(row["seconds"])] for row in trace["largest_unattributed"]
        ]
        console.print(canvas.plain_table(["", "of the step"], unknown, left=(0,)))


def _metric(name: str) -> str:
    """A metric; terms together by their labels."""
    terms = name.removeprefix(TERM_PREFIX)
    return _together(terms.split("+")) if terms != name else name


def _together(terms: Sequence[str]) -> str:
    """Names of terms that are told together, in lines that leave room for numbers."""
    return "\n".join(wrap(", ".join(label(term, short=True) for term in terms), WIDEST))


def _range(value: Mapping[str, float], show: Callable[[Any], str]) -> str:
    return f"{show(value['p10'])} to {show(value['p90'])}"


def _after(row: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    return _range(row["after"], show) if "after" in row else "-"


def _input(row: Mapping[str, Any]) -> list[str]:
    name = canvas.printable(row["input"])
    if row["kind"] == "rate":
        return [name, "percentile 50", f"percentile {row['percentile']:.0f}"]
    if "choices" in row:
        shares = [
            ", ".join(f"{choice['value']} {percent(choice[when])}" for choice in row["choices"])
            for when in ("before", "after")
        ]
        return [name, *shares]
    return [name, _range(row["before"], significant), _after(row, significant)]
