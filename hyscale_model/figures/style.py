"""The look that all figures share, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# Height of a bar with its gap, of axis and title below the bars, of a line of the legend above them.
BAR_HEIGHT = 40
AXIS_HEIGHT = 60
LEGEND_HEIGHT = 22
TOP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours that are not meanings: text, lines and ground."""

    name: str
    ink: str
    muted: str
    grid: str
    surface: str
    emphasis: str


LIGHT = Theme(name="light", ink="#1D2329", muted="#5A646E", grid="#E4E2DC", surface="#FFFFFF", emphasis="#0B6E75")
DARK = Theme(name="dark", ink="#E9E7E2", muted="#9BA5AF", grid="#333B43", surface="#1B2026", emphasis="#5CC6CE")
THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}


def bars_height(bars: int, legend_lines: int = 0, each: int = BAR_HEIGHT) -> int:
    """Pixels that a figure of horizontal bars needs, so that a page can reserve them."""
    return each * max(1, bars) + AXIS_HEIGHT + TOP + LEGEND_HEIGHT * legend_lines


def figure(
    traces: Sequence[Mapping[str, Any]],
    theme: Theme,
    *,
    height: int,
    x_title: str | None,
    y_title: str | None = None,
    legend_lines: int = 0,
    **layout: Any,
) -> go.Figure:
    """A figure in the shared look.

    Args:
        traces: plain Plotly traces.
        theme: its ground and text.
        height: pixels; the width follows the page.
        x_title: what the axis shows, with its unit; None where categories speak for themselves.
        y_title: likewise.
        legend_lines: lines reserved for a legend above the figure; 0: there is none.
        layout: what is particular to this figure, laid over the shared look key by key.
    """
    shared: dict[str, Any] = {
        # Everything is said here; Plotly's own template would only be sent along.
        "template": {"layout": {}},
        "height": height,
        "font": {"family": FONT, "size": 13, "color": theme.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 16, "t": TOP + LEGEND_HEIGHT * legend_lines, "b": 8},
        "hoverlabel": {
            "bgcolor": theme.surface,
            "bordercolor": theme.muted,
            "align": "left",
            "font": {"family": FONT, "size": 12, "color": theme.ink},
        },
        "xaxis": _axis(theme, x_title),
        "yaxis": _axis(theme, y_title),
        "showlegend": legend_lines > 0,
        # Over the whole width, not over the bars alone, which are narrow beside long names.
        "legend": {
            "orientation": "h",
            "xref": "container",
            "yref": "container",
            "yanchor": "top",
            "y": 1.0,
            "xanchor": "left",
            "x": 0,
            "font": {"size": 12},
            "traceorder": "normal",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "bargap": 0.35,
        # Zooming by accident loses more than it shows; figures that are for zooming say so.
        "dragmode": False,
        # The same parts of successive figures keep their state.
        "uirevision": "same",
    }
    return go.Figure(data=list(traces), layout=merged(shared, layout))


def _axis(theme: Theme, title: str | None) -> dict[str, Any]:
    return {
        "title": {"text": title or "", "font": {"size": 12, "color": theme.muted}, "standoff": 10},
        "gridcolor": theme.grid,
        "zerolinecolor": theme.grid,
        "linecolor": theme.grid,
        "automargin": True,
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


def names_axis(names: Sequence[str]) -> dict[str, Any]:
    """An axis of names, the first on top."""
    return {"type": "category", "categoryorder": "array", "categoryarray": list(reversed(names)), "showgrid": False}
