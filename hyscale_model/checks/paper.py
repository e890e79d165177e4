"""What the paper leaves open, as a grid: how P1, P4 and P5 depend on it, and how often they come out together."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hyscale_model.evaluate import Evaluator
from hyscale_model.prediction import SELECTION_TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.schema import Scenario

# Published scenarios of the paper, by catalogue name.
PAPER = ("glm-5.1-1m-512xh20", "v4-flash-csa-32xh800", "qwen3.8-qsa-32xh800")
AXES: dict[str, tuple[Any, ...]] = {
    "training.index_precision": ("bf16", "fp8"),
    "causal_skip": (True, False),
    "table_topk": ("torch", "radix"),
    "layout.vpp": (1, 2, 3),
    "workload.global_batch_size": (4, 8, 16),
}
TOLERANCE = 0.10


def grid(scenario: Scenario) -> dict[str, Any]:
    """Nominal P1, P4 and P5 at every combination of ``AXES``, with rates at their nominal values.

    Returns:
        ``{"axes", "rows", "reported", "share_within_10_percent"}``; the shares count each result alone and all
        of them together.
    """
    profile, draws = profile_of(scenario), Draws(0)
    reported = {row.id: row.value for row in scenario.reported}
    wanted = {"P1": reported["P1"], "P4": reported["P4"], "P5": reported["P5 before"]}
    names = ("training.index_precision", "layout.vpp", "workload.global_batch_size")
    points = list(product(*(AXES[name] for name in names)))
    values = {name: np.array([point[index] for point in points])[:, None] for index, name in enumerate(names)}
    base = next(system for system in scenario.systems if system.name == "megatron")
    target = next(system for system in scenario.systems if system.name == "hyscale")
    evaluator = Evaluator(scenario, values, draws, profile)
    rows = []
    for skip, topk in product(AXES["causal_skip"], AXES["table_topk"]):
        pair = [replace(system, causal_skip=skip, table_topk=topk) for system in (base, target)]
        before, after = evaluator.steps(pair)
        selection = sum(before.step.term(term) for term in SELECTION_TERMS)
        results = {
            "P1": before.step.seconds / after.step.seconds,
            "P4": selection / before.step.seconds,
            "P5": before.step.term("selection_recompute"),
        }
        for index, point in enumerate(points):
            row = dict(zip(names, point, strict=True)) | {"causal_skip": skip, "table_topk": topk}
            rows.append(row | {key: float(result[index, 0]) for key, result in results.items()})
    close = {key: np.array([abs(row[key] / value - 1) <= TOLERANCE for row in rows]) for key, value in wanted.items()}
    shares = {key: float(hits.mean()) for key, hits in close.items()}
    together = np.logical_and.reduce([close["P1"], close["P4"]])
    shares["P1 and P4"] = float(together.mean())
    shares["P1, P4 and P5"] = float((together & close["P5"]).mean())
    return {
        "axes": {key: list(axis) for key, axis in AXES.items()},
        "rows": rows,
        "reported": wanted,
        "share_within_10_percent": shares,
    }
