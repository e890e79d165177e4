"""The derivation of one term of one system, as far as the engine can tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html
from dash.development.base_component import Component

from hyscale_model.dashboard.components import card, choice, table, tip, told
from hyscale_model.dashboard.views.page import Page
from hyscale_model.derivation import derive
from hyscale_model.prediction import TERMS
from hyscale_model.report.times import LIMITS, terms_of
from hyscale_model.report.units import NOTHING, count, or_nothing, seconds, significant

_HEAD = (
    "part",
    "phase",
    "runs",
    "TFLOP a run",
    "GB a run",
    "time a run",
    "in the step",
    "at the peaks",
    "limited by",
    "origin",
)


def derivation(page: Page) -> Component:
    """Choices of system and term, and what the term consists of."""
    systems = page.data["systems"]
    system = page.option("system", systems)
    terms = {term: term for term in terms_of(systems) if systems[system]["time_s"].get(term)}
    largest = max(terms, key=lambda term: systems[system]["time_s"][term])
    term = page.options.get("term", largest)
    term = term if term in terms else largest
    found = derive(page.answer.resolved, system, term)
    rows = [_row(part) for part in found["parts"]]
    listed = sum(part["runs"] * part["seconds"] for part in found["parts"])
    about = (
        f"{TERMS.get(term, term)}: {seconds(found['seconds'])} of {system}'s step on stage {found['stage']}, nominal."
    )
    return card(
        "derivation",
        "Derivation of a term",
        about,
        html.Div(
            [
                choice("system", "System", {name: name for name in systems}, system),
                choice("term", "Term", terms, term),
            ],
            className="choices",
        ),
        html.P(_closing(found, listed), className="about"),
        table(f"derivation-{term}", _HEAD, rows, left=2) if rows else None,
        wide=True,
    )


def _closing(found: Mapping[str, Any], listed: float) -> str:
    """What the sum of the listed parts leaves to say."""
    if found["closing"]:
        return f"{found['term']} is {found['closing']}."
    if not found["parts"]:
        return "It follows from other terms."
    difference = found["seconds"] - listed
    if abs(difference) <= 1e-6 * max(found["seconds"], listed):
        return f"The parts below, times their runs on that stage, sum to {seconds(listed)}."
    why = (
        "computation hides the rest of the time on the wire"
        if difference < 0
        else "the rest is computation slowed by transfers beside it, and transfers waiting for one another"
    )
    return f"The parts below sum to {seconds(listed)}; {why}."


def _row(part: Mapping[str, Any]) -> list[Any]:
    return [
        told(f"{part['block']}: {part['name']}", part["kind"]),
        part["phase"],
        count(part["runs"]),
        significant(part["flops"] / 1e12, 3) if part["flops"] else NOTHING,
        significant(part["bytes"] / 1e9, 3) if part["bytes"] else NOTHING,
        told(seconds(part["seconds"]), tip("nominal", f"origin: {part['origin']}, {part['detail']}")),
        seconds(part["runs"] * part["seconds"]),
        or_nothing(part["floor_s"], seconds),
        LIMITS.get(part["resource"], part["resource"]),
        told(part["origin"], part["detail"]),
    ]
