"""Sweep and search: results over one field and over two, and the front of time against memory of all layouts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from hyscale_model import catalog, figures
from hyscale_model.batch import value_at
from hyscale_model.errors import InputError
from hyscale_model.figures.hover import origin_text
from hyscale_model.figures.sweeps import METRICS, Metric
from hyscale_model.report.fields import label_of
from hyscale_model.report.markup import Markup, element
from hyscale_model.report.sweep import short_names
from hyscale_model.report.units import NOTHING, count, interval, or_nothing
from hyscale_model.scenario.fields import bounds, choices, field_type
from hyscale_model.scenario.scalars import resolve_plain, written
from hyscale_model.scenario.schema import Scenario
from hyscale_model.studies.sweep import Sweep
from hyscale_model.views.cards import Card, Choice, Typed, pending, problem, sentences, table
from hyscale_model.views.page import Page, Progress
from hyscale_model.views.search import searched

# Fields that are offered; any other one can be typed.
FIELDS = (
    "workload.sequence_length",
    "workload.global_batch_size",
    "layout.cp",
    "layout.ep",
    "layout.pp",
    "layout.vpp",
    "training.recompute",
    "training.index_precision",
    "training.moe_imbalance",
    "cluster.gpu",
    "cluster.nodes",
    "cluster.nic_gbit_per_gpu",
    "cluster.nic_efficiency",
    "cluster.alltoall_efficiency",
    "systems.*.table_rows",
)
USUAL = ("workload.sequence_length", "layout.cp")
# A figure with more points tells nothing, and somebody waits for it; the command line takes more.
MOST_POINTS = 2_000
# Powers of two beside the scenario's own value, and steps of what is no size.
_POWERS = range(-3, 3)
_STEPS = (0.5, 0.75, 1.0, 1.5, 2.0)
_REASONS = 3
# Enough for the interval that a cell tells of.
_DRAWS = 16
_ABOUT = "All else as in the scenario."
_REFERENCES = {"cluster.gpu": "gpus", "model": "models", "cluster": "clusters"}

Values = tuple[Any, ...]


def build(page: Page) -> list[Card]:
    """Lines over one field, a heat map over two, and the search."""
    return [_along(page), _over(page), searched(page)]


def _along(page: Page) -> Card:
    path, text = _chosen(page, "along", 0)
    metric = _metric(page)
    choices_ = (
        *_axis_choices(page, "along", "Over", path, text),
        Choice("metric", "Shown", {name: each.title for name, each in METRICS.items()}, metric),
    )
    card = Card(name="along", title="Over one field", about=_ABOUT, choices=choices_, wide=True)
    try:
        data = _swept(page, {path: _values(page, path, text)}, page.data["draws"])
    except InputError as error:
        return replace(card, content=(problem(error),))
    if isinstance(data, Progress):
        return replace(card, content=(pending(data),))
    return replace(
        card,
        about=f"{_ABOUT} Ribbons span 80 % of the draws; hollow marks do not fit, or may not.",
        figure=figures.curves(data, path, _title(path), metric, page.theme, _origins(page)),
        content=(sentences(_impossible(data)), _points(data, "sweep-along", METRICS)),
        csv="sweep-along",
    )


def _over(page: Page) -> Card:
    first, first_text = _chosen(page, "along", 0)
    second, second_text = _chosen(page, "across", 1)
    metric = _metric(page)
    system = page.option("system", page.data["systems"])
    choices_ = (
        *_axis_choices(page, "across", "And over", second, second_text),
        Choice("system", "System", {name: name for name in page.data["systems"]}, system),
    )
    about = f"{METRICS[metric].title}, nominal; ! does not fit, ? may not, an empty cell is not possible."
    card = Card(name="over", title="Over two fields", about=about, choices=choices_, wide=True)
    try:
        if first == second:
            raise InputError(f"{first} is swept already", field=second, expected="another field")
        axes = {first: _values(page, first, first_text), second: _values(page, second, second_text)}
        data = _swept(page, axes, _DRAWS)
    except InputError as error:
        return replace(card, content=(problem(error),))
    if isinstance(data, Progress):
        return replace(card, content=(pending(data),))
    origin = origin_text(page.data, f"systems.{system}")
    paths, titles = (first, second), (_title(first), _title(second))
    return replace(
        card,
        figure=figures.heat_map(data, paths, titles, metric, system, page.theme, origin),
        content=(sentences(_impossible(data)), _points(data, "sweep-over", (metric,))),
        csv="sweep-over",
    )


# Axes


def _chosen(page: Page, name: str, place: int) -> tuple[str, str]:
    """The field of an axis and the text of its values, empty for usual ones."""
    own = list(page.resolved.scenario.sweep)
    usual = own[place] if len(own) > place else next(path for path in USUAL[place:] if path not in own)
    path = page.options.get(name, "").strip() or usual
    return path, page.options.get(f"{name}-values", "")


def _metric(page: Page) -> str:
    """What is shown: the speed-up where systems are compared, unless the reader wants something else."""
    usual = "speedup" if page.data["speedup"] else "step_time_s"
    return page.options.get("metric", usual) if page.options.get("metric") in METRICS else usual


def _axis_choices(page: Page, name: str, label: str, path: str, text: str) -> tuple[Typed, Typed]:
    offered = {each: _title(each) for each in FIELDS}
    try:
        usual = ", ".join(map(written, _values(page, path, "")))
    except InputError:
        usual = ""
    return (
        Typed(name, label, path, "a field as --set takes it", options=offered, clears=f"{name}-values", wide=True),
        Typed(f"{name}-values", "values", text, "values, separated by commas", usual, wide=True),
    )


def _values(page: Page, path: str, text: str) -> Values:
    """Values of an axis: those that were typed, those of the scenario's own sweep, or usual ones.

    Raises:
        InputError: a value is none, or nothing is usual for the field.
    """
    scenario = page.resolved.scenario
    if text.strip():
        try:
            return tuple(dict.fromkeys(resolve_plain(part.strip()) for part in text.split(",") if part.strip()))
        except ValueError as error:
            raise InputError(str(error), field=path, expected="values, separated by commas") from None
    if path in scenario.sweep:
        return tuple(scenario.sweep[path])
    found = usual_values(scenario, path)
    if not found:
        raise InputError("no values are usual for this field", field=path, expected="values, separated by commas")
    return found


def usual_values(scenario: Scenario, path: str) -> Values:
    """Values around the scenario's own, or all choices; empty where neither is to be had.

    Raises:
        InputError: there is no such field.
    """
    if path in _REFERENCES:
        return catalog.names(_REFERENCES[path])
    names = [system.name for system in scenario.systems]
    accepts = field_type(path, names, scenario.model.model_type)
    own = value_at(scenario, path.replace("systems.*", f"systems.{names[-1]}"))
    named = choices(accepts.annotation)
    if named and not accepts.is_whole():
        return tuple(named)
    if isinstance(own, bool):
        return (False, True)
    limits = bounds(accepts.annotation)
    assumed = next((each for each in scenario.assumptions if each.path == path), None)
    if assumed is not None:
        low, high = assumed.range or (0.0, 0.0)
        return tuple(assumed.choices or (round(low + share * (high - low) / 4, 4) for share in range(5)))
    if isinstance(own, int):
        sized = (int(own * 2.0**power) for power in _POWERS)
        return tuple(dict.fromkeys(value for value in sized if value >= max(1, limits.get("ge", 1))))
    if isinstance(own, float):
        most = limits.get("le", float("inf"))
        return tuple(dict.fromkeys(min(most, round(own * step, 6)) for step in _STEPS))
    return (8192, 16384, 32768, 65536) if accepts.is_whole() else ()


def _swept(page: Page, axes: Mapping[str, Values], draws: int) -> Mapping[str, Any] | Progress:
    """The sweep over these axes alone.

    Raises:
        InputError: as ``hyscale sweep``.
    """
    text = json.dumps({path: list(values) for path, values in axes.items()})
    # A field that was set is not swept, unless it is set no longer.
    resolved = page.resolved.again([f"sweep={text}", "zip={}"], without=axes)
    asked = Sweep.of(resolved, draws, page.data["seed"], MOST_POINTS)
    return asked.collect() if page.study is None else page.study(f"sweep {text} {draws}", asked.collect)


def _title(path: str) -> str:
    return label_of(path.rpartition(".")[2])


def _origins(page: Page) -> dict[str, str]:
    return {name: origin_text(page.data, f"systems.{name}") for name in page.data["systems"]}


# Tables and sentences


def _impossible(data: Mapping[str, Any]) -> list[str]:
    """Why points are left out, the most frequent reasons first."""
    reasons = Counter(row["reason"] for row in data["rows"] if row["reason"])
    return [
        f"Not possible at {count(-(-number // len(data['systems'])))} of {count(data['points'])}: {reason}"
        for reason, number in reasons.most_common(_REASONS)
    ]


def _points(data: Mapping[str, Any], name: str, shown: Collection[str]) -> Markup:
    """Every point and system with some of the metrics."""
    paths = data["axes"]
    metrics = {key: metric for key, metric in METRICS.items() if key in shown}
    rows = [
        [
            *(written(row[path]) for path in paths),
            row["system"],
            *(cell for key, metric in metrics.items() for cell in _cells(row, key, metric)),
            row["verdict"].replace("_", " "),
            ", ".join(row["extrapolated"].split(";")) or NOTHING,
        ]
        for row in data["rows"]
    ]
    heads = ([metric.title.partition(",")[0], *(["80 %"] * metric.uncertain)] for metric in metrics.values())
    head = [*short_names(paths), "system", *(title for each in heads for title in each), "verdict", "extrapolated"]
    folded = table(name, head, rows, left=len(paths) + 1, folded="All points as a table")
    return element("div", folded, class_="tall")


def _cells(row: Mapping[str, Any], key: str, metric: Metric) -> list[str]:
    between = {end: row.get(f"{key}_{end}") for end in ("p10", "p90")}
    return [or_nothing(row[key], metric.show), *([interval(between, metric.show)] if metric.uncertain else [])]
