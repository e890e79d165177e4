"""The nearest baseline that can start: what the smallest change of settings is that fits the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hyscale_model.evaluate import Evaluation, evaluate
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.profile import Profile
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.summary import interval, summarize, verdict

# Settings anybody can change, the least invasive first.
TABLE_ROWS = (8192, 4096, 2048, 1024, 512)
GRADIENT_PRECISIONS = ("fp32", "bf16")


def nearest_feasible(
    scenario: Scenario,
    named: Mapping[str, Evaluation],
    summaries: Mapping[str, Any],
    values: Mapping[str, np.ndarray],
    draws: Draws,
    profile: Profile,
) -> dict[str, Any]:
    """For each system that does not surely fit: the first change that makes it fit, and the speed-up over that.

    Smaller score-table blocks come first (they leave the result as it is), then BF16 gradients. Where nothing
    fits, ``changes`` is empty and says so by ``system`` being null.
    """
    target_name = scenario.systems[-1].name
    found: dict[str, Any] = {}
    for system in scenario.systems[:-1]:
        if summaries[system.name]["memory"]["verdict"] == "fits":
            continue
        found[system.name] = {"changes": {}, "system": None, "speedup": {}}
        for changes, candidate in _candidates(scenario, system):
            (result,) = evaluate(scenario, [candidate], values, draws, profile)
            capacity = summaries[system.name]["memory"]["capacity_bytes"]
            if verdict(interval(result.memory.peak()), capacity) != "fits":
                continue
            ratio = result.step.seconds / named[target_name].step.seconds
            found[system.name] = {
                "changes": changes,
                "system": summarize(result),
                "speedup": {f"{target_name}/{system.name}": interval(ratio)},
            }
            break
    return found


def _candidates(scenario: Scenario, system: System) -> Iterator[tuple[dict[str, Any], System]]:
    rows = [system.table_rows]
    if system.selection == "score_table":
        rows += [size for size in TABLE_ROWS if system.table_rows == "all" or size < system.table_rows]
    own = system.training.get("gradient_precision", scenario.training.gradient_precision)
    precisions = [own] + [name for name in GRADIENT_PRECISIONS[1:] if name != own]
    for precision, size in product(precisions, rows):
        changes: dict[str, Any] = {}
        if size != system.table_rows:
            changes["table_rows"] = size
        if precision != own:
            changes["training.gradient_precision"] = precision
        if changes:
            training = dict(system.training) | ({"gradient_precision": precision} if precision != own else {})
            yield changes, replace(system, table_rows=size, training=training)
