"""Where the time of a step goes: every term of every system, stacked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES, hatch, term_colour, term_family
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.prediction import TERMS
from hyscale_model.report.times import LIMITS, scale_of, shares, terms_of
from hyscale_model.report.units import finite, percent, seconds


def step_breakdown(data: Mapping[str, Any], theme: Theme) -> Figure:
    """One bar a system, one segment a term; the segments of a bar sum to the step's nominal time.

    Families of terms have a colour each, recomputation and backward a hatching.
    """
    systems = data["systems"]
    names = list(systems)
    factor, unit, _ = scale_of(max(finite(system["step_time_s"]["nominal"]) for system in systems.values()))
    traces = []
    seen: set[str] = set()
    order = list(FAMILIES)
    # Families side by side: what belongs together forms one block of one colour.
    for term in sorted(terms_of(systems), key=lambda term: order.index(term_family(term))):
        values = {name: finite(systems[name]["time_s"].get(term, 0.0)) for name in names}
        values = {name: value for name, value in values.items() if value}
        if not values:
            continue
        family = term_family(term)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": FAMILIES[family][1],
                "legendgroup": family,
                "showlegend": family not in seen,
                "y": list(values),
                "x": [value * factor for value in values.values()],
                # With what a click on a segment is about.
                "customdata": [[_hover(term, name, systems[name]), name, term] for name in values],
                "hovertemplate": "%{customdata[0]}" + hover.ONLY,
                "marker": {
                    "color": term_colour(term),
                    "pattern": {"shape": hatch(term), "size": 6, "solidity": 0.2, "fgcolor": theme.surface},
                    "line": {"color": theme.surface, "width": 1},
                },
            }
        )
        seen.add(family)
    return figure(
        traces,
        theme,
        height=bars_height(len(names)),
        x_title=f"time of a step, {unit}",
        legend=True,
        barmode="stack",
        **named_rows(names),
    )


def _hover(term: str, name: str, system: Mapping[str, Any]) -> str:
    spread = (system.get("terms") or {}).get(term) or {}
    bound = (system.get("bound_by") or {}).get(term)
    floor = (system.get("floor_s") or {}).get(term)
    notes = (
        TERMS.get(term, ""),
        f"{percent(shares(system['time_s']).get(term, 0.0))} of the step",
        f"limited by {LIMITS.get(bound, bound)}" if bound else "",
        f"at the GPU's peaks: {seconds(floor)}" if floor else "",
    )
    return hover.number(
        f"{name}: {term}",
        system["time_s"].get(term, 0.0),
        seconds,
        spread=spread,
        origin=spread.get("origin"),
        notes=notes,
    )
