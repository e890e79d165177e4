"""A sweep for people: one line a point, the systems side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.times import label
from hyscale_model.report.units import NOTHING, ratio, seconds

# More lines are a file's matter.
MOST_LINES = 60
BEYOND = "~"
MARKS = {"at_risk": "?", "does_not_fit": "!", "fits": ""}


def render_sweep(data: Mapping[str, Any], console: Console) -> None:
    """Step time of every system and the speed-up of the last over the first, at the first points."""
    paths, systems = data["axes"], data["systems"]
    rows: Sequence[Mapping[str, Any]] = data["rows"]
    canvas.heading(console, f"{data['name']}: {data['points']:,} points")
    points = [rows[start : start + len(systems)] for start in range(0, len(rows), len(systems))]
    head = [*short_names(paths), *systems, *([f"{systems[-1]}/{systems[0]}"] if len(systems) > 1 else [])]
    lines = [
        [canvas.printable(_value(point[0][path])) for path in paths]
        + [_time(row) for row in point]
        + ([_speedup(point[-1])] if len(systems) > 1 else [])
        for point in points[:MOST_LINES]
    ]
    console.print(canvas.plain_table(head, lines, left=()))
    if len(points) > MOST_LINES:
        canvas.sentence(console, f"and {len(points) - MOST_LINES:,} more points; --output table.csv has them all")
    marks = Counter(row["verdict"] for row in rows)
    if marks["does_not_fit"] or marks["at_risk"]:
        canvas.sentence(console, "! does not fit the GPU's memory   ? may not fit")
    beyond = Counter(term for row in rows for term in row["extrapolated"].split(";") if term)
    if beyond:
        terms = ", ".join(label(term) for term, _ in beyond.most_common())
        canvas.sentence(console, f"{BEYOND} beyond what the profile measured: {terms}")
    reasons = Counter(row["reason"] for row in rows if row["reason"])
    for reason, count in reasons.most_common(5):
        canvas.sentence(console, f"{NOTHING} not possible at {count // len(systems) or 1:,} of them: {reason}")


def short_names(paths: Sequence[str]) -> list[str]:
    """The last part of each path, or all of it where two would be called alike."""
    short = [path.rpartition(".")[2] for path in paths]
    return [name if short.count(name) == 1 else path for name, path in zip(short, paths, strict=True)]


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _time(row: Mapping[str, Any]) -> str:
    if row["step_time_s"] is None:
        return NOTHING
    return f"{seconds(row['step_time_s'])}{BEYOND if row['extrapolated'] else ''}{MARKS[row['verdict']]}"


def _speedup(row: Mapping[str, Any]) -> str:
    if row["speedup"] is None:
        return NOTHING
    text = ratio(row["speedup"])
    if row.get("speedup_p10") is None:
        return text
    return f"{text} ({row['speedup_p10']:.2f} to {row['speedup_p90']:.2f})"
