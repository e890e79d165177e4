"""Evidence: predictions beside what others report, and where every input comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hyscale_model import figures
from hyscale_model.checks import check, offered
from hyscale_model.checks.training import GROUP as TRAINING
from hyscale_model.prediction import ORIGINS
from hyscale_model.report.compared import RELATIONS
from hyscale_model.report.markup import element
from hyscale_model.report.times import terms_of
from hyscale_model.report.units import NOTHING, interval, or_nothing, percent, signed_percent, unit_of
from hyscale_model.scenario import leaves
from hyscale_model.scenario.scalars import written
from hyscale_model.views.cards import Card, Choice, origin_mark, table, tip, told
from hyscale_model.views.page import Page
from hyscale_model.views.training import training_cards


def build(page: Page) -> list[Card]:
    """The scenario's own reported results, a group of published ones, and the resolved scenario."""
    data = page.data
    cards: list[Card] = []
    if data["reported"]:
        about = "A reported value never enters a prediction. The band is 10 % around equal."
        cards.append(_compared("reported", "Reported for this scenario", about, data["reported"], page))
    group = page.options.get("group", "")
    groups = offered()
    group = group if group in groups else groups[0]
    checked = _check(group)
    about = f"What hyscale check --group {group} compares: {_summary(checked['summary'].get(group) or {})}"
    choices = [Choice("group", "Group", {name: name for name in groups}, group)] if len(groups) > 1 else []
    cards.append(_compared("check", f"Check: {group}", about, checked["rows"], page, *choices))
    return [*cards, *_training(page), _origins(page), _assumed(data)]


@lru_cache(maxsize=8)
def _check(group: str) -> dict[str, Any]:
    return check((group,))


def _summary(summary: Mapping[str, Any]) -> str:
    error, bias = or_nothing(summary.get("mape"), percent), or_nothing(summary.get("bias"), signed_percent)
    coverage = or_nothing(summary.get("coverage"), percent)
    return f"{summary.get('n', 0)} rows, mean error {error}, bias {bias}, {coverage} inside the interval."


_JUDGED: Mapping[bool | None, str] = {True: "inside", False: element("strong", "OUTSIDE"), None: NOTHING}


def _compared(
    name: str, title: str, about: str, rows: Sequence[Mapping[str, Any]], page: Page, *choices: Choice
) -> Card:
    cells = []
    for row in rows:
        show = unit_of(str(row["metric"]))
        predicted = row["predicted"]
        error = row["error"] if row["relation"] == "equal" else None
        source = tip(str(row.get("source") or ""), str(row.get("note") or ""))
        cells.append(
            [
                row["id"],
                row["metric"],
                told(RELATIONS.get(str(row["relation"]), "") + show(row["reported"]), source),
                told(show(predicted["nominal"]), tip(f"80 % of the draws: {interval(predicted, show)}")),
                interval(predicted, show),
                or_nothing(error, signed_percent),
                _JUDGED[row["inside"]],
            ]
        )
    head = ["", "metric", "reported", "predicted", "p10 to p90", "error", "80 %"]
    return Card(
        name=name,
        title=title,
        about=about,
        choices=choices,
        figure=figures.checked(rows, page.theme),
        content=(element("div", table(name, head, cells, left=2), class_="tall"),),
        csv=name,
        wide=True,
    )


def _training(page: Page) -> list[Card]:
    """Systems trained side by side, if that is recorded, and what their steps take."""
    cards = training_cards(page.theme)
    if not cards:
        return []
    about = "Steps on documents as long as the sequence, and what the model says of the transformer that was trained."
    return [*cards, _compared("training-steps", "What its steps take", about, _check(TRAINING)["rows"], page)]


def _origins(page: Page) -> Card:
    resolved = page.resolved
    rows = []
    counts = dict.fromkeys(ORIGINS, 0)
    for path, value in leaves(resolved.scenario):
        origin = resolved.origins[path]
        counts[origin.origin] += 1
        rows.append([path, written(value) or NOTHING, origin_mark(origin.origin), origin.detail])
    head = ["field", "value", "origin", "source or reason"]
    told_counts = ", ".join(f"{count} {origin}" for origin, count in counts.items() if count)
    return Card(
        name="origins",
        title="The resolved scenario",
        about=f"Every input with its origin: {told_counts}.",
        content=(element("div", table("scenario", head, rows, left=4), class_="long"),),
        csv="scenario",
        wide=True,
    )


def _assumed(data: Mapping[str, Any]) -> Card:
    """Origins of the results by system and term."""
    systems = data["systems"]
    rows = [
        [term, *(_mark((system["terms"].get(term) or {}).get("origin")) for system in systems.values())]
        for term in terms_of(systems)
    ]
    return Card(
        name="term-origins",
        title="Origins of the results",
        about="A term is as certain as its least certain part.",
        content=(table("term-origins", ["term", *systems], rows, left=1 + len(systems)),),
        csv="term-origins",
        wide=True,
    )


def _mark(origin: str | None) -> Any:
    return NOTHING if origin is None else origin_mark(origin)
