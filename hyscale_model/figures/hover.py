"""What hovering over a number tells: its value, its interval and its origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hyscale_model.report.units import NOTHING, interval

# Hides the name that Plotly adds beside a hover label.
ONLY = "<extra></extra>"
TEMPLATE = "%{customdata}" + ONLY
# Plotly does not wrap hover labels.
_LINE = 64


def wrapped(text: str, width: int = _LINE) -> str:
    """Text on lines of at most about ``width`` characters; markup in it means nothing."""
    lines, line = [], ""
    for word in escaped(text).split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "<br>".join([*lines, line] if line else lines)


def escaped(text: Any) -> str:
    """Text that Plotly shows as it is."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(
    title: str,
    value: Any,
    show: Callable[[Any], str],
    *,
    spread: Mapping[str, Any] | None = None,
    origin: str | None = None,
    notes: tuple[str, ...] = (),
) -> str:
    """The text of a hover label.

    Args:
        title: what the number is.
        value: the number.
        show: how to write it, with its unit.
        spread: p10 to p90 of it.
        origin: where it comes from.
        notes: what else there is to say, a line each.
    """
    lines = [f"<b>{escaped(title)}</b>", show(value)]
    between = interval(spread, show)
    if between != NOTHING:
        lines.append(f"80 % of the draws: {between}")
    if origin:
        lines.append(wrapped(f"origin: {origin}"))
    return "<br>".join([*lines, *(wrapped(note) for note in notes if note)])


def origin_text(data: Mapping[str, Any], path: str) -> str:
    """The origin of a result or input, in words, from the ``origins`` of a prediction."""
    entry = (data.get("origins") or {}).get(path)
    if not entry:
        return ""
    detail = entry.get("source") or entry.get("reason") or ""
    return f"{entry['origin']}, {detail}" if detail else str(entry["origin"])
