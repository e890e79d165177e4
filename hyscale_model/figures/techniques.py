"""What each technique brings, whatever the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.report.units import NOTHING, interval, or_nothing, percent, ratio


def techniques(data: Mapping[str, Any], theme: Theme) -> Figure:
    """Gain of each change: averaged over all orders with p10 to p90, alone, and on top of all others.

    Args:
        data: the JSON of ``hyscale decide``.
        theme: the look.
    """
    rows = data["techniques"]
    names = [row["change"].replace(": ", ":<br>", 1) for row in rows]
    texts = [_hover(row) for row in rows]
    average = {
        "type": "scatter",
        "mode": "markers",
        "name": "average of all orders, 80 % of the draws",
        "y": names,
        "x": [row["average"]["nominal"] for row in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, row["average"]["p90"] - row["average"]["nominal"]) for row in rows],
            "arrayminus": [max(0.0, row["average"]["nominal"] - row["average"]["p10"]) for row in rows],
            "color": theme.ink,
            "thickness": 2,
            "width": 6,
        },
        "customdata": texts,
        "hovertemplate": hover.TEMPLATE,
        "marker": {"color": theme.ink, "size": 11},
    }
    return figure(
        [
            average,
            _marks("alone", "alone", data, names, texts, "triangle-up", "#0072B2"),
            _marks("last", "on top of all others", data, names, texts, "diamond", "#D55E00"),
        ],
        theme,
        height=bars_height(len(names)),
        x_title="gain of a change, times as fast",
        legend=True,
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
        **named_rows(names),
    )


def _marks(
    key: str, label: str, data: Mapping[str, Any], names: list[str], texts: list[str], symbol: str, colour: str
) -> dict[str, Any]:
    known = [index for index, row in enumerate(data["techniques"]) if row[key] is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "y": [names[index] for index in known],
        "x": [data["techniques"][index][key] for index in known],
        "customdata": [texts[index] for index in known],
        "hovertemplate": hover.TEMPLATE,
        "marker": {"color": colour, "size": 10, "symbol": symbol},
    }


def _hover(row: Mapping[str, Any]) -> str:
    share = or_nothing(row["share"], percent)
    notes = (
        f"alone {or_nothing(row['alone'], ratio)}, on top of all others {or_nothing(row['last'], ratio)}",
        f"in any order {ratio(row['lowest'])} to {ratio(row['highest'])}",
        f"{share} of the gain" if share != NOTHING else "",
        f"80 % of the draws: {interval(row['average'], ratio)}",
    )
    origin = "computed; as certain as the least certain term"
    return hover.number(f"{row['change']}, average", row["average"]["nominal"], ratio, origin=origin, notes=notes)
