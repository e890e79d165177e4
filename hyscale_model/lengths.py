"""How selection and step time of every system grow with the sequence length: one batch of points and draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from hyscale_model.batch import draw_assumptions
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluator
from hyscale_model.prediction import SELECTION_TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario import check_layout
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import Scenario
from hyscale_model.summary import intervals

# From a sixty-fourth of the scenario's own length to four times of it.
POWERS = range(-6, 3)
DRAWS = 32
PATH = "workload.sequence_length"


# An interval at each length.
Curve: TypeAlias = tuple[dict[str, float], ...]


@dataclass(frozen=True, slots=True)
class Lengths:
    """What depends on the length.

    Attributes:
        lengths: tokens of a sequence.
        own: the scenario's length.
        selection_s: selection in a step by system, recomputation included.
        step_s: the step by system.
        speedup: of each later system over the first.
    """

    lengths: tuple[int, ...]
    own: int
    selection_s: dict[str, Curve]
    step_s: dict[str, Curve]
    speedup: dict[str, Curve]

    def pays_from(self, system: str) -> int | None:
        """The shortest length from which on nine draws in ten are faster than the baseline."""
        found = None
        for length, gain in zip(self.lengths, self.speedup[system], strict=True):
            if gain["p10"] <= 1.0:
                found = None
            elif found is None:
                found = length
        return found


def over_lengths(resolved: Resolved, draws: int = DRAWS, seed: int = 0) -> Lengths:
    """Evaluate every system at the lengths that its layout allows.

    Args:
        resolved: the scenario.
        draws: samples behind the intervals.
        seed: of the draws.
    """
    scenario = resolved.scenario
    lengths = _possible(scenario)
    sampled = Draws(draws, seed)
    values = draw_assumptions(scenario, sampled) | {PATH: np.array(lengths)[:, None]}
    results = Evaluator(scenario, values, sampled, profile_of(scenario)).steps(scenario.systems)
    named = {system.name: result.step for system, result in zip(scenario.systems, results, strict=True)}
    first, *others = named
    return Lengths(
        lengths=tuple(lengths),
        own=scenario.workload.sequence_length,
        selection_s={
            name: _points(np.sum([step.term(term) for term in SELECTION_TERMS], axis=0)) for name, step in named.items()
        },
        step_s={name: _points(step.seconds) for name, step in named.items()},
        speedup={name: _points(named[first].seconds / named[name].seconds) for name in others},
    )


def _points(values: np.ndarray) -> Curve:
    return tuple(intervals(values))


def _possible(scenario: Scenario) -> list[int]:
    own = scenario.workload.sequence_length
    lengths = sorted({int(own * 2.0**power) for power in POWERS})
    return [length for length in lengths if length == own or _allowed(scenario, length)]


def _allowed(scenario: Scenario, length: int) -> bool:
    if length < 1:
        return False
    other = replace(scenario, workload=replace(scenario.workload, sequence_length=length))
    try:
        for system in other.systems:
            check_layout(other, system)
    except InputError:
        return False
    return True
