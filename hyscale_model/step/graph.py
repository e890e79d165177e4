"""The time of a block: its tasks on a compute stream and one stream per parallel group.

Tasks are issued in order, which is a topological order, so one pass gives the critical path. Time that
computation waits for a transfer is exposed and belongs to the transfer's term; the rest of a transfer
is hidden, and slows the computation beside it by the share of the GPU that the transfer occupies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hyscale_model.arrays import Number, maximum
from hyscale_model.layers.operation import Phase, Task, Transfer

# Terms that a phase splits: what a task calls "selection" is priced apart in each phase.
PHASE_TERMS = {
    ("selection", "forward"): "selection_forward",
    ("selection", "recompute"): "selection_recompute",
    ("sparse_attention", "forward"): "sparse_attention_forward",
    ("sparse_attention", "recompute"): "sparse_attention_recompute",
    ("sparse_attention", "backward"): "sparse_attention_backward",
}


@dataclass(slots=True)
class BlockTime:
    """Seconds of one block in one phase: total, by term (sums to the total), hidden transfers by group."""

    total: Number = 0.0
    terms: dict[str, Number] = field(default_factory=dict)
    hidden: dict[str, Number] = field(default_factory=dict)

    def add(self, term: str, seconds: Number) -> None:
        """Let time pass on the compute stream."""
        self.terms[term] = self.terms[term] + seconds if term in self.terms else seconds
        self.total = self.total + seconds

    @classmethod
    def merged(cls, times: Iterable[BlockTime]) -> BlockTime:
        """One after another: sums of total, terms and hidden transfers."""
        result = cls()
        for time in times:
            result.total = result.total + time.total
            for term, seconds in time.terms.items():
                result.terms[term] = result.terms[term] + seconds if term in result.terms else seconds
            for group, seconds in time.hidden.items():
                result.hidden[group] = result.hidden.get(group, 0.0) + seconds
        return result


def term_of(task: Task, phase: Phase) -> str:
    """The result term of a task in a phase."""
    return PHASE_TERMS.get((task.term, phase), task.term)


def walk(tasks: Iterable[Task], phase: Phase, seconds: Callable[[Task], Number], contention: Number) -> BlockTime:
    """Time a block.

    Args:
        tasks: the block's tasks in issue order.
        phase: which phase they run in.
        seconds: duration of a task on its own stream.
        contention: compute time lost per second of hidden transfer.
    """
    time = BlockTime()
    free: dict[str, Number] = {}
    running: dict[str, tuple[Task, Number, Number]] = {}
    for task in tasks:
        if not isinstance(task.work, Transfer):
            for name in task.after:
                if name in running:
                    _wait(time, *running.pop(name), phase, contention)
            time.add(term_of(task, phase), seconds(task))
            continue
        group = task.work.group
        if task.blocking and group not in free:
            time.add(term_of(task, phase), seconds(task))
            continue
        start = maximum(time.total, free[group]) if group in free else time.total
        end = start + seconds(task)
        if task.blocking:
            time.add(term_of(task, phase), end - time.total)
        else:
            free[group] = end
            running[task.name] = (task, start, end)
    for pending in list(running.values()):
        _wait(time, *pending, phase, contention)
    return time


def _wait(time: BlockTime, task: Task, start: Number, end: Number, phase: Phase, contention: Number) -> None:
    assert isinstance(task.work, Transfer)
    exposed = maximum(end - time.total, 0.0)
    hidden = end - start - exposed
    group = task.work.group
    time.hidden[group] = time.hidden.get(group, 0.0) + hidden
    time.add(term_of(task, phase), exposed + contention * hidden)
