"""Compare predictions with reported results, by group and for the user's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyscale_model import catalog
from hyscale_model.checks.kernels import GROUP as KERNELS
from hyscale_model.checks.kernels import kernel_rows, kernel_summary
from hyscale_model.checks.paper import grid
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario.resolve import read_scenario

# More than a prediction takes, since coverage of an interval is what is checked.
DRAWS = 256
# Published scenarios of each group, by catalogue name.
SCENARIOS: Mapping[str, tuple[str, ...]] = {
    "paper": ("glm-5.1-1m-512xh20", "v4-flash-csa-32xh800", "qwen3.8-qsa-32xh800")
}
GROUPS = (*SCENARIOS, KERNELS)


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
        ``{"rows": [...], "summary": {group: ...}, "scopes": [...], "grid": ...}``; the grid only with the group
        ``paper``, scopes where one layer is predicted.

    Raises:
        InputError: an unknown group, or a file without anything reported.
    """
    unknown = [group for group in groups if group not in GROUPS]
    if unknown:
        raise InputError(f"no check group {unknown[0]}", field="--group", expected=" or ".join(GROUPS))
    overrides = [] if profile is None else [f"profile={profile}"]
    chosen = list(groups) or ([] if files else list(GROUPS))
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {"rows": rows, "summary": {}, "scopes": []}
    for group in chosen:
        if group == KERNELS:
            rows += kernel_rows(profile, draws, seed)
        for name in SCENARIOS.get(group, ()):
            resolved = read_scenario(name, overrides=overrides, text=catalog.path("published", name).read_bytes())
            data = predict(resolved, draws=draws, seed=seed).data
            rows += _rows(data, group, "paper", name)
            result["scopes"] += _scopes(data)
            if {"P1", "P4"} <= {row.id for row in resolved.scenario.reported}:
                result["grid"] = grid(resolved.scenario)
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
        members = [row for row in rows if row["group"] == group]
        result["summary"][group] = summary(members) | (kernel_summary(members) if group == KERNELS else {})
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


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean absolute error, bias, coverage of the interval and the worst row; bounds count for coverage only."""
    equal = [row for row in rows if row["relation"] == "equal" and row["error"] is not None]
    errors = np.array([row["error"] for row in equal])
    worst = max(equal, key=lambda row: abs(row["error"]), default=None)
    return {
        "n": len(rows),
        "families": len({row["family"] for row in rows}),
        "mape": float(np.abs(errors).mean()) if equal else None,
        "bias": float(errors.mean()) if equal else None,
        "coverage": float(np.mean([row["inside"] for row in rows])) if rows else None,
        "worst": None if worst is None else {"id": worst["id"], "error": worst["error"]},
    }
