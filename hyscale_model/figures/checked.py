"""Predicted beside reported: how far each prediction lies from what others state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from hyscale_model.figures import hover
from hyscale_model.figures.style import Theme, bars_height, figure, named_rows
from hyscale_model.report.compared import RELATIONS
from hyscale_model.report.units import finite, signed_percent, unit_of

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
# A logarithmic axis has no 0, which an interval may reach.
_LEAST = 1e-3
INSIDE, OUTSIDE = "#0072B2", "#D55E00"
# Where a bound allows everything on one side, an arrow points there.
_ARROWS = {"at_most": "triangle-left", "at_least": "triangle-right"}


def checked(rows: Sequence[Mapping[str, Any]], theme: Theme) -> go.Figure:
    """Each prediction over the reported value, with p10 to p90; a reported bound as an arrow.

    The axis is logarithmic: half and double are equally wrong. Rows without a ratio above 0 are left out.
    """
    shown = [row for row in rows if row["reported"] and _ratio(row, "nominal") > 0]
    names = [_name(row) for row in shown]
    traces: list[dict[str, Any]] = []
    for inside, colour, label, symbol in (
        (True, INSIDE, "reported value inside the interval", "circle"),
        (False, OUTSIDE, "outside it", "diamond"),
    ):
        mine = [(name, row) for name, row in zip(names, shown, strict=True) if bool(row["inside"]) is inside]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "y": [name for name, _ in mine],
                "x": [_ratio(row, "nominal") for _, row in mine],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_ratio(row, "p90") - _ratio(row, "nominal") for _, row in mine],
                    "arrayminus": [
                        min(_ratio(row, "nominal") - _ratio(row, "p10"), 0.999 * _ratio(row, "nominal"))
                        for _, row in mine
                    ],
                    "color": colour,
                    "thickness": 2,
                    "width": 6,
                },
                "customdata": [_hover(row) for _, row in mine],
                "hovertemplate": hover.TEMPLATE,
                "marker": {
                    "color": colour,
                    "size": 11,
                    "symbol": [_ARROWS.get(str(row["relation"]), symbol) for _, row in mine],
                },
            }
        )
    return figure(
        traces,
        theme,
        height=bars_height(len(names), each=28),
        x_title="predicted over reported, 1 is equal",
        legend=True,
        **named_rows(names),
        xaxis={"type": "log", "tickvals": _TICKS, "ticktext": [f"{tick:g}" for tick in _TICKS]},
        shapes=[
            {
                "type": "line",
                "x0": 1,
                "x1": 1,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.ink, "width": 1},
            },
            {
                "type": "rect",
                "x0": 0.9,
                "x1": 1.1,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "layer": "below",
                "line": {"width": 0},
                "fillcolor": theme.grid,
                "opacity": 0.6,
            },
        ],
    )


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("id") or row["metric"])


def _ratio(row: Mapping[str, Any], which: str) -> float:
    return finite(row["predicted"][which]) / finite(row["reported"])


def _hover(row: Mapping[str, Any]) -> str:
    show = unit_of(str(row["metric"]))
    error = row.get("error")
    notes = (
        f"reported: {RELATIONS.get(str(row['relation']), '')}{show(row['reported'])}",
        f"error {signed_percent(error)}" if error is not None and row["relation"] == "equal" else "",
        str(row["metric"]),
        str(row.get("source") or ""),
        str(row.get("note") or ""),
    )
    return hover.number(
        f"{_name(row)}, predicted", row["predicted"]["nominal"], show, spread=row["predicted"], notes=notes
    )
