"""A measured profile: its fits beside what was measured, and the rates they promise by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES
from hyscale_model.figures.style import Figure, Theme, figure
from hyscale_model.report.units import finite, seconds, signed_percent, significant

HEIGHT = 360
# Bands around equal, the narrower one darker.
BANDS = (0.10, 0.05)
_FIT, _HELD_OUT = "#56B4E9", "#D55E00"
PARTS: Mapping[str, tuple[str, str, str]] = {
    "fit": ("fitted to", _FIT, "circle"),
    "held_out": ("held out", _HELD_OUT, "diamond"),
}
_RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4)
# Products in BF16 and in FP8, as elsewhere: precision is no family, so it differs by mark and dash too.
_PRECISIONS: Mapping[str, tuple[str, str, str]] = {
    "bf16": (FAMILIES["attention"][0], "circle", "solid"),
    "fp8": (FAMILIES["indexer"][0], "diamond", "dash"),
}


def predicted_over_measured(points: Sequence[Mapping[str, Any]], source: str, theme: Theme) -> Figure:
    """Predicted over measured time of each point, over the measured time; bands of 5 and 10 %.

    Args:
        points: as ``hyscale_calibration.compared`` gives them.
        source: what was measured, for people.
        theme: the look.
    """
    traces: list[dict[str, Any]] = []
    for part, (name, colour, symbol) in PARTS.items():
        mine = [point for point in points if point["part"] == part]
        if not mine:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [1e3 * finite(point["measured_s"]) for point in mine],
                "y": [finite(point["predicted_s"]) / finite(point["measured_s"]) for point in mine],
                "customdata": [_hover(point, source) for point in mine],
                "hovertemplate": hover.TEMPLATE,
                "marker": {"color": colour, "symbol": symbol, "size": 7, "opacity": 0.85},
            }
        )
    bands = [
        {
            "type": "rect",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": 1 / (1 + width),
            "y1": 1 + width,
            "layer": "below",
            "line": {"width": 0},
            "fillcolor": theme.muted,
            "opacity": 0.14,
        }
        for width in BANDS
    ]
    equal = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "layer": "below"}
    return figure(
        traces,
        theme,
        height=HEIGHT,
        x_title="measured time, ms",
        y_title="predicted over measured",
        legend=True,
        xaxis={"type": "log", "dtick": 1},
        yaxis={"type": "log", "tickvals": _RATIOS, "ticktext": [f"{tick:g}" for tick in _RATIOS]},
        margin={"l": 62},
        shapes=[*bands, equal | {"line": {"color": theme.ink, "width": 1}}],
    )


def rate_over_size(
    points: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any]],
    peaks: Mapping[str, float],
    source: str,
    theme: Theme,
) -> Figure:
    """What kernels of one family reach by size: measured points, and the fitted law at their usual mix of work.

    The shaded part is what was measured, the dotted line what a GPU has.

    Args:
        points: of the family.
        curves: of the family, by precision.
        peaks: of the GPU: FLOP/s by precision, bytes/s as ``hbm``.
        source: what was measured, for people.
        theme: the look.
    """
    of_flops = any(point["flops"] for point in points)
    amount = "flops" if of_flops else "bytes"
    size_unit, rate_unit = (1e9, 1e12) if of_flops else (1e6, 1e9)
    traces: list[dict[str, Any]] = []
    several = len({point["precision"] for point in points}) > 1
    for curve in curves:
        colour, symbol, dash = _PRECISIONS[curve["precision"]]
        mine = [point for point in points if point["precision"] == curve["precision"]]
        ending = f", {curve['precision'].upper()}" if several else ""
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"fitted law{ending}",
                "x": [finite(size) / size_unit for size in curve[amount]],
                "y": [
                    finite(size) / finite(time) / rate_unit
                    for size, time in zip(curve[amount], curve["seconds"], strict=True)
                ],
                "hoverinfo": "skip",
                "line": {"color": colour, "width": 2, "dash": dash},
            }
        )
        for part, (name, _, _) in PARTS.items():
            shown = [point for point in mine if point["part"] == part]
            if shown:
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "markers",
                        "name": f"{name}{ending}",
                        "x": [finite(point[amount]) / size_unit for point in shown],
                        "y": [finite(point[amount]) / finite(point["measured_s"]) / rate_unit for point in shown],
                        "customdata": [_hover(point, source) for point in shown],
                        "hovertemplate": hover.TEMPLATE,
                        "marker": {
                            "color": colour if part == "fit" else theme.surface,
                            "symbol": symbol,
                            "size": 9,
                            "line": {"width": 2, "color": colour},
                        },
                    }
                )
    insides = [curve["inside"] for curve in curves]
    low, high = min(inside[0] for inside in insides) / size_unit, max(inside[1] for inside in insides) / size_unit
    used = {curve["precision"] for curve in curves} if of_flops else {"hbm"}
    tops = [(name, finite(peak) / rate_unit) for name, peak in peaks.items() if name in used and peak]
    return figure(
        traces,
        theme,
        height=HEIGHT,
        x_title="work of a kernel, GFLOP" if of_flops else "memory traffic of a kernel, MB",
        y_title="reached, TFLOP/s" if of_flops else "reached, GB/s",
        legend=True,
        xaxis={"type": "log", "dtick": 1, "exponentformat": "power"},
        yaxis={"rangemode": "tozero", "range": [0, 1.12 * max([*_highest(traces), *(top for _, top in tops)])]},
        margin={"l": 62},
        shapes=[
            {
                "type": "rect",
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "x0": low,
                "x1": high,
                "layer": "below",
                "line": {"width": 0},
                "fillcolor": theme.muted,
                "opacity": 0.12,
            },
            *(
                {
                    "type": "line",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": top,
                    "y1": top,
                    "line": {"color": theme.ink, "width": 1.5, "dash": "dot"},
                }
                for _, top in tops
            ),
        ],
        annotations=[
            {
                "xref": "paper",
                "x": 0,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "text": f"peak of {name.upper()}, {significant(top, 3)}",
                "showarrow": False,
                "font": {"size": 11, "color": theme.muted},
            }
            for name, top in tops
        ],
    )


def _highest(traces: Sequence[Mapping[str, Any]]) -> list[float]:
    return [max(trace["y"]) for trace in traces]


def _hover(point: Mapping[str, Any], source: str) -> str:
    measured, said = finite(point["measured_s"]), finite(point["predicted_s"])
    rate = (
        f"{significant(point['flops'] / measured / 1e12, 3)} TFLOP/s"
        if point["flops"]
        else f"{significant(point['bytes'] / measured / 1e9, 3)} GB/s"
    )
    notes = (
        str(point["id"]).replace(",", ", "),
        f"predicted {seconds(said)}, {signed_percent(said / measured - 1)}",
        f"80 % interval: {seconds(point['low_s'])} to {seconds(point['high_s'])}",
        f"reached {rate}",
    )
    title = f"{point['family']}, {PARTS[point['part']][0]}: measured"
    return hover.number(title, measured, seconds, origin=f"measured, {source}", notes=notes)
