"""Pipeline schedules: which rank runs which micro-batch when, and how long a step takes.

Ranks run a fixed order of forward and backward passes of their model chunks: Megatron-LM's 1F1B and interleaved 1F1B
(Narayanan et al., arXiv 2104.04473), and the zero-bubble schedule ZB-H1, which puts weight gradients off to where a
rank would wait, with as many micro-batches in flight as 1F1B (Qi et al., arXiv 2401.10241). A pass starts when the pass
before it on the rank and the pass it depends on have finished, so a step is a longest path, evaluated level by level
with array-valued durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# After this many rounds of pp micro-batches a schedule has settled into its steady state.
STEADY_DEPTHS = 6
# Numbers of a schedule that are worked on at a time: 512 KiB.
CACHED_VALUES = 65536


@dataclass(frozen=True, slots=True)
class Schedule:
    """Dependency graph of a step. Passes are numbered from 1 level by level; 0 is the start of the step.

    Attributes:
        ends: number of the first pass after each level.
        needs: for each level, (predecessors on the rank, dependencies) of its passes.
        durations: for each pass, which virtual stage's forward, or (from pp vpp on) backward, or (from 2 pp vpp on)
            weight gradient it is.
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


def zero_bubble_orders(pp: int, micro_batches: int) -> list[list[tuple[str, int, int]]]:
    """Passes of every rank in order: ("F", "B" or "W", 0, micro-batch), as ZB-H1 has them.

    Found by letting all passes take one unit of time: a rank takes a backward if one is ready, else a forward while
    fewer than pp - rank micro-batches are in flight, else a weight gradient that was put off.
    """
    orders: list[list[tuple[str, int, int]]] = [[] for _ in range(pp)]
    done = {kind: [0] * pp for kind in "FBW"}
    while done["W"][0] < micro_batches:
        # What was done before this unit of time is what a pass can build on.
        ahead, back = list(done["F"]), list(done["B"])
        for rank in range(pp):
            forwards, backwards, weights = (done[kind][rank] for kind in "FBW")
            sent = micro_batches if rank == 0 else ahead[rank - 1]
            returned = ahead[rank] if rank == pp - 1 else back[rank + 1]
            if backwards < min(forwards, returned):
                kind = "B"
            elif forwards < min(sent, micro_batches) and forwards - backwards < pp - rank:
                kind = "F"
            elif weights < backwards:
                kind = "W"
            else:
                continue
            orders[rank].append((kind, 0, done[kind][rank]))
            done[kind][rank] += 1
    # Ranks behind the first may still owe weight gradients.
    for rank in range(pp):
        orders[rank] += [("W", 0, each) for each in range(done["W"][rank], micro_batches)]
    return orders


@lru_cache(maxsize=256)
def schedule(pp: int, vpp: int, micro_batches: int, zero_bubble: bool = False) -> Schedule:
    """Levels of the schedule's graph."""
    if zero_bubble:
        orders = zero_bubble_orders(pp, micro_batches)
    else:
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
                duration = "FBW".index(kind) * pp * vpp + stage
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
    if kind == "W":
        return ("B", stage, micro_batch)
    return ("B", stage + 1, micro_batch) if stage + 1 < stages else ("F", stage, micro_batch)


def step_seconds(
    forward: np.ndarray,
    backward: np.ndarray,
    pp: int,
    vpp: int,
    micro_batches: int,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Seconds from the first forward to the last backward.

    Args:
        forward: seconds of each virtual stage's forward, shape (pp vpp, n); stage s lies on rank s mod pp.
        backward: the same with recomputation and backward.
        pp: pipeline ranks.
        vpp: chunks a rank.
        micro_batches: passes of each chunk.
        weights: seconds of weight gradients, part of ``backward``, which a zero-bubble schedule puts off; None: it does
            not.
    """
    passes = [forward, backward] if weights is None else [forward, backward - weights, weights]
    durations = np.concatenate(passes)
    deferred = weights is not None
    if pp == 1:
        return micro_batches * (forward + backward).sum(axis=0)
    if micro_batches <= (STEADY_DEPTHS + 1) * pp:
        return _makespan(durations, schedule(pp, vpp, micro_batches, deferred))
    # The graph repeats itself every pp micro-batches; a max-plus recurrence is linear once it has settled, and
    # never faster than its busiest rank.
    simulated = STEADY_DEPTHS * pp + micro_batches % pp
    early, late = (_makespan(durations, schedule(pp, vpp, simulated + extra, deferred)) for extra in (0, pp))
    busiest = (forward + backward).reshape(vpp, pp, -1).sum(axis=0).max(axis=0)
    return late + (micro_batches - simulated - pp) / pp * np.maximum(late - early, pp * busiest)


def _makespan(durations: np.ndarray, plan: Schedule) -> np.ndarray:
    """Makespan of every column, as many at a time as stay in the cache."""
    width = max(64, CACHED_VALUES // (plan.durations.size + 1))
    parts = [_finish(durations[:, start : start + width], plan) for start in range(0, durations.shape[1], width)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _finish(durations: np.ndarray, plan: Schedule) -> np.ndarray:
    finish = np.zeros((plan.durations.size + 1, durations.shape[1]))
    finish[1:] = durations[plan.durations]
    first = 1
    for end, (before, dependency) in zip(plan.ends, plan.needs, strict=True):
        finish[first:end] += np.maximum(finish[before], finish[dependency])
        first = end
    last: np.ndarray = finish.max(axis=0)
    return last
