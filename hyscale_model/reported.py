"""Reported results beside predicted ones. A reported value never enters a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation
from hyscale_model.prediction import MEMORY_KINDS, TERMS
from hyscale_model.scenario.schema import Reported
from hyscale_model.summary import interval


def compare(
    reported: Sequence[Reported], data: Mapping[str, Any], named: Mapping[str, Evaluation]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of ``{id, metric, relation, reported, predicted, error, inside, floor, source, note}``, and warnings.

    A metric of a system that is not part of this prediction is left out, with a warning.
    """
    rows, warnings = [], []
    for index, item in enumerate(reported):
        missing = _missing_systems(item.metric, named)
        if missing:
            warnings.append(f"{item.id or item.metric} is not compared: {' and '.join(missing)} is not predicted here")
            continue
        predicted = predicted_metric(item.metric, data, named, f"reported.{index}.metric")
        if predicted is None:
            warnings.append(f"{item.id or item.metric} is not compared: {item.metric} has no value here")
            continue
        rows.append(
            {
                "id": item.id or item.metric,
                "metric": item.metric,
                "relation": item.relation,
                "reported": item.value,
                "predicted": predicted,
                "error": predicted["nominal"] / item.value - 1 if item.value else None,
                "inside": inside(item, predicted),
                "floor": _floor(item.metric, data),
                "source": item.source,
                "note": item.note,
            }
        )
    return rows, warnings


def _missing_systems(metric: str, named: Mapping[str, Evaluation]) -> list[str]:
    """Systems that a metric speaks of and that are in the catalogue, but not part of the prediction."""
    head, _, rest = metric.partition(".")
    if head == "systems":
        wanted = [rest.split(".")[0]]
    elif head in ("speedup", "speedup_by_term"):
        wanted = rest.split(".")[0].split("/")
    else:
        return []
    return [name for name in wanted if name not in named and name in catalog.names("systems")]


def _floor(metric: str, data: Mapping[str, Any]) -> float | None:
    """Lower bound of a time at the peaks of the GPU, where the metric is a term's time."""
    parts = metric.split(".")
    if len(parts) == 4 and parts[0] == "systems" and parts[2] == "time_s":
        return data["systems"].get(parts[1], {}).get("floor_s", {}).get(parts[3])
    return None


def inside(item: Reported, predicted: Mapping[str, float]) -> bool:
    """Whether the reported relation holds: the value lies in p10 to p90, or the bound holds at the median."""
    if item.relation == "at_most":
        return predicted["p50"] <= item.value
    if item.relation == "at_least":
        return predicted["p50"] >= item.value
    return predicted["p10"] <= item.value <= predicted["p90"]


def predicted_metric(
    metric: str, data: Mapping[str, Any], named: Mapping[str, Evaluation], field: str
) -> dict[str, float] | None:
    """The interval of a metric, a path in the JSON of a prediction.

    A term or kind of memory that a system does not have is 0; a ratio of it has no value, which is None.
    """
    parts = metric.split(".")
    if len(parts) == 4 and (parts[0], parts[2]) == ("systems", "time_s") and parts[1] in named and parts[3] in TERMS:
        return interval(named[parts[1]].step.term(parts[3]))
    if len(parts) == 3 and (parts[0], parts[2]) == ("systems", "model_flops_utilization") and parts[1] in named:
        nominal = data["systems"][parts[1]][parts[2]]
        seconds = named[parts[1]].step.seconds
        return None if nominal is None else interval(nominal * seconds[:, :1] / seconds)
    if len(parts) == 4 and parts[0] == "systems" and parts[2:] == ["memory", "peak_bytes"] and parts[1] in named:
        known: dict[str, float] = data["systems"][parts[1]]["memory"]["peak_interval_bytes"]
        return known
    node: Any = data
    for part in parts:
        if isinstance(node, Mapping) and part not in node and part in (*TERMS, *MEMORY_KINDS):
            return None if parts[0] == "speedup_by_term" else dict.fromkeys(("nominal", "p10", "p50", "p90"), 0.0)
        if not isinstance(node, Mapping) or part not in node:
            options = ", ".join(list(node)[:12]) if isinstance(node, Mapping) else "nothing below"
            raise InputError(f"no metric {metric} in the prediction: {part} is unknown", field=field, expected=options)
        node = node[part]
    if isinstance(node, Mapping) and {"nominal", "p10", "p50", "p90"} <= set(node):
        return {key: float(node[key]) for key in ("nominal", "p10", "p50", "p90")}
    if isinstance(node, (int, float)) and not isinstance(node, bool):
        return dict.fromkeys(("nominal", "p10", "p50", "p90"), float(node))
    raise InputError(
        f"metric {metric} is not a number", field=field, expected="a path that ends at a number or an interval"
    )
