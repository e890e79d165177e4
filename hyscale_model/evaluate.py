"""Evaluate systems over a batch: step time and memory as arrays that end in (points, draws)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyscale_model.batch import assign, case_of, split_structure, with_switches
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.holdings import Stages
from hyscale_model.memory.stages import StageMemory, stage_memory, stages_of
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import gpu_named
from hyscale_model.rates.profile import Profile
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Layout, Scenario, System
from hyscale_model.step.extrapolated import extrapolated
from hyscale_model.step.pipeline import Structure, structures
from hyscale_model.step.price import Priced
from hyscale_model.step.step import Explanation, StepTime, explain, step_times


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Step time of one system.

    Attributes:
        case: the scenario as the system runs it, and ``sizes``: of the draws that share the nominal structure;
            fields that vary hold arrays, whose first element is nominal.
        step: the step.
        tokens_per_gpu: tokens of a step over GPUs, shape (points, draws).
    """

    case: Scenario
    sizes: Sizes
    step: StepTime
    tokens_per_gpu: np.ndarray
    priced: Priced
    index: int

    def explain(self) -> Explanation:
        """Floors, what binds and origins at the nominal point."""
        return explain(self.priced, self.index, self.step)

    def extrapolated(self) -> np.ndarray:
        """Terms with a kernel outside what the profile measured, at nominal values, shape (terms, points)."""
        return extrapolated(self.case, self.sizes, self.priced, self.index, self.step)


class Evaluator:
    """A scenario with drawn or swept values: every system evaluated with it shares them and the rates' draws.

    Args:
        scenario: the nominal scenario.
        values: drawn or swept fields, broadcastable to (points, draws + 1).
        draws: the draws of rates.
        profile: rates.
    """

    def __init__(self, scenario: Scenario, values: Mapping[str, np.ndarray], draws: Draws, profile: Profile) -> None:
        self._draws = draws
        self._groups = [
            _Group(assign(scenario, group), group, columns, profile)
            for group, columns in split_structure(values, draws)
        ]

    def steps(self, systems: Sequence[System]) -> list[Evaluation]:
        """Step times of systems, which need not be among the scenario's."""
        parts = [group.steps(systems) for group in self._groups]
        return [self._merge_steps([part[index] for part in parts]) for index in range(len(systems))]

    def case(self, system: System) -> Scenario:
        """The scenario as a system runs it, with the values of the group that holds the nominal point."""
        return next(group for group in self._groups if group.is_nominal).case(system)[0]

    def memory(self, system: System) -> StageMemory:
        """Memory of a system's stages."""
        parts = [group.memory(system) for group in self._groups]
        nominal = next(part for part, group in zip(parts, self._groups, strict=True) if group.is_nominal)
        if len(parts) == 1:
            return nominal
        # Where pipeline depth varies, shallower pipelines have empty stages at the end.
        deepest = max(part.totals.shape[0] for part in parts)
        totals = [np.pad(p.totals, [(0, deepest - p.totals.shape[0]), (0, 0), (0, 0), (0, 0)]) for p in parts]
        return replace(nominal, totals=self._gather(totals))

    def _merge_steps(self, parts: list[Evaluation]) -> Evaluation:
        if len(parts) == 1:
            return parts[0]
        steps = [part.step for part in parts]
        names = sorted({name for step in steps for name in step.hidden})

        def pick(of: Callable[[StepTime], np.ndarray]) -> np.ndarray:
            return self._gather([of(step) for step in steps])

        nominal = next(part for part, group in zip(parts, self._groups, strict=True) if group.is_nominal)
        hidden = {name: pick(lambda s, n=name: s.hidden.get(n, np.zeros_like(s.seconds))) for name in names}  # type: ignore[misc]
        step = replace(
            nominal.step,
            seconds=pick(lambda s: s.seconds),
            terms=pick(lambda s: s.terms),
            hidden=hidden,
            stage=pick(lambda s: s.stage),
        )
        return replace(nominal, step=step, tokens_per_gpu=self._gather([part.tokens_per_gpu for part in parts]))

    def _gather(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Put the columns of groups back in place."""
        if len(pieces) == 1:
            return pieces[0]
        merged = np.zeros((*pieces[0].shape[:-1], self._draws.width), dtype=pieces[0].dtype)
        for group, piece in zip(self._groups, pieces, strict=True):
            merged[..., list(group.draws.columns or ())] = piece
        return merged


class _Group:
    """Draws of equal structure."""

    def __init__(self, scenario: Scenario, values: Mapping[str, Any], draws: Draws, profile: Profile) -> None:
        self.scenario, self.draws = scenario, draws
        # What is drawn for systems applies to every system evaluated, also those the scenario does not list.
        self._switches = {path: value for path, value in values.items() if path.startswith("systems.")}
        self._points = max((value.shape[0] for value in values.values() if isinstance(value, np.ndarray)), default=1)
        self._rates = Rates(profile, scenario.cluster.gpu, draws, gpu_named)
        # By the identity of a system or layout, which is held so that no other object can take it over.
        self._cases: dict[int, tuple[System, tuple[Scenario, Sizes, tuple[int, int]]]] = {}
        self._sizes: dict[tuple[Any, ...], tuple[Scenario, Sizes]] = {}
        self._layouts: dict[int, Layout] = {}
        self._stages: dict[tuple[int, ...], Stages] = {}
        self._pipelines: dict[tuple[int, ...], list[Structure]] = {}

    @property
    def is_nominal(self) -> bool:
        """Whether the group holds the nominal point."""
        return self.draws.columns is None or self.draws.columns[0] == 0

    def case(self, system: System) -> tuple[Scenario, Sizes, tuple[int, int]]:
        """The scenario as the system runs it, its sizes, and the shape (points, draws) of its results."""
        if id(system) not in self._cases:
            case = case_of(self.scenario, with_switches(system, self._switches))
            shape = (max(self._points, _points(system)), self.draws.width)
            self._cases[id(system)] = system, (case, self._sizes_of(case), shape)
        return self._cases[id(system)][1]

    def _sizes_of(self, case: Scenario) -> Sizes:
        """Sizes, shared by systems that differ in neither layout nor precision of scoring."""
        precision = case.training.index_precision
        key = (id(case.layout), id(precision) if isinstance(precision, np.ndarray) else precision)
        if key not in self._sizes:
            self._sizes[key] = case, Sizes.of(case)
        return self._sizes[key][1]

    def _pipeline(self, case: Scenario, sizes: Sizes, shape: tuple[int, int]) -> list[Structure]:
        self._layouts.setdefault(id(case.layout), case.layout)
        key = (id(case.layout), *shape)
        if key not in self._pipelines:
            self._pipelines[key] = structures(case, sizes, shape)
        return self._pipelines[key]

    def steps(self, systems: Sequence[System]) -> list[Evaluation]:
        parts = [self.case(system) for system in systems]
        shape = (max(part[2][0] for part in parts), self.draws.width)
        results: dict[int, Evaluation] = {}
        for depth in dict.fromkeys(int(case.layout.pp) for case, _, _ in parts):
            places = [place for place, (case, _, _) in enumerate(parts) if case.layout.pp == depth]
            cases, sizes = [parts[i][0] for i in places], [parts[i][1] for i in places]
            pipelines = [self._pipeline(case, size, shape) for case, size in zip(cases, sizes, strict=True)]
            steps, priced = step_times(cases, sizes, pipelines, self._rates, shape)
            for index, place in enumerate(places):
                case, size = cases[index], sizes[index]
                tokens = case.workload.global_batch_size * case.workload.sequence_length / size.world
                results[place] = Evaluation(case, size, steps[index], np.broadcast_to(tokens, shape), priced, index)
        return [results[place] for place in range(len(systems))]

    def memory(self, system: System) -> StageMemory:
        case, sizes, shape = self.case(system)
        # What ranks hold varies with what the batch varies, and with a layout of the system's own.
        own = shape if case.layout is not self.scenario.layout else (self._points, shape[1])
        key = (id(case.layout), *own)
        if key not in self._stages:
            self._stages[key] = stages_of(case, self._pipeline(case, sizes, own), own)
        framework, allocator = (self._rates.factor(name) for name in ("framework_bytes", "allocator_overhead"))
        return stage_memory(case, sizes, self._stages[key], shape, framework, allocator)


def _points(system: System) -> int:
    """Length of the points axis of a system's own switches and overrides."""
    switches = (getattr(system, name) for name in system.__dataclass_fields__)
    values = [*switches, *system.layout.values(), *system.training.values()]
    return max((value.shape[0] for value in values if isinstance(value, np.ndarray)), default=1)
