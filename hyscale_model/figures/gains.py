"""Speed-ups with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.report.units import ratio


def speedups(data: Mapping[str, Any], theme: Theme, pinned: Mapping[str, Any] | None = None) -> Figure:
    """Every pair of systems: nominal speed-up and p10 to p90, the pinned one's beside it."""
    known = data.get("speedup") or {}
    before = (pinned.get("speedup") or {}) if pinned else {}
    pairs = list(dict.fromkeys([*known, *before]))
    names = {pair: pair.replace("/", "<br>over ") for pair in pairs}
    traces = []
    if before:
        traces.append(_dots(before, names, pinned or {}, "pinned", theme.emphasis, "line-ns"))
    traces.append(_dots(known, names, data, "now", theme.ink, "circle"))
    return figure(
        traces,
        theme,
        height=bars_height(len(pairs)),
        x_title="speed-up, times as fast",
        legend=bool(before),
        **named_rows(list(names.values())),
        shapes=[
            {
                "type": "line",
                "x0": 1,
                "x1": 1,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.muted, "width": 1, "dash": "dot"},
            }
        ],
    )


def _dots(
    gains: Mapping[str, Any],
    names: Mapping[str, str],
    data: Mapping[str, Any],
    label: str,
    colour: str,
    symbol: str,
) -> dict[str, Any]:
    origin = hover.origin_text(data, "speedup")
    outline = {"width": 3 if symbol.startswith("line") else 0, "color": colour}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "y": [names[pair] for pair in gains],
        "x": [gain["nominal"] for gain in gains.values()],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [gain["p90"] - gain["nominal"] for gain in gains.values()],
            "arrayminus": [gain["nominal"] - gain["p10"] for gain in gains.values()],
            "color": colour,
            "thickness": 2,
            "width": 6,
        },
        "customdata": [
            hover.number(f"{label}: {pair.replace('/', ' over ')}", gain["nominal"], ratio, spread=gain, origin=origin)
            for pair, gain in gains.items()
        ],
        "hovertemplate": hover.TEMPLATE,
        "marker": {"color": colour, "size": 11, "symbol": symbol, "line": outline},
    }
