"""The nearest baseline that can start: what the smallest change of settings is that fits the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hyscale_model.evaluate import Evaluation, evaluate, peak_memory
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
    target = scenario.systems[-1].name
    found: dict[str, Any] = {}
    chosen: dict[str, tuple[dict[str, Any], System]] = {}
    for system in scenario.systems[:-1]:
        memory = summaries[system.name]["memory"]
        if memory["verdict"] == "fits":
            continue
        found[system.name] = {"changes": {}, "system": None, "speedup": {}}
        for changes, candidate in _candidates(scenario, system):
            (peak,) = peak_memory(scenario, [candidate], values, draws, profile)
            if verdict(interval(peak), memory["capacity_bytes"]) == "fits":
                chosen[system.name] = changes, candidate
                break
    results = evaluate(scenario, [system for _, system in chosen.values()], values, draws, profile) if chosen else []
    for (name, (changes, _)), result in zip(chosen.items(), results, strict=True):
        ratio = result.step.seconds / named[target].step.seconds
        found[name] = {
            "changes": changes,
            "system": summarize(result),
            "speedup": {f"{target}/{name}": interval(ratio)},
        }
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
