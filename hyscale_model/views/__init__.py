"""Views of a prediction, one module each: from its JSON to cards, for the dashboard and the HTML report alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hyscale_model.views import (
    breakdown,
    calibration,
    decision,
    evidence,
    memory,
    network,
    selection,
    sensitivity,
    sweep,
    timeline,
    whatif,
)
from hyscale_model.views.cards import Card
from hyscale_model.views.page import Page, Progress


@dataclass(frozen=True, slots=True)
class View:
    """One view: its name for people, and what it shows of a page."""

    title: str
    build: Callable[[Page], list[Card]]


VIEWS: Mapping[str, View] = {
    "what-if": View("What-if", whatif.build),
    "breakdown": View("Breakdown", breakdown.build),
    "memory": View("Memory", memory.build),
    "selection": View("Selection", selection.build),
    "network": View("Network", network.build),
    "timeline": View("Timeline", timeline.build),
    "sweep": View("Sweep and search", sweep.build),
    "sensitivity": View("Sensitivity", sensitivity.build),
    "decision": View("Decision", decision.build),
    "calibration": View("Calibration", calibration.build),
    "evidence": View("Evidence", evidence.build),
}
FIRST = next(iter(VIEWS))

__all__ = ["FIRST", "VIEWS", "Card", "Page", "Progress", "View"]
