"""Compare predictions with reported results, by group and for the user's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyscale_model import catalog
from hyscale_model.checks import published
from hyscale_model.checks.bars import bar
from hyscale_model.checks.collectives import BAR, collective_rows
from hyscale_model.checks.kernels import GROUP as KERNELS
from hyscale_model.checks.kernels import kernel_rows, kernel_summary
from hyscale_model.checks.layers import GROUP as LAYERS
from hyscale_model.checks.layers import layer_rows, layer_summary
from hyscale_model.checks.layers_across import shared_bars, shared_rows, unmeasured
from hyscale_model.checks.paper import PAPER, grid
from hyscale_model.checks.training import GROUP as TRAINING
from hyscale_model.checks.training import must_be_recorded, recorded, training_rows, training_summary
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario.resolve import read_scenario

# More than a prediction takes, since coverage of an interval is what is checked.
DRAWS = 256
# Groups of published results; what each holds is the affair of its own module.
GROUPS = ("paper", "memory", "runs", "collectives", KERNELS, LAYERS, TRAINING)


def offered() -> tuple[str, ...]:
    """Groups that have something to compare."""
    return tuple(group for group in GROUPS if group != TRAINING or recorded())


def check(
    groups: Sequence[str] = (),
    files: Sequence[str] = (),
    *,
    profile: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Any]:
    """Predict what others report and compare.

    Args:
        groups: names of ``GROUPS``; none and no files: all groups.
        files: the user's own scenarios with a ``reported`` block.
        profile: rates to use instead of each scenario's own.
        draws: samples behind each interval.
        seed: of the draws.

    Returns:
        ``{"rows": [...], "summary": {group: ...}, "scopes": [...], "grid": ..., "unmeasured": [...]}``; the grid only
        with the group ``paper``, scopes where one layer is predicted, with the group ``layers`` a sentence for each
        part of it that no machine has measured. A summary has the bars of its group, and summaries of its splits and
        series under ``parts``.

    Raises:
        InputError: an unknown group, ``training`` where none is recorded, or a file without anything reported.
    """
    unknown = [group for group in groups if group not in GROUPS]
    if unknown:
        raise InputError(f"no check group {unknown[0]}", field="--group", expected=" or ".join(GROUPS))
    overrides = [] if profile is None else [f"profile={profile}"]
    chosen = list(groups) or ([] if files else list(GROUPS))
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {"rows": rows, "summary": {}, "scopes": []}
    if KERNELS in chosen:
        rows += kernel_rows(profile, draws, seed)
    if LAYERS in chosen:
        rows += layer_rows(profile, draws, seed)
        rows += shared_rows(profile, draws, seed)
        result["unmeasured"] = unmeasured()
    if TRAINING in chosen:
        if TRAINING in groups:
            must_be_recorded()
        rows += training_rows(profile, draws, seed)
    if "paper" in chosen:
        for name in PAPER:
            resolved = read_scenario(name, overrides=overrides, text=catalog.path("published", name).read_bytes())
            data = predict(resolved, draws=draws, seed=seed).data
            rows += _rows(data, "paper", "paper", name)
            result["scopes"] += _scopes(data)
            if {"P1", "P4"} <= {row.id for row in resolved.scenario.reported}:
                result["grid"] = grid(resolved.scenario)
    if {"memory", "runs"} & set(chosen):
        rows += _published_rows(chosen, overrides, draws, seed)
    if "collectives" in chosen:
        rows += collective_rows()
    for file in files:
        resolved = read_scenario(file, overrides=overrides)
        if not resolved.scenario.reported:
            raise InputError(
                "nothing to check", file=file, field="reported", expected="a list of {metric, value, source}"
            )
        data = predict(resolved, draws=draws, seed=seed).data
        rows += _rows(data, "user", "user", file)
        result["scopes"] += _scopes(data)
    for group in dict.fromkeys(row["group"] for row in rows):
        result["summary"][group] = _group_summary(group, [row for row in rows if row["group"] == group])
    return result


def _published_rows(groups: Sequence[str], overrides: Sequence[str], draws: int, seed: int) -> list[dict[str, Any]]:
    """Rows of the published runs that belong to some of ``groups``, in the order of the groups."""
    found = []
    for name in published.published_names():
        resolved = read_scenario(name, overrides=overrides, text=catalog.path("published", name).read_bytes())
        scenario = resolved.scenario
        if not any(published.group_of(item.metric) in groups for item in scenario.reported):
            continue
        family = published.family_of(scenario)
        data = predict(resolved, draws=draws, seed=seed).data
        for row in _rows(data, "", published.split_of(family), family):
            row["group"] = published.group_of(row["metric"])
            row["series"] = published.series_of(name)
            if row["relation"] == "equal" and row["predicted"]["p10"] == row["predicted"]["p90"]:
                # A point has no inside.
                row["inside"] = None
            if row["relation"] != "equal":
                row["split"] = "lower_bound"
            if row["group"] in groups:
                found.append(row)
    return sorted(found, key=lambda row: groups.index(row["group"]))


def _group_summary(group: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    result = summary(rows)
    if group == KERNELS:
        return result | kernel_summary(rows)
    if group == LAYERS:
        found = layer_summary(rows)
        found["bars"] += shared_bars(rows)
        return result | found
    if group == TRAINING:
        return result | training_summary(rows)
    if "series" not in rows[0]:
        return result
    parts = dict.fromkeys([*(row["split"] for row in rows), *(row["series"] for row in rows)])
    result["parts"] = {part: summary([row for row in rows if part in (row["split"], row["series"])]) for part in parts}
    result["bars"] = published.bars_of(group, rows, summary)
    if group == "collectives":
        median = float(np.median([abs(row["error"]) for row in rows]))
        result["bars"].append(bar("median error", median, at_most=BAR))
    return result


def _scopes(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reported speed-ups of a layer beside what they would be under every meaning of the layer."""
    found = []
    for row in data["reported"]:
        head, _, pair = row["metric"].partition(".")
        for variant in data.get("scope_variants", ()) if head == "speedup" else ():
            found.append(
                {
                    "id": row["id"],
                    "include": variant["include"],
                    "answer": variant["answer"],
                    "reported": row["reported"],
                    "predicted": variant["speedup"][pair],
                }
            )
    return found


def _rows(data: Mapping[str, Any], group: str, split: str, family: str) -> list[dict[str, Any]]:
    kept = ("id", "metric", "relation", "reported", "predicted", "error", "inside", "floor", "note", "source")
    return [
        {"group": group, "split": split, "family": family} | {key: row[key] for key in kept} for row in data["reported"]
    ]


# Metrics of which more is faster.
_RATES = ("tokens_per_s_per_gpu", "model_flops_utilization")


def _of_seconds(row: Mapping[str, Any]) -> float:
    """The error of a row as one of seconds."""
    error: float = row["error"]
    return 1 / (1 + error) - 1 if row["metric"].endswith(_RATES) else error


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean absolute error, bias, coverage of the interval and the worst row; bounds count for coverage only.

    The bias is that of seconds: where more means faster, its sign is turned.
    """
    equal = [row for row in rows if row["relation"] == "equal" and row["error"] is not None]
    errors = np.array([row["error"] for row in equal])
    # Rows without draws have no interval to be inside of.
    inside = [row["inside"] for row in rows if row["inside"] is not None]
    worst = max(equal, key=lambda row: abs(row["error"]), default=None)
    return {
        "n": len(rows),
        "families": len({row["family"] for row in rows}),
        "mape": float(np.abs(errors).mean()) if equal else None,
        "bias": float(np.mean([_of_seconds(row) for row in equal])) if equal else None,
        "coverage": float(np.mean(inside)) if inside else None,
        "worst": None if worst is None else {"id": worst["id"], "error": worst["error"]},
    }
