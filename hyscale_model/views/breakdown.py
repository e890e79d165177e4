"""Breakdown: where the time of a step goes, what each technique brings, and what stands behind a term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.figures.communication import communication_rows
from hyscale_model.prediction import TERMS
from hyscale_model.report.canvas import noun
from hyscale_model.report.markup import Markup
from hyscale_model.report.times import LIMITS, shares, terms_of
from hyscale_model.report.units import NOTHING, interval, percent, seconds
from hyscale_model.views.cards import Card, table, tip, told
from hyscale_model.views.derivation import derivation
from hyscale_model.views.page import Page


def build(page: Page) -> list[Card]:
    """Terms of every system stacked, as a table, the derivation of one, the ablation, and communication."""
    data, theme = page.data, page.theme
    cards = [
        Card(
            name="breakdown",
            title=f"Where the time of a {noun(data)} goes",
            about="One segment a term; hatched: recomputation, crossed: backward. Click one for its derivation.",
            figure=figures.step_breakdown(data, theme),
            content=(_terms(data),),
            csv="terms",
            wide=True,
        ),
        derivation(page),
    ]
    if data["ablation"]:
        cards.append(
            Card(
                name="ablation",
                title="From the baseline to the last system",
                about="One change at a time, what removes most work first; green saves time, red costs some.",
                figure=figures.ablation(data, theme),
                wide=True,
            )
        )
    if any(exposed or hidden for _, _, exposed, hidden in communication_rows(data)):
        cards.append(
            Card(
                name="communication",
                title="Communication, exposed and hidden",
                about="What computation waits for, and what runs beside it, by parallel group.",
                figure=figures.communication(data, theme),
                wide=True,
            )
        )
    return cards


def _terms(data: Mapping[str, Any]) -> Markup:
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
