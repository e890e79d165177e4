"""The nearest baseline that can start: the smallest change of settings that fits the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hyscale_model.evaluate import Evaluator
from hyscale_model.memory.stages import StageMemory
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.summary import intervals, verdict

# Settings anybody can change, the least invasive first.
TABLE_ROWS = (8192, 4096, 2048, 1024, 512)
GRADIENT_PRECISIONS = ("fp32", "bf16")


def nearest_feasible(
    scenario: Scenario, system: System, evaluator: Evaluator
) -> tuple[dict[str, Any], System, StageMemory] | None:
    """The first change that makes a system fit with the 90th percentile of its peak: (changes, changed system, memory).

    Smaller score-table blocks come first, since they leave the result as it is; then BF16 gradients. None
    where nothing fits.
    """
    candidates = list(_candidates(scenario, system))
    if not candidates:
        return None
    # All candidates are one batch: their settings are points.
    rows = np.array([candidate.table_rows for _, candidate in candidates])[:, None]
    own = scenario.training.gradient_precision
    precisions = np.array([candidate.training.get("gradient_precision", own) for _, candidate in candidates])[:, None]
    settings: dict[str, Any] = {"training": dict(system.training) | {"gradient_precision": precisions}}
    if system.selection == "score_table":
        settings["table_rows"] = rows
    batch = replace(system, **settings)
    memory = evaluator.memory(batch)
    for point, ((changes, candidate), peak) in enumerate(zip(candidates, intervals(memory.peak()), strict=True)):
        if verdict(peak, scenario.cluster.gpu.memory_bytes) == "fits":
            return changes, candidate, memory.at_point(point)
    return None


def _candidates(scenario: Scenario, system: System) -> Iterator[tuple[dict[str, Any], System]]:
    own_rows = system.table_rows
    rows = [own_rows]
    if system.selection == "score_table":
        rows += [size for size in TABLE_ROWS if own_rows == "all" or size < own_rows]
    own = system.training.get("gradient_precision", scenario.training.gradient_precision)
    for precision, size in product([own, *(name for name in GRADIENT_PRECISIONS[1:] if name != own)], rows):
        changes: dict[str, Any] = {}
        if size != own_rows:
            changes["table_rows"] = size
        if precision != own:
            changes["training.gradient_precision"] = precision
        if changes and size != "all":
            training = dict(system.training) | ({} if precision == own else {"gradient_precision": precision})
            yield changes, replace(system, table_rows=size, training=training)
