"""The time of a block: its tasks on a compute stream and one stream per parallel group.

Tasks are issued in order, which is a topological order, so one pass gives the critical path. Time that
computation waits for a transfer is exposed and belongs to the transfer's term; the rest of a transfer
is hidden, and slows the computation beside it by the share of the GPU that the transfer occupies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hyscale_model.arrays import Number, maximum
from hyscale_model.layers.operation import Phase, Task, Transfer
from hyscale_model.rates.cost import Cost

# Terms that a phase splits: what a task calls "selection" is priced apart in each phase.
PHASE_TERMS = {
    ("selection", "forward"): "selection_forward",
    ("selection", "recompute"): "selection_recompute",
    ("sparse_attention", "forward"): "sparse_attention_forward",
    ("sparse_attention", "recompute"): "sparse_attention_recompute",
    ("sparse_attention", "backward"): "sparse_attention_backward",
}
SPLIT_TERMS = frozenset(term for term, _ in PHASE_TERMS)


@dataclass(slots=True)
class BlockTime:
    """Seconds of one block: costs to sum by term, and seconds of hidden transfers by parallel group."""

    terms: defaultdict[str, list[Cost]] = field(default_factory=lambda: defaultdict(list))
    hidden: dict[str, Number] = field(default_factory=dict)

    def add(self, term: str, cost: Cost) -> None:
        """Let time pass on the compute stream."""
        self.terms[term].append(cost)

    def total(self) -> list[Cost]:
        """Costs of all terms."""
        return [cost for costs in self.terms.values() for cost in costs]

    @classmethod
    def merged(cls, times: Iterable[BlockTime]) -> BlockTime:
        """One after another."""
        result = cls()
        for time in times:
            for term, costs in time.terms.items():
                result.terms[term].extend(costs)
            for group, seconds in time.hidden.items():
                result.hidden[group] = result.hidden.get(group, 0.0) + seconds
        return result


@dataclass(frozen=True, slots=True)
class Clock:
    """How costs become time: ``cost`` of a task on its own stream, ``evaluate`` of a sum, and ``contention``,
    compute time lost per second of hidden transfer."""

    cost: Callable[[Task], Cost]
    evaluate: Callable[[Sequence[Cost]], np.ndarray]
    contention: Number


def term_of(task: Task, phase: Phase) -> str:
    """The result term of a task in a phase."""
    return PHASE_TERMS[task.term, phase] if task.term in SPLIT_TERMS else task.term


def walk(tasks: Iterable[Task], phase: Phase, clock: Clock) -> BlockTime:
    """Time a block.

    Costs are only summed; times are evaluated where a transfer runs beside computation.

    Args:
        tasks: the block's tasks in issue order.
        phase: which phase they run in.
        clock: durations.
    """
    time = BlockTime()
    free: dict[str, Number] = {}
    running: dict[str, _Running] = {}
    for task in tasks:
        cost = clock.cost(task)
        if not isinstance(task.work, Transfer):
            for name in task.after:
                if name in running:
                    _wait(time, running.pop(name), phase, clock)
            time.add(term_of(task, phase), cost)
            continue
        group = task.work.group
        if task.blocking and group not in free:
            time.add(term_of(task, phase), cost)
            continue
        now = clock.evaluate(time.total())
        start = maximum(now, free[group]) if group in free else now
        end = start + clock.evaluate([cost])
        if task.blocking:
            time.add(term_of(task, phase), Cost(rest=end - now))
        else:
            free[group] = end
            running[task.name] = _Running(task, start, end)
    for pending in running.values():
        _wait(time, pending, phase, clock)
    return time


@dataclass(frozen=True, slots=True)
class _Running:
    """A transfer beside computation, with its start and end."""

    task: Task
    start: Number
    end: Number


def _wait(time: BlockTime, running: _Running, phase: Phase, clock: Clock) -> None:
    work = running.task.work
    assert isinstance(work, Transfer)
    exposed = maximum(running.end - clock.evaluate(time.total()), 0.0)
    hidden = running.end - running.start - exposed
    time.hidden[work.group] = time.hidden.get(work.group, 0.0) + hidden
    time.add(term_of(running.task, phase), Cost(rest=exposed + clock.contention * hidden))
