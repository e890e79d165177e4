"""The look that all figures share, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# Height of a bar with its gap, and of axis and title below the bars.
BAR_HEIGHT = 40
AXIS_HEIGHT = 48
TOP = 8
# Width of a character of a name, on the wide side.
CHARACTER = 6.8
TRANSPARENT = "rgba(0,0,0,0)"

# A figure as Plotly takes it: {"data": [...], "layout": {...}}. Its own objects check every attribute anew, which would
# take as long as all else; tests check instead.
Figure: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours that are not meanings: text, lines, ground, and the ends of a scale from ``low`` to ``high``.

    Ink is legible on all of that scale.
    """

    name: str
    ink: str
    muted: str
    grid: str
    surface: str
    emphasis: str
    low: str
    high: str


LIGHT = Theme(
    name="light",
    ink="#1D2329",
    muted="#5A646E",
    grid="#E4E2DC",
    surface="#FFFFFF",
    emphasis="#0B6E75",
    low="#E7F1F1",
    high="#6FB3B8",
)
DARK = Theme(
    name="dark",
    ink="#E9E7E2",
    muted="#9BA5AF",
    grid="#333B43",
    surface="#1B2026",
    emphasis="#5CC6CE",
    low="#22333A",
    high="#1C6E75",
)
THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}


def bars_height(bars: int, each: int = BAR_HEIGHT) -> int:
    """Pixels that a figure of horizontal bars needs, so that a page can reserve them."""
    return each * max(1, bars) + AXIS_HEIGHT + TOP


def figure(
    traces: Sequence[Mapping[str, Any]],
    theme: Theme,
    *,
    height: int,
    x_title: str | None,
    y_title: str | None = None,
    legend: bool = False,
    **layout: Any,
) -> Figure:
    """A figure in the shared look.

    Args:
        traces: plain Plotly traces.
        theme: its ground and text.
        height: pixels; the width follows the page.
        x_title: what the axis shows, with its unit; None where categories speak for themselves.
        y_title: likewise.
        legend: whether colours need one. The page shows it (see ``legend``), where it wraps as the page does; only a
            downloaded picture has it inside.
        layout: what is particular to this figure, laid over the shared look key by key.
    """
    shared: dict[str, Any] = {
        # Everything is said here; Plotly's own template would only be sent along.
        "template": {"layout": {}},
        "height": height,
        "font": {"family": FONT, "size": 13, "color": theme.ink},
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "margin": {"l": 8, "r": 18, "t": TOP, "b": AXIS_HEIGHT},
        "hoverlabel": {
            "bgcolor": theme.surface,
            "bordercolor": theme.muted,
            "align": "left",
            "font": {"family": FONT, "size": 12, "color": theme.ink},
        },
        "xaxis": _axis(theme, x_title),
        "yaxis": _axis(theme, y_title),
        "showlegend": False,
        "meta": {"legend": legend},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"},
        "bargap": 0.35,
        # Zooming by accident loses more than it shows; figures that are for zooming say so.
        "dragmode": False,
        # The same parts of successive figures keep their state.
        "uirevision": "same",
    }
    return {"data": [dict(trace) for trace in traces], "layout": merged(shared, layout)}


def _axis(theme: Theme, title: str | None) -> dict[str, Any]:
    return {
        "title": {"text": title or "", "font": {"size": 12, "color": theme.muted}, "standoff": 10},
        "gridcolor": theme.grid,
        "zerolinecolor": theme.grid,
        "linecolor": theme.grid,
        "ticks": "",
        "tickfont": {"size": 12},
    }


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``, mappings key by key."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return result


def named_rows(names: Sequence[str], above: int = 0) -> dict[str, Any]:
    """The layout of a figure whose rows have names, the first on top, with ``above`` pixels more over them.

    The room for the names is computed here: measured in the browser it would take a second drawing.
    """
    longest = max((len(line) for name in names for line in name.split("<br>")), default=0)
    order = list(reversed(names))
    axis = {"type": "category", "categoryorder": "array", "categoryarray": order, "showgrid": False}
    return {"yaxis": axis, "margin": {"l": 14 + CHARACTER * longest, "t": TOP + above}}


# Marks that the legend draws as they are; the others are dots there.
DRAWN_MARKS = ("square", "diamond", "triangle-up")


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One entry of a legend: its name, its colour and how it is drawn: bar, hatched, line, stroke or a mark,
    which may be hollow."""

    name: str
    colour: str
    shape: str


def legend(drawn: Figure) -> list[LegendEntry]:
    """The legend of a figure; empty where it needs none."""
    if not drawn["layout"]["meta"]["legend"]:
        return []
    return [_entry(trace) for trace in drawn["data"] if trace.get("showlegend", True) and trace.get("name")]


def _entry(trace: Mapping[str, Any]) -> LegendEntry:
    marker = trace.get("marker") or {}
    colour = marker.get("color")
    symbol = marker.get("symbol")
    if trace["type"] == "bar":
        pattern = marker.get("pattern") or {}
        hatched = colour == TRANSPARENT
        shown = pattern.get("fgcolor") if hatched else colour
        return LegendEntry(trace["name"], str(shown), "hatched" if hatched else "bar")
    if isinstance(symbol, str) and symbol.startswith("line"):
        return LegendEntry(trace["name"], str(marker["line"]["color"]), "line")
    if "lines" in trace.get("mode", ""):
        line = trace["line"]
        shape = "stroke" if line.get("dash", "solid") == "solid" else "stroke dashed"
        return LegendEntry(trace["name"], str(line["color"]), shape)
    outline = (marker.get("line") or {}).get("color")
    shape = symbol if symbol in DRAWN_MARKS else "dot"
    hollow = isinstance(colour, str) and outline is not None and outline != colour
    return LegendEntry(trace["name"], str(outline or colour), f"{shape} hollow" if hollow else shape)
