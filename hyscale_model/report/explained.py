"""What stands behind one number, on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.units import or_nothing, significant, unit_of


def _text(value: Any) -> str:
    return canvas.printable(value or "")


# What a part may have besides its value -> title, how to show it.
_COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "runs": ("runs", lambda value: or_nothing(value, significant)),
    "flops": ("TFLOP", lambda value: or_nothing(value, lambda flops: significant(flops / 1e12))),
    "bytes": ("GB", lambda value: or_nothing(value, lambda moved: significant(moved / 1e9))),
    "bound_by": ("bound by", _text),
    "origin": ("origin", _text),
}


def render_explanation(data: Mapping[str, Any], console: Console) -> None:
    """Value, formula and parts of ``explain_metric``."""
    show = unit_of(str(data["metric"]))
    number = isinstance(data["value"], (int, float)) and not isinstance(data["value"], bool)
    value = show(data["value"]) if number else canvas.printable(data["value"])
    console.print(f"{canvas.printable(data['metric'])} = {value}", style="bold cyan")
    canvas.sentence(console, f"Formula: {data['formula']}.")
    parts = data["parts"]
    if not parts:
        return
    canvas.heading(console, "Parts")
    ordered = sorted(parts, key=lambda part: -abs(part["value"])) if number else list(parts)
    used = [name for name in _COLUMNS if any(part[name] for part in parts)]
    rows = [
        [
            canvas.printable(part["what"]),
            # A part that is a metric itself has the unit of its own name.
            (unit_of(part["what"]) if part["what"].startswith("systems.") else show)(part["value"])
            if number
            else canvas.printable(part["value"]),
            *(_COLUMNS[name][1](part[name]) for name in used),
        ]
        for part in ordered
    ]
    head = ["part", "value", *(_COLUMNS[name][0] for name in used)]
    console.print(canvas.plain_table(head, rows, left=(0,), fold=(0,)))
    sources = dict.fromkeys(f"{part['origin']}: {part['source']}" for part in parts if part["source"])
    if sources:
        canvas.heading(console, "Where the rates and inputs come from")
        for source in sources:
            canvas.sentence(console, source, "dim")
