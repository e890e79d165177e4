"""The best layouts of each system: every candidate is evaluated, so the first is the optimum of the model.

A layout counts where it fits: the 90th percentile of its peak is within the GPU's memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyscale_model.batch import case_of, draw_assumptions
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.predict import pairs
from hyscale_model.prediction import TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import LayerScope, Scenario
from hyscale_model.studies.points import VERDICTS, Chunk, Run, evaluate, here, problem_of
from hyscale_model.studies.space import CHUNK_POINTS, Candidates, candidates, describe, settled
from hyscale_model.summary import extrapolated_terms, interval

FITS = VERDICTS.index("fits")
# Layouts that are asked for intervals at a time, until enough of them fit.
BATCH = 64
# Terms named as the reason for a difference, and the least share of the step that is worth naming.
NAMED_TERMS, LEAST_SHARE = 3, 0.005


@dataclass(frozen=True, slots=True)
class _Pool:
    """All candidates of a system at nominal values, one after another.

    Attributes:
        groups: candidates that share a structure; ``group``, ``place`` and ``variant`` say which layout of which group
            each is, and which of the group's systems.
        seconds, peak: step time and memory, ``[candidates]``.
        capacity: bytes of a GPU.
    """

    groups: Sequence[Candidates]
    group: np.ndarray
    place: np.ndarray
    variant: np.ndarray
    seconds: np.ndarray
    peak: np.ndarray
    capacity: float

    def case(self, index: int) -> Scenario:
        """The scenario of one candidate."""
        return self.groups[self.group[index]].at(int(self.place[index]), int(self.variant[index]))

    def is_lawful(self, index: int) -> bool:
        """Whether no rule speaks against it."""
        case = self.case(index)
        return not problem_of(case, case.systems[0])


def search(
    resolved: Resolved,
    *,
    nodes: int | None = None,
    top: int = 20,
    draws: int = 64,
    seed: int = 0,
    run: Run | None = None,
) -> dict[str, Any]:
    """The best layouts of every system of a scenario, with the same cluster, model and batch.

    Args:
        resolved: the scenario; what it says of fields that a search decides is only compared with.
        nodes: of the cluster, in place of the scenario's.
        top: layouts listed of each system.
        draws, seed: of the intervals of what is listed.
        run: evaluates chunks in order, such as ``pool.in_order`` with ``points.evaluate``; None: here.

    Returns:
        JSON: ``searched``, for each system ``own``, ``top``, ``pareto``; ``like_for_like`` and ``each_at_its_best``.

    Raises:
        InputError: the scenario is of one layer, or no layout of any system fits.
    """
    scenario = settled(resolved.scenario, resolved.scenario.systems)
    if nodes is not None:
        scenario = replace(scenario, cluster=replace(scenario.cluster, nodes=nodes))
    if isinstance(scenario.scope, LayerScope):
        raise InputError("a layout is searched for a step", resolved.file, field="scope", expected="scope: step")
    sampled = Draws(draws, seed)
    compare = _Compare(scenario, sampled)
    systems: dict[str, Any] = {}
    best: dict[str, Scenario] = {}
    searched = 0
    pools = _evaluate_all(scenario, run or here)
    for system in scenario.systems:
        pool = pools[system.name]
        searched += len(pool.seconds)
        found = list(_fitting(pool, top, draws, seed))
        own = None if problem_of(scenario, system) else case_of(scenario, system)
        systems[system.name] = {
            "searched": len(pool.seconds),
            "own": None if own is None else compare.row(own),
            "top": [compare.row(pool.case(index), against=own) for index in found],
            "pareto": [
                {
                    "layout": describe(pool.case(index)),
                    "step_time_s": float(pool.seconds[index]),
                    "peak_bytes": float(pool.peak[index]),
                }
                for index in _pareto(pool)
            ],
        }
        if found:
            best[system.name] = pool.case(found[0])
    if not best:
        problem = f"none of {searched:,} layouts fits {scenario.cluster.gpu.memory_bytes / 2**30:.0f} GiB"
        raise InputError(
            problem, resolved.file, field="cluster", expected="more GPUs, more memory or shorter sequences"
        )
    return {
        "schema_version": 1,
        "name": scenario.name,
        "gpus": scenario.cluster.nodes * scenario.cluster.gpus_per_node,
        "draws": draws,
        "seed": seed,
        "searched": searched,
        "systems": systems,
        "like_for_like": compare.like_for_like(best),
        "each_at_its_best": compare.each_at_its_best(best),
    }


def _evaluate_all(scenario: Scenario, run: Run) -> dict[str, _Pool]:
    """All candidates of every system, in one run so that workers start once."""
    groups = list(candidates(scenario, scenario.systems))
    found: dict[str, list[np.ndarray]] = {system.name: [] for system in scenario.systems}
    waiting = deque[tuple[int, np.ndarray]]()

    def chunks() -> Iterator[Chunk]:
        for number, each in enumerate(groups):
            for start in range(0, each.count, CHUNK_POINTS):
                places = np.arange(start, min(start + CHUNK_POINTS, each.count))
                waiting.append((number, places))
                yield each.chunk(places, 0, 0)

    # Results come in the order of the chunks.
    for chunk, rows in run(chunks()):
        number, places = waiting.popleft()
        for variant, name in enumerate(chunk.systems):
            seconds, peak = (rows.results[each][variant] for each in ("step_time_s", "peak_bytes"))
            of = np.full(len(places), number), places, np.full(len(places), variant)
            found[name].append(np.stack([*of, seconds, peak]))
    capacity = float(scenario.cluster.gpu.memory_bytes)
    pools = {}
    for name, parts in found.items():
        table = np.concatenate(parts, axis=1) if parts else np.empty((5, 0))
        group, place, variant = table[:3].astype(int)
        pools[name] = _Pool(groups, group, place, variant, table[3], table[4], capacity)
    return pools


def _ranked(pool: _Pool) -> np.ndarray:
    """Candidates whose nominal peak fits, the fastest first; of equal ones that with less memory."""
    able = np.flatnonzero(pool.peak <= pool.capacity)
    return able[np.lexsort((pool.peak[able], pool.seconds[able]))]


def _fitting(pool: _Pool, top: int, draws: int, seed: int) -> Iterator[int]:
    """The ``top`` fastest that obey the rules and fit with their 90th percentile."""
    left = top
    ranked = iter(_ranked(pool))
    while left:
        batch = [index for index, _ in zip(ranked, range(BATCH), strict=False)]
        if not batch:
            return
        verdicts: dict[int, int] = {}
        structures = list(zip(pool.group[batch].tolist(), pool.variant[batch].tolist(), strict=True))
        for number, variant in dict.fromkeys(structures):
            members = [index for index, own in zip(batch, structures, strict=True) if own == (number, variant)]
            rows = evaluate(pool.groups[number].alone(variant).chunk(pool.place[members], draws, seed))
            verdicts |= dict(zip(members, rows.verdict[0].tolist(), strict=True))
        for index in batch:
            if verdicts[index] == FITS and pool.is_lawful(index):
                yield int(index)
                left -= 1
                if not left:
                    return


def _pareto(pool: _Pool) -> list[int]:
    """Lawful candidates that no other one beats in both time and memory, the fastest first."""
    front, least = [], np.inf
    for index in _ranked(pool).tolist():
        if pool.peak[index] < least and pool.is_lawful(index):
            front.append(index)
            least = pool.peak[index]
    return front


class _Compare:
    """Predictions of single layouts, all with the same draws."""

    def __init__(self, scenario: Scenario, draws: Draws) -> None:
        self._draws, self._profile = draws, profile_of(scenario)
        self._values = draw_assumptions(scenario, draws)
        self._scenario = scenario
        # By the identity of a scenario, which is held.
        self._known: dict[int, tuple[Scenario, Evaluation]] = {}

    def _evaluator(self, case: Scenario) -> Evaluator:
        return Evaluator(case, self._values, self._draws, self._profile)

    def step(self, case: Scenario) -> Evaluation:
        """The step of a scenario with one system; what others are compared with is evaluated once."""
        if id(case) not in self._known:
            self._known[id(case)] = case, self._evaluator(case).steps(case.systems)[0]
        return self._known[id(case)][1]

    def row(self, case: Scenario, against: Scenario | None = None) -> dict[str, Any]:
        """What is listed of a layout; ``against`` another, what it changes and which terms differ most."""
        evaluator = self._evaluator(case)
        result = evaluator.steps(case.systems)[0]
        peak = evaluator.memory(case.systems[0]).peak()
        row: dict[str, Any] = {
            "layout": describe(case),
            "step_time_s": interval(result.step.seconds),
            "tokens_per_s_per_gpu": interval(result.tokens_per_gpu / result.step.seconds),
            "peak_bytes": interval(peak),
            "extrapolated": extrapolated_terms(result),
        }
        if against is not None:
            mine, other = describe(case), describe(against)
            row["changes"] = {name: value for name, value in mine.items() if value != other[name]}
            row["because"] = _differences(result, self.step(against))
        return row

    def like_for_like(self, best: Mapping[str, Scenario]) -> list[dict[str, Any]]:
        """All systems in the best layout of each: what the techniques bring without another layout."""
        rows = []
        for name, case in best.items():
            times: dict[str, np.ndarray] = {}
            for system in self._scenario.systems:
                same = replace(case, systems=(system,))
                if not problem_of(same, system):
                    times[system.name] = self.step(case_of(same, system)).step.seconds
            rows.append({"layout_of": name, "layout": describe(case), **_ratios(times)})
        return rows

    def each_at_its_best(self, best: Mapping[str, Scenario]) -> dict[str, Any]:
        """Each system in its own best layout, which memory that is freed may have changed."""
        return _ratios({name: self.step(case).step.seconds for name, case in best.items()})


def _ratios(times: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {
        "step_time_s": {name: interval(seconds) for name, seconds in times.items()},
        "speedup": {name: interval(before / after) for name, before, after in pairs(times)},
    }


def _differences(result: Evaluation, other: Evaluation) -> list[dict[str, Any]]:
    """Terms in which two steps differ most, in seconds; negative: the first is faster there."""
    total = float(other.step.seconds[0, 0])
    found = {term: float(result.step.term(term)[0, 0] - other.step.term(term)[0, 0]) for term in TERMS}
    largest = sorted(found, key=lambda term: -abs(found[term]))[:NAMED_TERMS]
    return [{"term": term, "change_s": found[term]} for term in largest if abs(found[term]) >= LEAST_SHARE * total]
