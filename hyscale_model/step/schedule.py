"""How long a step takes: the passes of all pipeline ranks as a graph, and its longest path.

Ranks run the fixed orders of ``step.orders``. A pass starts when the pass before it on the rank and the passes it
depends on have finished, so a step is a longest path, evaluated level by level with array-valued durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hyscale_model.step.orders import Item, Kind, orders_of

# After this many rounds of pp micro-batches a schedule has settled into its steady state.
STEADY_DEPTHS = 6
# Numbers of a schedule that are worked on at a time: 512 KiB.
CACHED_VALUES = 65536
# Durations of passes in the order in which they are laid one after another, a virtual stage (dualpipe: a stage) each.
DURATIONS = "FBWIP"
Event = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Dependency graph of a step. Passes are numbered from 1 level by level; 0 is the start of the step.

    Attributes:
        ends: number of the first pass after each level.
        needs: for each level, the numbers of what its passes wait for, shape (predecessors, passes).
        durations: for each pass, which row of the durations is its own: see ``DURATIONS``.
        passes: (rank, pass) in the order of their numbers.
    """

    ends: tuple[int, ...]
    needs: tuple[np.ndarray, ...]
    durations: np.ndarray
    passes: tuple[tuple[int, Item], ...]


@lru_cache(maxsize=256)
def schedule(pp: int, vpp: int, micro_batches: int, kind: Kind = "1f1b") -> Schedule:
    """Levels of the schedule's graph.

    Raises:
        ValueError: ranks wait for each other in a circle.
    """
    orders = orders_of(kind, pp, vpp, micro_batches)
    # Stages that a micro-batch passes, and the rows of each kind of duration.
    length = pp if kind == "dualpipe" else pp * vpp
    number: dict[Event, int] = {}
    numbers: list[list[int]] = []
    count = 0
    for rank, order in enumerate(orders):
        numbers.append([])
        for item in order:
            count += 1
            numbers[-1].append(count)
            for event in _gives(item, rank, pp, kind):
                number[event] = count
    level_of = {0: 0}
    levels: list[list[tuple[int, tuple[int, ...], int, int, Item]]] = []
    position, last = [0] * pp, [0] * pp
    remaining = count
    while remaining:
        before = remaining
        for rank, order in enumerate(orders):
            while position[rank] < len(order):
                item = order[position[rank]]
                node = numbers[rank][position[rank]]
                needs = [number[event] for event in _waits_for(item, rank, pp, length, kind)]
                if any(each not in level_of for each in needs):
                    break
                level = max(level_of[last[rank]], *(level_of[each] for each in (*needs, 0)))
                level_of[node] = level + 1
                if level == len(levels):
                    levels.append([])
                stage = _stage(item[1], rank, pp, kind)
                duration = DURATIONS.index(item[0]) * length + stage % length
                levels[level].append((node, (last[rank], *needs), duration, rank, item))
                last[rank] = node
                position[rank] += 1
                remaining -= 1
        if remaining == before:
            raise ValueError(f"schedule of {pp} x {vpp} stages with {micro_batches} micro-batches cannot proceed")
    return _packed(levels)


def _packed(levels: list[list[tuple[int, tuple[int, ...], int, int, Item]]]) -> Schedule:
    """Renumber level by level, so that the passes of a level lie side by side."""
    place = {0: 0}
    for level in levels:
        for node, *_ in level:
            place[node] = len(place)
    needs = []
    for level in levels:
        width = max(2, max(len(waits) for _, waits, *_ in level))
        padded = [[*waits, *[0] * (width - len(waits))] for _, waits, *_ in level]
        needs.append(np.array([[place[each] for each in waits] for waits in padded]).T)
    ends = tuple((1 + np.cumsum([len(level) for level in levels])).tolist())
    durations = np.array([duration for level in levels for _, _, duration, _, _ in level])
    passes = tuple((rank, item) for level in levels for *_, rank, item in level)
    return Schedule(ends, tuple(needs), durations, passes)


def _stage(chunk: int, rank: int, pp: int, kind: Kind) -> int:
    """The virtual stage of a chunk; under dualpipe chunk 1 counts its own pp stages from the last rank on."""
    if kind == "dualpipe" and chunk:
        return pp + pp - 1 - rank
    return chunk * pp + rank


def _gives(item: Item, rank: int, pp: int, kind: Kind) -> list[Event]:
    """What others can wait for once a pass has ended."""
    if item[0] == "P":
        return [
            ("F", _stage(item[1], rank, pp, kind), item[2]),
            ("B", _stage(1 - item[1], rank, pp, kind), item[-1]),
        ]
    return [("B" if item[0] == "I" else item[0], _stage(item[1], rank, pp, kind), item[2])]


def _waits_for(item: Item, rank: int, pp: int, length: int, kind: Kind) -> list[Event]:
    """What a pass needs from other ranks, or of its own rank's earlier passes."""
    found: list[Event] = []
    for name, stage, micro_batch in _gives(item, rank, pp, kind):
        at = stage % length
        if name == "F":
            found += [("F", stage - 1, micro_batch)] if at else []
        elif name == "W":
            found.append(("B", stage, micro_batch))
        else:
            found.append(("B", stage + 1, micro_batch) if at + 1 < length else ("F", stage, micro_batch))
    return found


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
    if pp == 1:
        return micro_batches * (forward + backward).sum(axis=0)
    passes = [forward, backward] if weights is None else [forward, backward - weights, weights]
    busiest = (forward + backward).reshape(vpp, pp, -1).sum(axis=0).max(axis=0)
    kind: Kind = "1f1b" if weights is None else "zero_bubble"
    return _settled(np.concatenate(passes), pp, vpp, micro_batches, kind, pp * busiest)


def dual_seconds(
    forward: np.ndarray, backward: np.ndarray, weights: np.ndarray, pairs: np.ndarray, micro_batches: int
) -> np.ndarray:
    """Seconds from the first forward to the last backward under DualPipe.

    Args:
        forward: seconds of each stage's forward, shape (pp, n); rank r holds stage r and stage pp - 1 - r.
        backward: the same with recomputation and backward.
        weights: seconds of weight gradients, part of ``backward``.
        pairs: seconds of a stage's forward beside the backward of the other stage of its rank, by the former.
        micro_batches: of both directions together; even, at least 2 pp.
    """
    pp = forward.shape[0]
    durations = np.concatenate([forward, backward, weights, backward - weights, pairs])
    # In its steady state a rank runs one pair of either kind for every two micro-batches.
    busiest = (pairs + pairs[::-1]).max(axis=0)
    return _settled(durations, pp, 1, micro_batches, "dualpipe", pp / 2 * busiest)


def _settled(
    durations: np.ndarray, pp: int, vpp: int, micro_batches: int, kind: Kind, busiest: np.ndarray
) -> np.ndarray:
    """Makespan, of many micro-batches by what another round of pp adds; ``busiest``: the least that it can add."""
    if micro_batches <= (STEADY_DEPTHS + 1) * pp:
        return _makespan(durations, schedule(pp, vpp, micro_batches, kind))
    # The graph repeats itself every pp micro-batches; a max-plus recurrence is linear once it has settled, and
    # never faster than its busiest rank.
    simulated = STEADY_DEPTHS * pp + micro_batches % pp
    early, late = (_makespan(durations, schedule(pp, vpp, simulated + extra, kind)) for extra in (0, pp))
    return late + (micro_batches - simulated - pp) / pp * np.maximum(late - early, busiest)


def _makespan(durations: np.ndarray, plan: Schedule) -> np.ndarray:
    """Makespan of every column, as many at a time as stay in the cache."""
    width = max(64, CACHED_VALUES // (plan.durations.size + 1))
    starts = range(0, durations.shape[1], width)
    parts = [finish_times(durations[:, start : start + width], plan).max(axis=0) for start in starts]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def finish_times(durations: np.ndarray, plan: Schedule) -> np.ndarray:
    """When each pass ends, shape (passes + 1, n); row 0 is the start of the step.

    Args:
        durations: seconds of the kinds of passes laid one after another as ``DURATIONS`` has them, shape (rows, n).
        plan: the graph.
    """
    finish = np.zeros((plan.durations.size + 1, durations.shape[1]))
    # Taking rows costs half as much as indexing them.
    durations.take(plan.durations, axis=0, out=finish[1:], mode="clip")
    first = 1
    for end, needed in zip(plan.ends, plan.needs, strict=True):
        finish[first:end] += np.maximum.reduce(finish.take(needed, axis=0))
        first = end
    return finish
