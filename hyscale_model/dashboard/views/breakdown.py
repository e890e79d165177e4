"""Breakdown: where the time of a step goes, what each technique brings, and what stands behind a term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash.development.base_component import Component

from hyscale_model import figures
from hyscale_model.dashboard.components import card, table, tip, told
from hyscale_model.dashboard.views.derivation import derivation
from hyscale_model.dashboard.views.page import Page
from hyscale_model.figures.communication import communication_rows
from hyscale_model.prediction import TERMS
from hyscale_model.report.canvas import noun
from hyscale_model.report.times import LIMITS, shares, terms_of
from hyscale_model.report.units import NOTHING, interval, percent, seconds


def build(page: Page) -> list[Component]:
    """Terms of every system stacked, as a table, the derivation of one, the ablation, and communication."""
    data, theme = page.data, page.theme
    what = noun(data)
    parts = [
        card(
            "breakdown",
            f"Where the time of a {what} goes",
            "One segment a term; hatched: recomputation, crossed: backward. Click one for its derivation.",
            _terms(data),
            figure=figures.step_breakdown(data, theme),
            csv="terms",
            picked=True,
            wide=True,
        ),
        derivation(page),
    ]
    if data["ablation"]:
        parts.append(
            card(
                "ablation",
                "From the baseline to the last system",
                "One change at a time, what removes most work first; green saves time, red costs some.",
                figure=figures.ablation(data, theme),
                wide=True,
            )
        )
    if any(exposed or hidden for _, _, exposed, hidden in communication_rows(data)):
        parts.append(
            card(
                "communication",
                "Communication, exposed and hidden",
                "What computation waits for, and what runs beside it, by parallel group.",
                figure=figures.communication(data, theme),
                wide=True,
            )
        )
    return parts


def _terms(data: Mapping[str, Any]) -> Component:
    systems = data["systems"]
    rows = []
    for term in terms_of(systems):
        if any(system["time_s"].get(term) for system in systems.values()):
            rows.append([term, *(cell for system in systems.values() for cell in _cells(term, system))])
    head = ["term", *(title for name in systems for title in (name, "share"))]
    return table("terms", head, rows, folded="All terms as a table")


def _cells(term: str, system: Mapping[str, Any]) -> tuple[Any, Any]:
    value = system["time_s"].get(term)
    if value is None:
        return NOTHING, NOTHING
    spread = system["terms"].get(term) or {}
    bound = (system.get("bound_by") or {}).get(term)
    lines = tip(
        TERMS.get(term, ""),
        f"80 % of the draws: {interval(spread, seconds)}",
        f"origin: {spread.get('origin', '')}",
        f"limited by {LIMITS.get(bound, bound)}" if bound else "",
    )
    return told(seconds(value), lines), percent(shares(system["time_s"])[term])
