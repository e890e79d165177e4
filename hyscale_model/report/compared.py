"""Predicted beside reported: the rows of ``check`` and of a scenario's ``reported``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hyscale_model.report import canvas
from hyscale_model.report.units import NOTHING, interval, nominal, or_nothing, signed_percent, unit_of

RELATIONS: Mapping[str, str] = {"equal": "", "at_most": "at most ", "at_least": "at least "}

_HEAD = ("reported", "predicted", "p10 to p90", "error", "80 %")


def inside_text(inside: Any) -> Text:
    """Whether the reported value lies in the predicted interval, in words."""
    if inside is None:
        return Text(NOTHING)
    return Text("inside", "green") if inside else Text("OUTSIDE", "bold red")


def render_comparison(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Reported and predicted value with interval, error, and inside or outside.

    Where a metric's name does not fit beside its numbers, the table shows the id of the row and the names
    follow below it.
    """
    numbers = [_numbers(row) for row in rows]
    ids = [canvas.printable(row.get("id") or index) for index, row in enumerate(rows, start=1)]
    metrics = [canvas.printable(row.get("metric", "")) for row in rows]
    sources = [canvas.printable(row.get("source") or "") for row in rows]
    names = [
        f"{canvas.printable(row['id'])} {metric}" if row.get("id") else metric
        for row, metric in zip(rows, metrics, strict=True)
    ]
    columns = [max(len(str(cell)) for cell in column) for column in zip(_HEAD, *numbers, strict=True)]
    room = console.width - sum(columns) - 2 * len(columns)
    if max(map(len, names)) > room:
        table = [[key, *line] for key, line in zip(ids, numbers, strict=True)]
        # Ids may be long too: better in several lines than in place of the numbers.
        console.print(canvas.plain_table(["", *_HEAD], table, fold=(0,)))
        for key, metric, source in zip(ids, metrics, sources, strict=True):
            canvas.sentence(console, f"{key}: {metric}" + (f" ({source})" if source else ""), "dim")
        return
    # A source in less than twenty columns would be a tower of syllables.
    with_sources = any(sources) and room - max(map(len, names)) > 20
    table = [
        [name, *line, *([source] if with_sources else [])]
        for name, line, source in zip(names, numbers, sources, strict=True)
    ]
    head = ["metric", *_HEAD, *(["source"] if with_sources else [])]
    console.print(canvas.plain_table(head, table, left=(0, 6), fold=(6,)))


def _numbers(row: Mapping[str, Any]) -> list[str | Text]:
    show = unit_of(str(row.get("metric", "")))
    predicted = row.get("predicted")
    # A bound has no error: being far below "at most" is no worse than being just below it.
    error = row.get("error") if row.get("relation", "equal") == "equal" else None
    return [
        RELATIONS.get(str(row.get("relation")), "") + or_nothing(row.get("reported", row.get("value")), show),
        or_nothing(nominal(predicted), show),
        interval(predicted, show),
        or_nothing(error, signed_percent),
        inside_text(row.get("inside")),
    ]
