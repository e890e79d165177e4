"""Evidence: predictions beside what others report, and where every input comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from dash import html
from dash.development.base_component import Component

from hyscale_model import figures
from hyscale_model.checks import GROUPS, check
from hyscale_model.dashboard.components import card, choice, table, tip, told
from hyscale_model.dashboard.controls import text_of
from hyscale_model.dashboard.views.page import Page
from hyscale_model.prediction import ORIGINS
from hyscale_model.report.compared import RELATIONS
from hyscale_model.report.times import terms_of
from hyscale_model.report.units import NOTHING, interval, or_nothing, percent, signed_percent, unit_of
from hyscale_model.scenario import leaves


def build(page: Page) -> list[Component]:
    """The scenario's own reported results, a group of published ones, and the resolved scenario."""
    data = page.data
    parts: list[Component] = []
    if data["reported"]:
        parts.append(
            _compared(
                "reported",
                "Reported for this scenario",
                "A reported value never enters a prediction. The band is 10 % around equal.",
                data["reported"],
                page,
            )
        )
    group = page.option("group", list(GROUPS))
    checked = _check(group)
    if len(GROUPS) > 1:
        parts.append(html.Div(choice("group", "Check of", {name: name for name in GROUPS}, group), className="choices"))
    parts.append(
        _compared(
            f"check-{group}",
            f"Check: {group}",
            f"What hyscale check --group {group} compares: {_summary(checked['summary'].get(group) or {})}",
            checked["rows"],
            page,
        )
    )
    parts += [_origins(page), _assumed(data)]
    return parts


@lru_cache(maxsize=8)
def _check(group: str) -> dict[str, Any]:
    return check((group,))


def _summary(summary: Mapping[str, Any]) -> str:
    error, bias = or_nothing(summary.get("mape"), percent), or_nothing(summary.get("bias"), signed_percent)
    coverage = or_nothing(summary.get("coverage"), percent)
    return f"{summary.get('n', 0)} rows, mean error {error}, bias {bias}, {coverage} inside the interval."


def _compared(name: str, title: str, about: str, rows: Sequence[Mapping[str, Any]], page: Page) -> Component:
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
                "inside" if row["inside"] else html.Strong("OUTSIDE"),
            ]
        )
    head = ["", "metric", "reported", "predicted", "p10 to p90", "error", "80 %"]
    figure = figures.checked(rows, page.theme)
    return card(name, title, about, table(name, head, cells, left=2), figure=figure, csv=name, wide=True)


def _origins(page: Page) -> Component:
    resolved = page.answer.resolved
    rows = []
    counts = dict.fromkeys(ORIGINS, 0)
    for path, value in leaves(resolved.scenario):
        origin = resolved.origins[path]
        counts[origin.origin] += 1
        rows.append([path, text_of(value) or NOTHING, _mark(origin.origin), origin.detail])
    told_counts = ", ".join(f"{count} {origin}" for origin, count in counts.items() if count)
    return card(
        "origins",
        "The resolved scenario",
        f"Every input with its origin: {told_counts}.",
        html.Div(table("scenario", ["field", "value", "origin", "source or reason"], rows, left=4), className="long"),
        csv="scenario",
        wide=True,
    )


def _assumed(data: Mapping[str, Any]) -> Component:
    """Origins of the results by system and term."""
    systems = data["systems"]
    rows = [
        [term, *(_mark((system["terms"].get(term) or {}).get("origin")) for system in systems.values())]
        for term in terms_of(systems)
    ]
    return card(
        "term-origins",
        "Origins of the results",
        "A term is as certain as its least certain part.",
        table("term-origins", ["term", *systems], rows, left=1 + len(systems)),
        csv="term-origins",
        wide=True,
    )


def _mark(origin: str | None) -> Any:
    return NOTHING if origin is None else html.Span(origin, className=f"origin {origin}")
