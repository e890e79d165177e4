"""Layouts that no other one beats in both time and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import MARKERS, SYSTEMS
from hyscale_model.figures.style import Figure, Theme, figure
from hyscale_model.figures.sweeps import DECADE
from hyscale_model.report.search import NAMES
from hyscale_model.report.units import GIB, finite, gib, seconds

HEIGHT = 380
_ORIGIN = "nominal inputs of the scenario, every layout evaluated"


def front(data: Mapping[str, Any], capacity_bytes: float, theme: Theme) -> Figure:
    """Peak memory over step time of the front of each system, and the scenario's own layout with its interval.

    Args:
        data: the JSON of ``hyscale search``.
        capacity_bytes: of a GPU.
        theme: the look.
    """
    traces: list[dict[str, Any]] = []
    times: list[float] = []
    for place, (name, system) in enumerate(data["systems"].items()):
        colour, symbol = SYSTEMS[place % len(SYSTEMS)], MARKERS[place % len(MARKERS)]
        rows = system["pareto"]
        times += [finite(row["step_time_s"]) for row in rows]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{name}, front",
                "x": [row["step_time_s"] for row in rows],
                "y": [row["peak_bytes"] / GIB for row in rows],
                "customdata": [
                    hover.number(
                        f"{name}: {gib(row['peak_bytes'])}",
                        row["step_time_s"],
                        seconds,
                        origin=_ORIGIN,
                        notes=(layout_text(row["layout"]),),
                    )
                    for row in rows
                ],
                "hovertemplate": hover.TEMPLATE,
                # Less memory is had from the next layout on only.
                "line": {"color": colour, "width": 2, "shape": "hv"},
                "marker": {"color": colour, "symbol": symbol, "size": 8},
            }
        )
    for place, (name, system) in enumerate(data["systems"].items()):
        if system["own"] is not None:
            traces.append(_own(name, system["own"], SYSTEMS[place % len(SYSTEMS)], theme))
            times.append(finite(system["own"]["step_time_s"]["nominal"]))
    capacity = capacity_bytes / GIB
    line = {"type": "line", "y0": capacity, "y1": capacity, "xref": "paper", "x0": 0, "x1": 1}
    return figure(
        traces,
        theme,
        height=HEIGHT,
        x_title="step time, s",
        y_title="peak memory, GiB",
        legend=True,
        xaxis={"type": "log" if times and max(times) / min(times) >= DECADE else "linear"},
        yaxis={"rangemode": "tozero"},
        margin={"l": 62},
        shapes=[line | {"line": {"color": theme.ink, "width": 2, "dash": "dash"}}],
        annotations=[
            {
                "xref": "paper",
                "x": 1,
                "y": capacity,
                "xanchor": "right",
                "yanchor": "bottom",
                "text": f"capacity {gib(capacity_bytes)}",
                "showarrow": False,
                "font": {"size": 11, "color": theme.muted},
            }
        ],
    )


def _own(name: str, row: Mapping[str, Any], colour: str, theme: Theme) -> dict[str, Any]:
    time, peak = row["step_time_s"], row["peak_bytes"]
    notes = (
        f"peak memory {gib(peak['nominal'])}, {gib(peak['p10'])} to {gib(peak['p90'])}",
        layout_text(row["layout"]),
    )
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}, the scenario's layout",
        "x": [time["nominal"]],
        "y": [peak["nominal"] / GIB],
        "error_x": _error(time, 1.0, colour),
        "error_y": _error(peak, 1 / GIB, colour),
        "customdata": [
            hover.number(
                f"{name}, the scenario's layout",
                time["nominal"],
                seconds,
                spread=time,
                origin="computed; as certain as the least certain term",
                notes=notes,
            )
        ],
        "hovertemplate": hover.TEMPLATE,
        "marker": {"color": theme.surface, "symbol": "square", "size": 12, "line": {"width": 3, "color": colour}},
    }


def _error(spread: Mapping[str, Any], factor: float, colour: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [factor * max(0.0, spread["p90"] - spread["nominal"])],
        "arrayminus": [factor * max(0.0, spread["nominal"] - spread["p10"])],
        "color": colour,
        "thickness": 2,
        "width": 5,
    }


def layout_text(layout: Mapping[str, Any]) -> str:
    """A layout in words: what differs from one of a kind."""
    return ", ".join(f"{NAMES.get(name, name)} {value}" for name, value in layout.items())
