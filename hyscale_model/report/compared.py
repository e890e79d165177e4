"""Predicted beside reported: the rows of ``check`` and of a scenario's ``reported``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hyscale_model.report import canvas
from hyscale_model.report.units import NOTHING, interval, nominal, or_nothing, signed_percent, unit_of

RELATIONS: Mapping[str, str] = {"equal": "", "at_most": "at most ", "at_least": "at least "}


def inside_text(inside: Any) -> Text:
    """Whether the reported value lies in the predicted interval, in words."""
    if inside is None:
        return Text(NOTHING)
    return Text("inside", "green") if inside else Text("OUTSIDE", "bold red")


def comparison_table(rows: Sequence[Mapping[str, Any]], console: Console, *, sources: bool = False) -> Table:
    """Reported and predicted value with interval, error, and inside or outside; sources where there is room."""
    sources = sources and console.width >= canvas.WIDE
    lines: list[list[str | Text]] = []
    for row in rows:
        metric = str(row.get("metric", ""))
        show = unit_of(metric)
        predicted = row.get("predicted")
        name = " ".join(str(part) for part in (row.get("id"), metric) if part)
        line: list[str | Text] = [
            canvas.printable(name),
            RELATIONS.get(str(row.get("relation")), "") + or_nothing(row.get("reported", row.get("value")), show),
            or_nothing(nominal(predicted), show),
            interval(predicted, show),
            or_nothing(row.get("error"), signed_percent),
            inside_text(row.get("inside")),
        ]
        if sources:
            line.append(canvas.printable(row.get("source") or ""))
        lines.append(line)
    head = ["metric", "reported", "predicted", "p10 to p90", "error", "80 %", *(["source"] if sources else [])]
    return canvas.plain_table(head, lines, left=(0, 6), fold=(0, 6))
