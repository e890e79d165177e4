"""The views of a page, one module each: from an answer to components."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dash.development.base_component import Component

from hyscale_model.dashboard.views import breakdown, evidence, memory, whatif
from hyscale_model.dashboard.views.page import Page


@dataclass(frozen=True, slots=True)
class View:
    """One view: its name for people, and what it shows of a page."""

    title: str
    build: Callable[[Page], list[Component]]


VIEWS: Mapping[str, View] = {
    "what-if": View("What-if", whatif.build),
    "breakdown": View("Breakdown", breakdown.build),
    "memory": View("Memory", memory.build),
    "evidence": View("Evidence", evidence.build),
}
FIRST = next(iter(VIEWS))

__all__ = ["FIRST", "VIEWS", "Page", "View"]
