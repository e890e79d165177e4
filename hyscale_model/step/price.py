"""Blocks of several systems with the time of each phase; what systems have in common is timed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hyscale_model.arrays import Number
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.model_blocks import model_blocks
from hyscale_model.layers.operation import Block, Operation, Phase, Task
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.prediction import Origin
from hyscale_model.rates.roofline import RESOURCES, OperationTimes, Rates, weakest
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.graph import BlockTime, term_of, walk

NETWORK_ORIGIN = Origin("published", "bus bandwidth of NCCL on the cluster's links")


@dataclass(frozen=True, slots=True)
class Part:
    """The nominal time of a block in one term on one resource, with its floor and least certain origin."""

    term: str
    resource: str
    seconds: float
    floor_s: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class PricedCase:
    """One system's blocks in the order of ``BLOCKS``, with the time of each forward pass and of all phases together."""

    blocks: tuple[Block, ...]
    forward: tuple[BlockTime, ...]
    both: tuple[BlockTime, ...]
    recompute: bool


@dataclass(frozen=True, slots=True)
class Priced:
    """Several systems of one scenario, and the operations behind them."""

    cases: tuple[PricedCase, ...]
    number: dict[Operation, int]
    operations: OperationTimes
    known: dict[tuple[int, bool], tuple[Part, ...]] = field(default_factory=dict)

    def parts(self, block: Block, recompute: bool) -> tuple[Part, ...]:
        """A block's operations summed by term and resource, at the nominal point."""
        key = (id(block), recompute)
        if key not in self.known:
            self.known[key] = _parts(block, recompute, self.number, self.operations)
        return self.known[key]


def running_phases(block: Block, recompute: bool) -> Iterator[tuple[Phase, tuple[Task, ...]]]:
    """The phases of a block that run."""
    return ((phase, tasks) for phase, tasks in block.phases() if recompute or phase != "recompute")


def price(cases: Sequence[Scenario], sizes: Sequence[Sizes], networks: Sequence[Network], rates: Rates) -> Priced:
    """Build and time the blocks of several systems of one scenario.

    Args:
        cases: one scenario each, with one system.
        sizes: their sizes.
        networks: their networks.
        rates: rates of the GPU they share.
    """
    memo = Memo()
    built = [model_blocks(case, size, rates.factor, memo) for case, size in zip(cases, sizes, strict=True)]
    number: dict[Operation, int] = {}
    for blocks in built:
        for block in blocks:
            for _, tasks in block.phases():
                for task in tasks:
                    if isinstance(task.work, Operation):
                        number.setdefault(task.work, len(number))
    timed = rates.times(list(number))
    contention = rates.factor("overlap_contention")
    in_step = rates.factor("step_over_kernels")
    durations = [in_step * kernel for kernel in timed.seconds]
    walked: dict[tuple[int, bool], tuple[BlockTime, BlockTime]] = {}
    priced = []
    for case, network, blocks in zip(cases, networks, built, strict=True):

        def seconds(task: Task, network: Network = network) -> Number:
            if isinstance(task.work, Operation):
                return durations[number[task.work]]
            return network.seconds(task.work)

        recompute = case.training.recompute == "full"
        for block in blocks:
            if (id(block), recompute) not in walked:
                walked[id(block), recompute] = _walk_phases(block, recompute, seconds, contention)
        forward, both = zip(*(walked[id(block), recompute] for block in blocks), strict=True)
        priced.append(PricedCase(blocks, forward, both, recompute))
    return Priced(tuple(priced), number, timed)


def _parts(block: Block, recompute: bool, number: dict[Operation, int], timed: OperationTimes) -> tuple[Part, ...]:
    """Sum a block's operations by term and resource, at the nominal point."""
    found: dict[tuple[str, str], list[tuple[float, float, Origin]]] = {}
    for phase, tasks in running_phases(block, recompute):
        for task in tasks:
            term = term_of(task, phase)
            if not isinstance(task.work, Operation):
                found.setdefault((term, "network"), []).append((0.0, 0.0, NETWORK_ORIGIN))
                continue
            row = number[task.work]
            share = (timed.nominal_s[row], timed.floor_s[row], timed.origins[row])
            found.setdefault((term, RESOURCES[timed.binding[row]]), []).append(share)
    return tuple(
        Part(
            term, resource, sum(row[0] for row in rows), sum(row[1] for row in rows), weakest([row[2] for row in rows])
        )
        for (term, resource), rows in found.items()
    )


def _walk_phases(
    block: Block, recompute: bool, seconds: Callable[[Task], Number], contention: Number
) -> tuple[BlockTime, BlockTime]:
    """Time of a block's forward phase, and of all phases of a micro-batch together."""
    times = {phase: walk(tasks, phase, seconds, contention) for phase, tasks in running_phases(block, recompute)}
    return times["forward"], BlockTime.merged(times.values())
