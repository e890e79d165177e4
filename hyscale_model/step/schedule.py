"""Pipeline schedules: which rank runs which micro-batch when, and how long a step takes.

Ranks run a fixed order of forward and backward passes of their model chunks (Megatron-LM's 1F1B, interleaved
1F1B; Narayanan et al., arXiv 2104.04473). A pass starts when the pass before it on the rank and the pass it
depends on have finished, so a step is a longest path, evaluated level by level with array-valued durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# After this many rounds of pp micro-batches a schedule has settled into its steady state.
STEADY_DEPTHS = 6


@dataclass(frozen=True, slots=True)
class Schedule:
    """Dependency graph of a step. Passes are numbered from 1 level by level; 0 is the start of the step.

    Attributes:
        ends: number of the first pass after each level.
        needs: for each level, (predecessors on the rank, dependencies) of its passes.
        durations: for each pass, which virtual stage's forward, or (from pp vpp on) backward, it is.
    """

    ends: tuple[int, ...]
    needs: tuple[tuple[np.ndarray, np.ndarray], ...]
    durations: np.ndarray


def rank_order(rank: int, pp: int, vpp: int, micro_batches: int) -> list[tuple[str, int, int]]:
    """Passes of a rank in order: ("F" or "B", chunk, micro-batch)."""
    forward = _chunk_order(pp, vpp, micro_batches)
    warm_up = pp - rank - 1 if vpp == 1 else 2 * (pp - rank - 1) + (vpp - 1) * min(pp, micro_batches)
    warm_up = min(warm_up, len(forward))
    ahead = [("F", chunk, micro_batch) for chunk, micro_batch in forward]
    back = [("B", vpp - 1 - chunk, micro_batch) for chunk, micro_batch in forward]
    steady = [each for pair in zip(ahead[warm_up:], back, strict=False) for each in pair]
    return [*ahead[:warm_up], *steady, *back[len(forward) - warm_up :]]


def _chunk_order(pp: int, vpp: int, micro_batches: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) of a rank's passes: groups of pp micro-batches, the last perhaps smaller, go through
    chunk after chunk."""
    if vpp == 1:
        return [(0, micro_batch) for micro_batch in range(micro_batches)]
    return [
        (chunk, micro_batch)
        for first in range(0, micro_batches, pp)
        for chunk in range(vpp)
        for micro_batch in range(first, min(first + pp, micro_batches))
    ]


@lru_cache(maxsize=256)
def schedule(pp: int, vpp: int, micro_batches: int) -> Schedule:
    """Levels of the schedule's graph."""
    orders = [rank_order(rank, pp, vpp, micro_batches) for rank in range(pp)]
    number: dict[tuple[str, int, int], int] = {}
    for rank, order in enumerate(orders):
        for kind, chunk, micro_batch in order:
            number[kind, chunk * pp + rank, micro_batch] = len(number) + 1
    level_of = {0: 0}
    levels: list[list[tuple[int, int, int, int]]] = []
    position, last = [0] * pp, [0] * pp
    remaining = len(number)
    while remaining:
        before = remaining
        for rank, order in enumerate(orders):
            while position[rank] < len(order):
                kind, chunk, micro_batch = order[position[rank]]
                stage = chunk * pp + rank
                node = number[kind, stage, micro_batch]
                needs = _dependency(kind, stage, micro_batch, pp * vpp)
                dependency = number[needs] if needs else 0
                if dependency not in level_of:
                    break
                level = max(level_of[last[rank]], level_of[dependency])
                level_of[node] = level + 1
                if level == len(levels):
                    levels.append([])
                duration = (0 if kind == "F" else pp * vpp) + stage
                levels[level].append((node, last[rank], dependency, duration))
                last[rank] = node
                position[rank] += 1
                remaining -= 1
        if remaining == before:
            raise ValueError(f"schedule of {pp} x {vpp} stages with {micro_batches} micro-batches cannot proceed")
    return _packed(levels)


def _packed(levels: list[list[tuple[int, int, int, int]]]) -> Schedule:
    """Renumber level by level, so that the passes of a level lie side by side."""
    place = {0: 0}
    for level in levels:
        for node, _, _, _ in level:
            place[node] = len(place)
    needs = tuple(
        (np.array([place[before] for _, before, _, _ in level]), np.array([place[after] for _, _, after, _ in level]))
        for level in levels
    )
    ends = tuple((1 + np.cumsum([len(level) for level in levels])).tolist())
    return Schedule(ends, needs, np.array([duration for level in levels for _, _, _, duration in level]))


def _dependency(kind: str, stage: int, micro_batch: int, stages: int) -> tuple[str, int, int] | None:
    if kind == "F":
        return ("F", stage - 1, micro_batch) if stage else None
    return ("B", stage + 1, micro_batch) if stage + 1 < stages else ("F", stage, micro_batch)


def step_seconds(forward: np.ndarray, backward: np.ndarray, pp: int, vpp: int, micro_batches: int) -> np.ndarray:
    """Seconds from the first forward to the last backward.

    Args:
        forward: seconds of each virtual stage's forward, shape (pp vpp, n); stage s lies on rank s mod pp.
        backward: the same with recomputation and backward.
        pp: pipeline ranks.
        vpp: chunks a rank.
        micro_batches: passes of each chunk.
    """
    if pp == 1:
        return micro_batches * (forward + backward).sum(axis=0)
    if micro_batches <= (STEADY_DEPTHS + 1) * pp:
        return _makespan(forward, backward, schedule(pp, vpp, micro_batches))
    # The graph repeats itself every pp micro-batches; a max-plus recurrence is linear once it has settled, and
    # never faster than its busiest rank.
    simulated = STEADY_DEPTHS * pp + micro_batches % pp
    early, late = (_makespan(forward, backward, schedule(pp, vpp, simulated + extra)) for extra in (0, pp))
    busiest = (forward + backward).reshape(vpp, pp, -1).sum(axis=0).max(axis=0)
    return late + (micro_batches - simulated - pp) / pp * np.maximum(late - early, pp * busiest)


def _makespan(forward: np.ndarray, backward: np.ndarray, plan: Schedule) -> np.ndarray:
    finish = np.zeros((plan.durations.size + 1, forward.shape[1]))
    finish[1:] = np.concatenate([forward, backward])[plan.durations]
    first = 1
    for end, (before, dependency) in zip(plan.ends, plan.needs, strict=True):
        finish[first:end] += np.maximum(finish[before], finish[dependency])
        first = end
    last: np.ndarray = finish.max(axis=0)
    return last
