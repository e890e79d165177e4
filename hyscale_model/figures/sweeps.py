"""Sweeps: a result over one field as a line for each system, over two fields as a heat map."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import MARKERS, SYSTEMS
from hyscale_model.figures.style import CHARACTER, Figure, Theme, figure
from hyscale_model.report.memory import VERDICTS
from hyscale_model.report.units import GIB, count, gib, percent, ratio, seconds, significant, tokens

HEIGHT = 340
# Beyond this factor from the lowest to the highest value an axis is logarithmic.
DECADE = 8.0
# More cells a row leave no room for their numbers.
MOST_TOLD = 12
# What the command line writes behind a step that does not fit.
_MARKS = {"at_risk": " ?", "does_not_fit": " !"}
_CELL = 36


@dataclass(frozen=True, slots=True)
class Metric:
    """A result of a sweep.

    Attributes:
        title: what it is, with the unit of an axis.
        factor: from SI to that unit.
        show: how a value is written.
        uncertain: whether it has an interval.
    """

    title: str
    factor: float
    show: Callable[[Any], str]
    uncertain: bool = True


METRICS: Mapping[str, Metric] = {
    "step_time_s": Metric("step time, s", 1.0, seconds),
    "speedup": Metric("speed-up, times as fast", 1.0, ratio),
    "tokens_per_s_per_gpu": Metric("tokens/s a GPU", 1.0, count),
    "peak_bytes": Metric("peak memory, GiB", 1 / GIB, gib),
    "selection_share_of_step": Metric("selection, % of the step", 100.0, percent, uncertain=False),
}


def curves(
    data: Mapping[str, Any], path: str, title: str, metric: str, theme: Theme, origins: Mapping[str, str]
) -> Figure:
    """A result over one swept field: a line with the ribbon of 80 % of the draws for each system.

    Hollow marks do not fit, or may not. Points that are not possible are left out.

    Args:
        data: the JSON of ``hyscale sweep`` with one axis.
        path: the field.
        title: what people call it.
        metric: a name of ``METRICS``.
        theme: the look.
        origins: of each system's results.
    """
    told = METRICS[metric]
    rows = [row for row in data["rows"] if row[metric] is not None]
    values = list(dict.fromkeys(row[path] for row in rows))
    numeric = all(_is_number(value) for value in values)
    systems = [name for name in data["systems"] if not (metric == "speedup" and name == data["systems"][0])]
    traces: list[dict[str, Any]] = []
    for name in systems:
        place = data["systems"].index(name)
        mine = [row for row in rows if row["system"] == name]
        if mine:
            traces += _curve(mine, path, metric, name, place, numeric, origins.get(name, ""), theme)
    shown = [told.factor * row[metric] for row in rows if row["system"] in systems]
    return figure(
        traces,
        theme,
        height=HEIGHT,
        x_title=title,
        y_title=told.title,
        legend=True,
        xaxis=_number_axis(values) if numeric else {"type": "category", "categoryarray": list(map(str, values))},
        yaxis={"type": "log" if _spans(shown) else "linear", **({} if _spans(shown) else {"rangemode": "tozero"})},
        margin={"l": 66},
        # Systems side by side where a field has names for values.
        **({} if numeric else {"scattermode": "group", "scattergap": 0.6}),
    )


def _curve(
    rows: Sequence[Mapping[str, Any]],
    path: str,
    metric: str,
    name: str,
    place: int,
    numeric: bool,
    origin: str,
    theme: Theme,
) -> list[dict[str, Any]]:
    told = METRICS[metric]
    colour, symbol = SYSTEMS[place % len(SYSTEMS)], MARKERS[place % len(MARKERS)]
    x = [row[path] if numeric else str(row[path]) for row in rows]
    line: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": [told.factor * row[metric] for row in rows],
        "customdata": [point_hover(row, metric, f"{name}, {path} = {_value(row[path])}", origin) for row in rows],
        "hovertemplate": hover.TEMPLATE,
        "line": {"color": colour, "width": 2 if numeric else 0},
        "marker": {
            "color": [colour if row["verdict"] == "fits" else theme.surface for row in rows],
            "symbol": symbol,
            "size": 9,
            "line": {"width": 2, "color": colour},
        },
    }
    low, high = ([row.get(f"{metric}_{end}") for row in rows] for end in ("p10", "p90"))
    if None in low or None in high:
        return [line]
    if not numeric:
        line["mode"] = "markers"
        line["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [told.factor * max(0.0, end - row[metric]) for end, row in zip(high, rows, strict=True)],
            "arrayminus": [told.factor * max(0.0, row[metric] - end) for end, row in zip(low, rows, strict=True)],
            "color": colour,
            "thickness": 2,
            "width": 5,
        }
        return [line]
    ribbon = {
        "type": "scatter",
        "mode": "lines",
        "showlegend": False,
        "x": [*x, *reversed(x)],
        "y": [told.factor * end for end in (*high, *reversed(low))],
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.18,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
    }
    return [ribbon, line]


def heat_map(
    data: Mapping[str, Any],
    paths: tuple[str, str],
    titles: tuple[str, str],
    metric: str,
    system: str,
    theme: Theme,
    origin: str,
) -> Figure:
    """A result of one system over two swept fields; empty cells are not possible, and hovering tells why.

    Args:
        data: the JSON of ``hyscale sweep`` with two axes.
        paths: the fields, across and up.
        titles: what people call them.
        metric: a name of ``METRICS``.
        system: whose result.
        theme: the look.
        origin: of the system's results.
    """
    told = METRICS[metric]
    rows = {(row[paths[0]], row[paths[1]]): row for row in data["rows"] if row["system"] == system}
    # Where nothing is possible there is nothing to see.
    possible = [key for key, row in rows.items() if row[metric] is not None]
    across, up = (list(dict.fromkeys(key[place] for key in possible)) for place in (0, 1))
    cells = [[rows[x, y] for x in across] for y in up]
    values = [[None if row[metric] is None else told.factor * row[metric] for row in line] for line in cells]
    known = [value for line in values for value in line if value is not None]
    told_inside = len(across) <= MOST_TOLD
    heat = {
        "type": "heatmap",
        "x": [_value(value) for value in across],
        "y": [_value(value) for value in up],
        # What differs by factors differs evenly in colour.
        "z": _ranks(values) if known else values,
        "text": [[_cell(row, metric) for row in line] for line in cells],
        "texttemplate": "%{text}" if told_inside else "",
        "textfont": {"size": 12, "color": theme.ink},
        "customdata": [
            [point_hover(row, metric, f"{system}: {told.title.partition(',')[0]}", origin, where=paths) for row in line]
            for line in cells
        ],
        "hovertemplate": hover.TEMPLATE,
        "colorscale": [[0, theme.low], [1, theme.high]],
        "zmin": 0.0,
        "zmax": 1.0,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": True,
    }
    longest = max((len(_value(value)) for value in up), default=0)
    return figure(
        [heat],
        theme,
        height=max(180, _CELL * len(up) + 70),
        x_title=titles[0],
        y_title=titles[1],
        xaxis={"type": "category", "showgrid": False},
        yaxis={"type": "category", "showgrid": False},
        margin={"l": 44 + CHARACTER * longest},
    )


def _ranks(values: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Values as shares of the way from the lowest to the highest, by factors where all are above zero and far apart."""
    known = [value for line in values for value in line if value is not None]
    scale = math.log if _spans(known) else float
    low, high = scale(min(known)), scale(max(known))
    width = high - low or 1.0
    return [[None if value is None else (scale(value) - low) / width for value in line] for line in values]


def point_hover(row: Mapping[str, Any], metric: str, title: str, origin: str, where: tuple[str, ...] = ()) -> str:
    """What one point of a sweep tells."""
    told = METRICS[metric]
    places = tuple(f"{path} = {_value(row[path])}" for path in where)
    if row[metric] is None:
        return "<br>".join(
            [f"<b>{hover.escaped(title)}</b>", *map(hover.escaped, places), hover.wrapped(str(row["reason"]))]
        )
    spread = {end: row.get(f"{metric}_{end}") for end in ("p10", "p90")} if told.uncertain else None
    verdict = VERDICTS.get(str(row["verdict"]), "")
    return hover.number(title, row[metric], told.show, spread=spread, origin=origin, notes=(*places, verdict))


def _cell(row: Mapping[str, Any], metric: str) -> str:
    if row[metric] is None:
        return ""
    return f"{_short(row[metric], METRICS[metric])}{_MARKS.get(str(row['verdict']), '')}"


def _short(value: float, told: Metric) -> str:
    """A number that fits into a cell; the unit stands in the title."""
    scaled = told.factor * value
    return f"{scaled:.2f}" if told.show is ratio else significant(scaled, 3)


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return tokens(value) if value >= 1 << 14 and value % 1024 == 0 else f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _spans(values: Sequence[float]) -> bool:
    """Whether values are best shown by factors."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= DECADE


def _number_axis(values: Sequence[float]) -> dict[str, Any]:
    spread = _spans(values)
    axis: dict[str, Any] = {"type": "log" if spread else "linear"}
    if len(values) <= MOST_TOLD:
        axis |= {"tickvals": list(values), "ticktext": [_value(value) for value in values]}
    return axis
