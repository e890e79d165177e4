"""Evaluate one system over a batch: step time and memory as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyscale_model.batch import assign, case_of, split_structure
from hyscale_model.rates.load import gpu_named
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.stages import StageMemory, stage_memory
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.profile import Profile
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.step.step import StepTime, step_time


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of one system; arrays end in (points, draws). ``case`` and ``sizes`` are the nominal ones."""

    case: Scenario
    sizes: Sizes
    step: StepTime
    memory: StageMemory


def evaluate(
    scenario: Scenario, systems: Sequence[System], values: Mapping[str, np.ndarray], draws: Draws, profile: Profile
) -> list[Evaluation]:
    """Evaluate systems that share their draws.

    Args:
        scenario: the nominal scenario.
        systems: what to evaluate; need not be among the scenario's.
        values: drawn fields, each of shape (1, draws + 1).
        draws: the draws of rates.
        profile: rates.
    """
    parts = [
        (group, columns, _evaluate_group(assign(replace(scenario, systems=tuple(systems)), group), columns, profile))
        for group, columns in split_structure(values, draws)
    ]
    if len(parts) == 1:
        return parts[0][2]
    return [_merge([(columns, results[index]) for _, columns, results in parts], draws) for index in range(len(systems))]


def _evaluate_group(scenario: Scenario, draws: Draws, profile: Profile) -> list[Evaluation]:
    rates = Rates(profile, scenario.cluster.gpu, draws, gpu_named)
    framework, allocator = rates.factor("framework_bytes"), rates.factor("allocator_overhead")
    shape = (points_of(scenario), draws.width)
    results = []
    for system in scenario.systems:
        case = case_of(scenario, system)
        sizes = Sizes.of(case)
        memory = stage_memory(case, sizes, shape, framework, allocator)
        results.append(Evaluation(case, sizes, step_time(case, sizes, rates, shape), memory))
    return results


def points_of(scenario: Scenario) -> int:
    """Length of the points axis: the longest field."""
    return max((value.shape[0] for value in _arrays(scenario)), default=1)


def _arrays(node: Any) -> list[np.ndarray]:
    if isinstance(node, np.ndarray):
        return [node]
    if hasattr(node, "__dataclass_fields__"):
        return [array for name in node.__dataclass_fields__ for array in _arrays(getattr(node, name))]
    return []


def _merge(parts: list[tuple[Draws, Evaluation]], draws: Draws) -> Evaluation:
    """Put the columns of groups back in place; what is nominal comes from the group with column 0."""
    first = next(result for columns, result in parts if columns.columns is not None and columns.columns[0] == 0)

    def gather(pieces: list[np.ndarray]) -> np.ndarray:
        merged = np.zeros((*pieces[0].shape[:-1], draws.width))
        for (columns, _), piece in zip(parts, pieces, strict=True):
            merged[..., list(columns.columns or ())] = piece
        return merged

    steps = [result.step for _, result in parts]
    zero = np.zeros_like
    hidden = sorted({name for step in steps for name in step.hidden})
    step = replace(
        first.step,
        seconds=gather([step.seconds for step in steps]),
        terms={term: gather([step.terms[term] for step in steps]) for term in first.step.terms},
        hidden={name: gather([step.hidden.get(name, zero(step.seconds)) for step in steps]) for name in hidden},
    )
    pieces = [result.memory.bytes for _, result in parts]
    same = all(piece.shape[0] == pieces[0].shape[0] for piece in pieces)
    memory = StageMemory(gather(pieces)) if same else first.memory
    return replace(first, step=step, memory=memory)
