"""What a GPU of each stage holds at each moment of a step, at the nominal point."""

from __future__ import annotations

from typing import Any

from hyscale_model.evaluate import Evaluator
from hyscale_model.memory.stages import KINDS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved


def memory_moments(resolved: Resolved, system: str) -> dict[str, Any]:
    """Bytes by kind of every stage and moment of one system.

    Args:
        resolved: the scenario.
        system: the name of one of its systems.

    Returns:
        ``{"moments": names, "stages": [[{kind: bytes} of each moment] of each stage], "capacity_bytes", "origin"}``.
    """
    scenario = resolved.scenario
    evaluator = Evaluator(scenario, {}, Draws(0), profile_of(scenario))
    memory = evaluator.memory(next(each for each in scenario.systems if each.name == system))
    kinds = memory.nominal_kinds()
    return {
        "moments": list(memory.moments),
        "stages": [
            [{kind: float(value) for kind, value in zip(KINDS, moment, strict=True) if value} for moment in stage]
            for stage in kinds
        ],
        "capacity_bytes": float(scenario.cluster.gpu.memory_bytes),
        "origin": "computed from shapes; nominal",
    }
