"""Communication: what computation waits for, and what runs hidden behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES
from hyscale_model.figures.style import TRANSPARENT, Figure, Theme, bars_height, figure, named_rows
from hyscale_model.prediction import TERMS
from hyscale_model.report.times import scale_of
from hyscale_model.report.units import finite, seconds

SUFFIX = "_communication_exposed"


def communication(data: Mapping[str, Any], theme: Theme) -> Figure:
    """Exposed (filled) and hidden (outlined) seconds of each parallel group, a bar for each system and group."""
    rows = communication_rows(data)
    longest = max((exposed + hidden for _, _, exposed, hidden in rows), default=0.0)
    factor, unit, _ = scale_of(longest)
    names = [f"{name}, {group.upper()}" for name, group, _, _ in rows]
    colour = FAMILIES["communication"][0]
    exposed_trace = {
        "type": "bar",
        "orientation": "h",
        "name": "exposed: computation waits",
        "y": names,
        "x": [exposed * factor for _, _, exposed, _ in rows],
        "customdata": [_exposed(name, group, data) for name, group, _, _ in rows],
        "hovertemplate": hover.TEMPLATE,
        "marker": {"color": colour, "line": {"color": colour, "width": 1}},
    }
    hidden_trace = {
        "type": "bar",
        "orientation": "h",
        "name": "hidden behind computation",
        "y": names,
        "x": [hidden * factor for _, _, _, hidden in rows],
        "customdata": [
            hover.number(
                f"{name}: {group.upper()}, hidden",
                hidden,
                seconds,
                origin=hover.origin_text(data, f"systems.{name}"),
                notes=("nominal; not part of the step's time",),
            )
            for name, group, _, hidden in rows
        ],
        "hovertemplate": hover.TEMPLATE,
        "marker": {
            "color": TRANSPARENT,
            "pattern": {"shape": "/", "fgcolor": colour, "bgcolor": TRANSPARENT, "size": 6, "solidity": 0.15},
            "line": {"color": colour, "width": 1},
        },
    }
    return figure(
        [exposed_trace, hidden_trace],
        theme,
        height=bars_height(len(rows), each=26),
        x_title=f"communication in a step, {unit}",
        legend=True,
        barmode="stack",
        **named_rows(names),
    )


def communication_rows(data: Mapping[str, Any]) -> list[tuple[str, str, float, float]]:
    """(system, group, exposed seconds, hidden seconds) of every group that any system uses."""
    groups: dict[str, None] = {}
    for system in data["systems"].values():
        groups |= {term.removesuffix(SUFFIX): None for term in system["time_s"] if term.endswith(SUFFIX)}
        groups |= dict.fromkeys(name for name, value in system.get("hidden_communication_s", {}).items() if value)
    return [
        (
            name,
            group,
            finite(system["time_s"].get(group + SUFFIX, 0.0)),
            finite(system.get("hidden_communication_s", {}).get(group, 0.0)),
        )
        for name, system in data["systems"].items()
        for group in groups
    ]


def _exposed(name: str, group: str, data: Mapping[str, Any]) -> str:
    system, term = data["systems"][name], group + SUFFIX
    spread = system["terms"].get(term) or {}
    return hover.number(
        f"{name}: {group.upper()}, exposed",
        system["time_s"].get(term, 0.0),
        seconds,
        spread=spread,
        origin=spread.get("origin"),
        notes=(TERMS.get(term, ""),),
    )
