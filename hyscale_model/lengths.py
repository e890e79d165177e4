"""How selection and step time of every system grow with the sequence length: one batch of points and draws."""

from __future__ import annotations

from collections.abc import Sequence
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
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.summary import intervals

# Powers of two at which gains are judged, and how much one must be to count.
LENGTHS = tuple(2**power for power in range(10, 23))
GAIN = 1.01
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
        """The shortest length from which on nine draws in ten gain ``GAIN`` over the baseline."""
        return pays_from(self.lengths, [gain["p10"] for gain in self.speedup[system]])


def pays_from(lengths: Sequence[int], gains: Sequence[float] | np.ndarray) -> int | None:
    """The shortest length from which on every gain is at least ``GAIN``; None: not even the longest."""
    short = np.flatnonzero(np.asarray(gains) < GAIN)
    place = int(short[-1]) + 1 if len(short) else 0
    return lengths[place] if place < len(lengths) else None


def possible_lengths(scenario: Scenario, systems: Sequence[System]) -> list[int]:
    """``LENGTHS`` and the scenario's own, those that the layout of every system can cut."""
    own = scenario.workload.sequence_length

    def allowed(length: int) -> bool:
        case = replace(scenario, workload=replace(scenario.workload, sequence_length=length))
        try:
            for system in systems:
                check_layout(case, system)
        except InputError:
            return False
        return True

    return [length for length in sorted({*LENGTHS, own}) if length == own or allowed(length)]


def over_lengths(resolved: Resolved, draws: int = DRAWS, seed: int = 0) -> Lengths:
    """Evaluate every system at the lengths that its layout allows.

    Args:
        resolved: the scenario.
        draws: samples behind the intervals.
        seed: of the draws.
    """
    scenario = resolved.scenario
    lengths = possible_lengths(scenario, scenario.systems)
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
