"""Blocks of several systems with the cost of each phase; what systems have in common is priced once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.model_blocks import model_blocks
from hyscale_model.layers.operation import Block, Operation, Phase, Task
from hyscale_model.layers.recompute import recompute_key, recompute_tasks
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.prediction import Origin
from hyscale_model.rates.cost import Cost
from hyscale_model.rates.roofline import Nominal, Rates, weakest
from hyscale_model.scenario.schema import Scenario, Training
from hyscale_model.step.graph import BlockTime, Clock, term_of, walk

NETWORK_ORIGIN = Origin("published", "bus bandwidth of NCCL on the cluster's links")
# Of a transfer only the origin is known apart from the step around it.
NETWORK = Nominal(0.0, 0.0, "network", NETWORK_ORIGIN)


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
    """One system's blocks in the order of ``block_names``, with each forward pass and all phases together."""

    blocks: tuple[Block, ...]
    forward: tuple[BlockTime, ...]
    both: tuple[BlockTime, ...]
    training: Training


@dataclass(frozen=True, slots=True)
class Priced:
    """Several systems of one scenario, and the rates behind them."""

    cases: tuple[PricedCase, ...]
    rates: Rates
    known: dict[tuple[int, tuple[str, ...]], tuple[Part, ...]] = field(default_factory=dict)
    nominal: dict[Operation, Nominal] = field(default_factory=dict)
    beyond: dict[tuple[int, tuple[str, ...]], dict[str, Number]] = field(default_factory=dict)

    def parts(self, block: Block, training: Training) -> tuple[Part, ...]:
        """A block's operations summed by term and resource, at the nominal point."""
        key = (id(block), recompute_key(training))
        if key not in self.known:
            self.known[key] = _parts(block, training, self._nominal)
        return self.known[key]

    def extrapolated(self, block: Block, training: Training) -> Mapping[str, Number]:
        """Terms of a block with a kernel beyond what its law was fitted to, and at which points."""
        key = (id(block), recompute_key(training))
        if key not in self.beyond:
            found: dict[str, Number] = {}
            for phase, tasks in running_phases(block, training):
                for task in tasks:
                    if isinstance(task.work, Operation) and task.work.family in self.rates.measured:
                        term = term_of(task, phase)
                        found[term] = found.get(term, False) | self.rates.is_beyond(task.work)
            self.beyond[key] = found
        return self.beyond[key]

    def _nominal(self, operation: Operation) -> Nominal:
        if operation not in self.nominal:
            self.nominal[operation] = self.rates.nominal(operation)
        return self.nominal[operation]


def running_phases(block: Block, training: Training) -> Iterator[tuple[Phase, tuple[Task, ...]]]:
    """The phases of a block that run, recomputation with the tasks that it repeats."""
    for phase, tasks in block.phases():
        running = recompute_tasks(block, training) if phase == "recompute" else tasks
        if running or phase == "forward":
            yield phase, running


def price(
    cases: Sequence[Scenario], sizes: Sequence[Sizes], networks: Sequence[Network], rates: Rates, shape: tuple[int, int]
) -> Priced:
    """Build and price the blocks of several systems of one scenario.

    Args:
        cases: one scenario each, with one system.
        sizes: their sizes.
        networks: their networks.
        rates: rates of the GPU they share.
        shape: (points, draws) of the batch.
    """
    memo = Memo()
    built = [model_blocks(case, size, rates.factor, memo) for case, size in zip(cases, sizes, strict=True)]
    known: dict[Operation, Cost] = {}

    def evaluate(costs: Sequence[Cost]) -> np.ndarray:
        seconds: np.ndarray = rates.coefficients.evaluate([costs], shape)[0]
        return seconds

    walked: dict[tuple[int, tuple[str, ...]], tuple[BlockTime, BlockTime]] = {}
    priced = []
    for case, network, blocks in zip(cases, networks, built, strict=True):

        def cost(task: Task, network: Network = network) -> Cost:
            if not isinstance(task.work, Operation):
                return network.cost(task.work)
            if task.work not in known:
                known[task.work] = rates.cost(task.work)
            return known[task.work]

        clock = Clock(cost, evaluate, rates.factor("overlap_contention"))
        policy = recompute_key(case.training)
        for block in blocks:
            if (id(block), policy) not in walked:
                walked[id(block), policy] = _walk_phases(block, case.training, clock)
        forward, both = zip(*(walked[id(block), policy] for block in blocks), strict=True)
        priced.append(PricedCase(blocks, forward, both, case.training))
    return Priced(tuple(priced), rates)


def _walk_phases(block: Block, training: Training, clock: Clock) -> tuple[BlockTime, BlockTime]:
    """A block's forward phase, and all phases of a micro-batch together."""
    forward = walk(block.forward, "forward", clock)
    times = [forward]
    for phase, tasks in running_phases(block, training):
        if phase != "forward":
            # Most blocks recompute exactly what they ran forward.
            same = tasks is block.forward and not any(
                term_of(task, phase) != term_of(task, "forward") for task in tasks
            )
            times.append(forward if same else walk(tasks, phase, clock))
    return forward, BlockTime.merged(times)


def _parts(block: Block, training: Training, nominal_of: Callable[[Operation], Nominal]) -> tuple[Part, ...]:
    """Sum a block's operations by term and resource, at the nominal point."""
    found: dict[tuple[str, str], tuple[float, float, Origin]] = {}
    for phase, tasks in running_phases(block, training):
        for task in tasks:
            nominal = nominal_of(task.work) if isinstance(task.work, Operation) else NETWORK
            key = (term_of(task, phase), nominal.resource)
            if key in found:
                seconds, floor_s, origin = found[key]
                origin = weakest([origin, nominal.origin])
                found[key] = seconds + nominal.seconds, floor_s + nominal.floor_s, origin
            else:
                found[key] = nominal.seconds, nominal.floor_s, nominal.origin
    return tuple(Part(*key, seconds, floor_s, origin) for key, (seconds, floor_s, origin) in found.items())
