"""Selection: how it grows with the length of a sequence, the bytes it moves, and how near the roofs it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import MARKERS, SYSTEMS, tint
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.lengths import Curve, Lengths
from hyscale_model.report.units import count, finite, gib, ratio, seconds, significant, tokens

_HEIGHT = 310
# Of a bar that stands beside a figure of that height.
_BAR = 76
_TICKS = 2


def selection_over_lengths(found: Lengths, data: Mapping[str, Any], theme: Theme) -> Figure:
    """Seconds of selection in a step, forward and recomputation, over the sequence length."""
    traces: list[dict[str, Any]] = []
    for index, (name, curve) in enumerate(found.selection_s.items()):
        if any(point["nominal"] for point in curve):
            origin = hover.origin_text(data, f"systems.{name}")
            traces += _line(found, name, curve, index, f"{name}: selection", seconds, origin)
    return _lengths_figure(traces, found, "selection in a step, s", theme, yaxis={"type": "log"})


def gain_over_lengths(found: Lengths, data: Mapping[str, Any], theme: Theme) -> Figure:
    """Speed-up of each system over the first one over the sequence length."""
    origin = hover.origin_text(data, "speedup")
    traces: list[dict[str, Any]] = []
    for index, (name, curve) in enumerate(found.speedup.items(), start=1):
        traces += _line(found, name, curve, index, f"{name}: speed-up", ratio, origin)
    line = {"type": "line", "y0": 1, "y1": 1, "xref": "paper", "x0": 0, "x1": 1}
    shape = line | {"line": {"color": theme.muted, "width": 1, "dash": "dot"}}
    return _lengths_figure(traces, found, "speed-up, times as fast", theme, shapes=[shape])


def selection_bytes(parts: Mapping[str, Sequence[Mapping[str, Any]]], theme: Theme) -> Figure:
    """Bytes that the selection of one layer and micro-batch moves through the memory of a GPU, forward, by operation.

    Args:
        parts: of each system, as ``derive`` gives them.
        theme: the look.
    """
    names = list(parts)
    operations = list(dict.fromkeys(part["name"] for each in parts.values() for part in each if part["bytes"]))
    traces: list[dict[str, Any]] = []
    for index, operation in enumerate(operations):
        rows = [(name, part) for name, each in parts.items() for part in each if part["name"] == operation]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": operation.removeprefix("selection."),
                "y": [name for name, _ in rows],
                "x": [finite(part["bytes"]) / 1e9 for _, part in rows],
                "customdata": [_part_hover(name, part) for name, part in rows],
                "hovertemplate": hover.TEMPLATE,
                "marker": {
                    # One family, one colour: operations differ in lightness.
                    "color": tint("#D55E00", 0.75 * index / max(1, len(operations) - 1)),
                    "line": {"color": theme.surface, "width": 1},
                },
            }
        )
    return figure(
        traces,
        theme,
        height=max(bars_height(len(names), each=_BAR), _HEIGHT - 30),
        x_title="memory traffic, GB",
        legend=True,
        barmode="stack",
        **named_rows(names),
    )


def roofline(parts: Mapping[str, Sequence[Mapping[str, Any]]], gpu: Mapping[str, Any], theme: Theme) -> Figure:
    """Operations of selection under the roofs of the GPU: TFLOP/s over FLOP a byte.

    Args:
        parts: of each system, as ``derive`` gives them; operations without matrix products have no place here.
        gpu: the GPU of a resolved scenario.
        theme: the look.
    """
    memory, peak = finite(gpu["hbm_bytes_per_s"]), finite(gpu["bf16_flops"])
    traces: list[dict[str, Any]] = []
    intensities = [1.0, peak / memory]
    for index, (name, each) in enumerate(parts.items()):
        shown = [part for part in each if part["flops"] and part["bytes"]]
        intensities += [part["flops"] / part["bytes"] for part in shown]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [part["flops"] / part["bytes"] for part in shown],
                "y": [part["flops"] / part["seconds"] / 1e12 for part in shown],
                "customdata": [_part_hover(name, part) for part in shown],
                "hovertemplate": hover.TEMPLATE,
                "marker": {"color": SYSTEMS[index % len(SYSTEMS)], "symbol": MARKERS[index % len(MARKERS)], "size": 11},
            }
        )
    ends = [min(intensities) / 2, peak / memory, max(intensities) * 4]
    roofs = [("BF16 peak", peak, theme.ink, "solid")]
    if gpu.get("fp8_flops"):
        roofs.append(("FP8 peak", finite(gpu["fp8_flops"]), theme.muted, "dash"))
    for label, top, colour, dash in roofs:
        knee = top / memory
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label,
                "x": [ends[0], knee, max(ends[2], 2 * knee)],
                "y": [ends[0] * memory / 1e12, top / 1e12, top / 1e12],
                "hoverinfo": "skip",
                "line": {"color": colour, "width": 2, "dash": dash},
            }
        )
    return figure(
        traces,
        theme,
        height=_HEIGHT,
        x_title="arithmetic intensity, FLOP a byte",
        y_title="reached, TFLOP/s",
        legend=True,
        xaxis={"type": "log", "exponentformat": "power", "dtick": 1},
        yaxis={"type": "log", "exponentformat": "power", "dtick": 1},
        margin={"l": 62},
    )


def _part_hover(name: str, part: Mapping[str, Any]) -> str:
    flops, moved = finite(part["flops"]), finite(part["bytes"])
    notes = (
        f"{significant(flops / 1e12, 3)} TFLOP" if flops else "",
        f"{significant(flops / moved, 3)} FLOP a byte" if flops and moved else "",
        f"takes {seconds(part['seconds'])}, at the peaks {seconds(part['floor_s'])}",
    )
    origin = f"{part['origin']}, {part['detail']}"
    return hover.number(f"{name}: {part['name']}", moved, gib, origin=origin, notes=notes)


def _line(
    found: Lengths, name: str, curve: Curve, index: int, title: str, show: Any, origin: str
) -> list[dict[str, Any]]:
    """A curve with its interval as a ribbon."""
    colour = SYSTEMS[index % len(SYSTEMS)]
    lengths = list(found.lengths)
    texts = [
        hover.number(f"{title} at {count(length)} tokens", point["nominal"], show, spread=point, origin=origin)
        for length, point in zip(lengths, curve, strict=True)
    ]
    ribbon = {
        "type": "scatter",
        "mode": "lines",
        "showlegend": False,
        "x": [*lengths, *reversed(lengths)],
        "y": [*(point["p90"] for point in curve), *(point["p10"] for point in reversed(curve))],
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.18,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": lengths,
        "y": [point["nominal"] for point in curve],
        "customdata": texts,
        "hovertemplate": hover.TEMPLATE,
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "symbol": MARKERS[index % len(MARKERS)], "size": 8},
    }
    return [ribbon, line]


def _lengths_figure(traces: list[dict[str, Any]], found: Lengths, title: str, theme: Theme, **layout: Any) -> Figure:
    ticks = list(found.lengths)[::_TICKS]
    own = {"type": "line", "x0": found.own, "x1": found.own, "yref": "paper", "y0": 0, "y1": 1}
    shapes = [own | {"line": {"color": theme.emphasis, "width": 1.5, "dash": "dash"}}, *layout.pop("shapes", [])]
    return figure(
        traces,
        theme,
        height=_HEIGHT,
        x_title="sequence length, tokens",
        y_title=title,
        legend=True,
        xaxis={"type": "log", "tickvals": ticks, "ticktext": [tokens(tick) for tick in ticks]},
        margin={"l": 62},
        shapes=shapes,
        **layout,
    )
