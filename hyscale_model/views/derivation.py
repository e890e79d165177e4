"""The derivation of one term of one system, as far as the engine can tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.derivation import CLOSING, derive
from hyscale_model.prediction import TERMS
from hyscale_model.report.markup import element
from hyscale_model.report.times import LIMITS, terms_of
from hyscale_model.report.units import NOTHING, count, or_nothing, seconds, significant
from hyscale_model.views.cards import Card, Choice, table, tip, told
from hyscale_model.views.page import Page

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


def derivation(page: Page) -> Card:
    """Choices of system and term, and what the term consists of."""
    systems = page.data["systems"]
    system = page.option("system", systems)
    terms = {term: term for term in terms_of(systems) if systems[system]["time_s"].get(term)}
    explained = [term for term in terms if term not in CLOSING] or list(terms)
    largest = max(explained, key=lambda term: systems[system]["time_s"][term])
    term = page.options.get("term", largest)
    term = term if term in terms else largest
    found = derive(page.resolved, system, term)
    rows = [_row(part) for part in found["parts"]]
    listed = sum(part["runs"] * part["seconds"] for part in found["parts"])
    about = (
        f"{TERMS.get(term, term)}: {seconds(found['seconds'])} of {system}'s step on stage {found['stage']}, nominal."
    )
    return Card(
        name="derivation",
        title="Derivation of a term",
        about=about,
        choices=(
            Choice("system", "System", {name: name for name in systems}, system),
            Choice("term", "Term", terms, term),
        ),
        content=(
            element("p", _closing(found, listed), class_="about"),
            table("derivation", _HEAD, rows, left=2) if rows else None,
        ),
        csv="derivation" if rows else None,
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
