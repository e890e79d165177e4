"""Calibration: how well a measured profile predicts its own points, and what its kernels reach by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model import figures
from hyscale_model.errors import InputError
from hyscale_model.report.markup import Markup
from hyscale_model.report.units import NOTHING, percent, signed_percent
from hyscale_model.views.cards import Card, Choice, Upload, problem, sentences, table
from hyscale_model.views.page import Page

ALL = "all"


def build(page: Page) -> list[Card]:
    """Predicted over measured, rates by size of one family, and the errors of every family."""
    names = page.profiles.names() if page.profiles is not None else {}
    if page.profiles is None or not names:
        about = "No measured profile is here: hyscale calibrate measures your GPU, and one can be uploaded."
        return [Card(name="nothing", title="Calibration", about=about, choices=(_UPLOAD,), wide=True)]
    own = page.resolved.scenario.profile
    name = page.options.get("profile") or (own if own in names else next(iter(names)))
    choices = (Choice("profile", "Profile", names, name, clears="family"), _UPLOAD)
    try:
        found = page.profiles.compared(name)
    except InputError as error:
        said = (problem(error),)
        return [Card(name="calibrated", title="Predicted over measured", choices=choices, content=said, wide=True)]
    return _cards(found, name, own, choices, page)


_UPLOAD = Upload("profile", "Upload a profile (JSON)", ".json")


def _cards(
    found: Mapping[str, Any], name: str, own: str, choices: tuple[Choice | Upload, ...], page: Page
) -> list[Card]:
    points, families = found["points"], found["families"]
    counts = {family: sum(point["family"] == family for point in points) for family in families}
    family = page.options.get("family", ALL)
    family = family if counts.get(family) else ALL
    shown = [point for point in points if family in (ALL, point["family"])]
    drawn = max(counts, key=lambda each: counts[each]) if family == ALL else family
    source = f"{found['name']} on {found['gpu']}"
    offered = {ALL: "all"} | {each: each for each, count in counts.items() if count}
    cards = [
        Card(
            name="calibrated",
            title="Predicted over measured",
            about=f"{_told(found, name, own)} Bands are 5 and 10 % around equal.",
            choices=(*choices, Choice("family", "Kernels", offered, family)),
            figure=figures.predicted_over_measured(shown, source, page.theme),
            content=(sentences(_held_out(found, family)),),
            wide=True,
        )
    ]
    if drawn in found["curves"]:
        cards.append(
            Card(
                name="rates",
                title=f"What {drawn} reaches by size",
                about="The law at the mix of work of a middling point, whole turns of the SMs left out. Shaded are "
                "sizes that were measured; hollow points were held out.",
                figure=figures.rate_over_size(
                    [point for point in points if point["family"] == drawn],
                    found["curves"][drawn],
                    found["peaks"],
                    source,
                    page.theme,
                ),
                wide=True,
            )
        )
    return [
        *cards,
        Card(
            name="calibrated-families",
            title="Errors by family",
            about="Of the time of one kernel; an interval of 80 % should hold 80 % of the points that were held out.",
            content=(_table(families),),
            csv="families",
            wide=True,
        ),
    ]


def _told(found: Mapping[str, Any], name: str, own: str) -> str:
    failed = f", {found['failed']} failed" if found["failed"] else ""
    used = "" if name == own else f" This scenario predicts with {own}."
    return f"{found['measured']} points on {'; '.join(dict.fromkeys(found['machines']))}{failed}.{used}"


def _held_out(found: Mapping[str, Any], family: str) -> list[str]:
    """The errors of what was held out, and why families have no law."""
    entry = found["held_out"] if family == ALL else found["families"][family]["held_out"]
    texts = []
    if entry["n"]:
        worst = entry["worst_id"].replace(",", ", ")
        texts.append(
            f"{entry['n']} points were held out: median error {percent(entry['median'])}, 95th percentile "
            f"{percent(entry['p95'])}, worst {signed_percent(entry['worst'])} ({worst}); the interval "
            f"holds {percent(entry['coverage'])}."
        )
    return [*texts, *(f"Not fitted: {name}: {reason}." for name, reason in found["unfitted"].items())]


def _table(families: Mapping[str, Any]) -> Markup:
    rows = [[name, *_row(entry)] for name, entry in families.items()]
    head = ["family", "fitted to", "held out", "median", "95th", "worst", "inside", "80 % is within"]
    return table("families", head, rows)


def _row(entry: Mapping[str, Any]) -> Sequence[str]:
    held = entry["held_out"]
    errors = (
        [percent(held["median"]), percent(held["p95"]), signed_percent(held["worst"]), percent(held["coverage"])]
        if held["n"]
        else [NOTHING] * 4
    )
    return [str(entry["fit"]), str(held["n"]), *errors, f"±{percent(entry['spread'])}"]
