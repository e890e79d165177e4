"""Predicted beside reported: how far each prediction lies from what others state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, merged, named_rows
from hyscale_model.report.compared import RELATIONS
from hyscale_model.report.units import finite, signed_percent, unit_of

_COARSE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FINE = (0.5, 0.7, 0.85, 1, 1.2, 1.5, 2)
# From the lowest to the highest ratio, up to which fine ticks are apart.
_NARROW = 4.0
# A logarithmic axis has no 0, which an interval may reach.
_LEAST = 1e-3
# What a row's interval says of the reported value -> colour, words, mark.
JUDGED: Mapping[bool | None, tuple[str, str, str]] = {
    True: ("#0072B2", "reported value inside the interval", "circle"),
    False: ("#D55E00", "outside it", "diamond"),
    None: ("#8C8C8C", "without an interval", "square"),
}
# Where a bound allows everything on one side, an arrow points there.
_ARROWS = {"at_most": "triangle-left", "at_least": "triangle-right"}
# More rows than this are drawn side by side, a line for each family.
MOST_LINES = 60
# Pixels of a line: of many rows, of few, of families whose names take three lines; and characters of such a line.
CLOSE, FAR, FAMILY = 20, 28, 48
_LABEL = 22


def checked(rows: Sequence[Mapping[str, Any]], theme: Theme) -> Figure:
    """Each prediction over the reported value, with p10 to p90; a reported bound as an arrow.

    The axis is logarithmic: half and double are equally wrong. Rows without a ratio above 0 are left out. Many rows
    share a line with their family.
    """
    shown = [row for row in rows if row["reported"] and _ratio(row, "nominal") > 0]
    together = len(shown) > MOST_LINES
    names = [hover.wrapped(str(row["family"]) if together else _name(row), _LABEL) for row in shown]
    traces: list[dict[str, Any]] = []
    for inside, (colour, label, symbol) in JUDGED.items():
        mine = [(name, row) for name, row in zip(names, shown, strict=True) if row["inside"] is inside]
        if not mine:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "y": [name for name, _ in mine],
                "x": [_ratio(row, "nominal") for _, row in mine],
                **({} if inside is None or together else {"error_x": _interval(mine, colour)}),
                "customdata": [_hover(row) for _, row in mine],
                "hovertemplate": hover.TEMPLATE,
                "marker": {
                    "color": colour,
                    "size": 9 if together else 11,
                    "opacity": 0.6 if together else 1.0,
                    "symbol": [_ARROWS.get(str(row["relation"]), symbol) for _, row in mine],
                },
            }
        )
    lines = list(dict.fromkeys(names))
    ratios = [_ratio(row, "nominal") for row in shown]
    ticks = _FINE if ratios and max(ratios) / min(ratios) < _NARROW else _COARSE
    return figure(
        traces,
        theme,
        height=bars_height(len(lines), each=FAMILY if together else FAR if len(lines) <= FAR else CLOSE),
        x_title="predicted over reported, 1 is equal",
        legend=True,
        **merged(named_rows(lines), {"yaxis": {"range": [-0.6, len(lines) - 0.4]}}),
        xaxis={"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks], "tickangle": 0},
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


def _interval(rows: Sequence[tuple[str, Mapping[str, Any]]], colour: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [_ratio(row, "p90") - _ratio(row, "nominal") for _, row in rows],
        "arrayminus": [
            min(_ratio(row, "nominal") - _ratio(row, "p10"), (1 - _LEAST) * _ratio(row, "nominal")) for _, row in rows
        ],
        "color": colour,
        "thickness": 2,
        "width": 6,
    }


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
