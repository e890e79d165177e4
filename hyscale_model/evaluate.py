"""Evaluate one system over a batch: step time and memory as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyscale_model.batch import assign, case_of, split_structure
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.stages import StageMemory, stage_memory, stages_of
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import gpu_named
from hyscale_model.rates.profile import Profile
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.step.step import Explanation, StepTime, explain, step_times


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of one system; arrays end in (points, draws). ``case`` and ``sizes`` may hold arrays."""

    case: Scenario
    sizes: Sizes
    step: StepTime
    memory: StageMemory
    explanation: Explanation


def peak_memory(
    scenario: Scenario, systems: Sequence[System], values: Mapping[str, np.ndarray], draws: Draws, profile: Profile
) -> list[np.ndarray]:
    """Peak bytes of systems alone, shape (points, draws + 1) each: much cheaper than ``evaluate``."""
    peaks = [np.empty((1, draws.width)) for _ in systems]
    for group, columns in split_structure(values, draws):
        part = assign(replace(scenario, systems=tuple(systems)), group)
        rates = Rates(profile, part.cluster.gpu, columns, gpu_named)
        at = slice(None) if columns.columns is None else list(columns.columns)
        for peak, system in zip(peaks, part.systems, strict=True):
            case = case_of(part, system)
            peak[:, at] = memory_of(case, Sizes.of(case), rates, (points_of(part), columns.width)).peak()
    return peaks


def evaluate(
    scenario: Scenario, systems: Sequence[System], values: Mapping[str, np.ndarray], draws: Draws, profile: Profile
) -> list[Evaluation]:
    """Evaluate systems that share their draws.

    Args:
        scenario: the nominal scenario.
        systems: what to evaluate; need not be among the scenario's.
        values: drawn or swept fields, broadcastable to (points, draws + 1).
        draws: the draws of rates.
        profile: rates.
    """
    parts = [
        (columns, _evaluate_group(assign(replace(scenario, systems=tuple(systems)), group), columns, profile))
        for group, columns in split_structure(values, draws)
    ]
    if len(parts) == 1:
        return parts[0][1]
    return [_merge([(columns, results[index]) for columns, results in parts], draws) for index in range(len(systems))]


def _evaluate_group(scenario: Scenario, draws: Draws, profile: Profile) -> list[Evaluation]:
    rates = Rates(profile, scenario.cluster.gpu, draws, gpu_named)
    shape = (points_of(scenario), draws.width)
    cases = [case_of(scenario, system) for system in scenario.systems]
    sizes = [Sizes.of(case) for case in cases]
    results: list[Evaluation | None] = [None] * len(cases)
    for depth in dict.fromkeys(int(case.layout.pp) for case in cases):
        places = [place for place, case in enumerate(cases) if case.layout.pp == depth]
        steps, priced = step_times([cases[i] for i in places], [sizes[i] for i in places], rates, shape)
        for index, (place, step) in enumerate(zip(places, steps, strict=True)):
            memory = memory_of(cases[place], sizes[place], rates, shape)
            explanation = explain(priced, index, step, cases[place].training.recompute == "full")
            results[place] = Evaluation(cases[place], sizes[place], step, memory, explanation)
    return [result for result in results if result is not None]


def memory_of(case: Scenario, sizes: Sizes, rates: Rates, shape: tuple[int, int]) -> StageMemory:
    """Memory of one system's stages."""
    stages = stages_of(case, sizes, shape)
    return stage_memory(case, sizes, stages, shape, rates.factor("framework_bytes"), rates.factor("allocator_overhead"))


def points_of(scenario: Scenario) -> int:
    """Length of the points axis: that of the longest field."""
    return max((value.shape[0] for value in _arrays(scenario)), default=1)


def _arrays(node: Any) -> Iterator[np.ndarray]:
    if isinstance(node, np.ndarray):
        yield node
    elif hasattr(node, "__dataclass_fields__"):
        for name in node.__dataclass_fields__:
            yield from _arrays(getattr(node, name))


def _merge(parts: list[tuple[Draws, Evaluation]], draws: Draws) -> Evaluation:
    """Put the columns of groups back in place; what is nominal comes from the group with column 0."""
    first = next(result for columns, result in parts if columns.columns is not None and columns.columns[0] == 0)

    def gather(pieces: list[np.ndarray]) -> np.ndarray:
        merged = np.zeros((*pieces[0].shape[:-1], draws.width), dtype=pieces[0].dtype)
        for (columns, _), piece in zip(parts, pieces, strict=True):
            merged[..., list(columns.columns or ())] = piece
        return merged

    steps = [result.step for _, result in parts]
    hidden = sorted({name for step in steps for name in step.hidden})
    step = replace(
        first.step,
        seconds=gather([step.seconds for step in steps]),
        terms=gather([step.terms for step in steps]),
        stage=gather([step.stage for step in steps]),
        hidden={
            name: gather([step.hidden.get(name, np.zeros_like(step.seconds)) for step in steps]) for name in hidden
        },
    )
    # Stages differ in number where pipeline depth is drawn: memory is then compared by its peak alone.
    peaks = [result.memory.bytes for _, result in parts]
    deepest = max(piece.shape[0] for piece in peaks)
    padded = [np.pad(piece, [(0, deepest - piece.shape[0]), *[(0, 0)] * 4]) for piece in peaks]
    return replace(first, step=step, memory=StageMemory(gather(padded)))
