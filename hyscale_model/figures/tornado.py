"""Which unknown moves the speed-up most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.report.sensitivity import MOST_INPUTS
from hyscale_model.report.units import percent, ratio

_LESS, _MORE = "#D55E00", "#0072B2"
_HEIGHT = 34


def tornado(data: Mapping[str, Any], theme: Theme) -> Figure:
    """Each unknown alone from its lowest to its highest speed-up, all else nominal, the widest swing first.

    Args:
        data: the JSON of ``hyscale sensitivity``.
        theme: the look.
    """
    rows = data["inputs"][:MOST_INPUTS]
    nominal = data["nominal"]
    # On two lines, which leaves more of a narrow page to the bars.
    names = [row["input"].replace(".", ".<br>", 1) for row in rows]
    traces: list[dict[str, Any]] = []
    for label, colour, pick in (("less speed-up", _LESS, min), ("more speed-up", _MORE, max)):
        ends = [pick(row["settings"], key=lambda setting: setting["speedup"]) for row in rows]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "y": names,
                "base": [nominal] * len(names),
                "x": [end["speedup"] - nominal for end in ends],
                "text": [_written(end["value"]) for end in ends],
                "textposition": "outside",
                "cliponaxis": False,
                "customdata": [_hover(row, end, nominal) for row, end in zip(rows, ends, strict=True)],
                "hovertemplate": hover.TEMPLATE,
                "marker": {"color": colour, "line": {"color": theme.surface, "width": 1}},
            }
        )
    values = [setting["speedup"] for row in rows for setting in row["settings"]]
    # Room for the values at both ends.
    room = 0.3 * (max(values, default=nominal) - min(values, default=nominal)) or 0.05
    return figure(
        traces,
        theme,
        height=bars_height(len(names), each=_HEIGHT),
        x_title="speed-up, times as fast",
        legend=True,
        barmode="overlay",
        xaxis={"range": [min(values, default=nominal) - room, max(values, default=nominal) + room]},
        shapes=[
            {
                "type": "line",
                "x0": nominal,
                "x1": nominal,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.ink, "width": 1},
            }
        ],
        **named_rows(names),
    )


def _written(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _hover(row: Mapping[str, Any], end: Mapping[str, Any], nominal: float) -> str:
    kind = "assumed, drawn by the scenario" if row["kind"] == "assumption" else f"{row['kind']} of the profile"
    notes = (f"at nominal inputs {ratio(nominal)}", f"{percent(row['share'])} of all that is uncertain")
    title = f"{row['input']} = {_written(end['value'])}"
    return hover.number(title, end["speedup"], ratio, origin=kind, notes=notes)
