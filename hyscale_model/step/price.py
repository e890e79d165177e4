"""Blocks of several systems with the time of each phase; what systems have in common is timed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.layers.model_blocks import model_blocks
from hyscale_model.layers.operation import Block, Operation, Phase, Task
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.rates.roofline import OperationTimes, Rates
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.graph import BlockTime, walk


@dataclass(frozen=True, slots=True)
class PricedCase:
    """One system's blocks in the order of ``BLOCKS``, with the time of each phase that runs."""

    blocks: tuple[Block, ...]
    times: tuple[dict[Phase, BlockTime], ...]


@dataclass(frozen=True, slots=True)
class Priced:
    """Several systems, and the operations behind them."""

    cases: tuple[PricedCase, ...]
    number: dict[Operation, int]
    operations: OperationTimes


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
    built: list[tuple[Block, ...]] = []
    for case, size in zip(cases, sizes, strict=True):
        known = next(
            (done for done, other in zip(built, cases, strict=False) if _same_but_attention(case, other)), None
        )
        built.append(model_blocks(case, size, rates.factor, known))
    number: dict[Operation, int] = {}
    for blocks in built:
        for block in blocks:
            for _, tasks in block.phases():
                for task in tasks:
                    if isinstance(task.work, Operation):
                        number.setdefault(task.work, len(number))
    timed = rates.times(list(number))
    contention = rates.factor("overlap_contention")
    walked: dict[tuple[int, bool], dict[Phase, BlockTime]] = {}
    priced = []
    for case, network, blocks in zip(cases, networks, built, strict=True):

        def seconds(task: Task, network: Network = network) -> Number:
            if isinstance(task.work, Operation):
                return timed.seconds[number[task.work]]
            return network.seconds(task.work)

        recompute = case.training.recompute == "full"
        times = []
        for block in blocks:
            key = (id(block), recompute)
            if key not in walked:
                walked[key] = _walk_phases(block, recompute, seconds, contention)
            times.append(walked[key])
        priced.append(PricedCase(blocks, tuple(times)))
    return Priced(tuple(priced), number, timed)


def _same_but_attention(case: Scenario, other: Scenario) -> bool:
    """Whether everything but the attention block is the same: the switches that matter there are selection's."""
    return (
        case.layout is other.layout
        and case.training is other.training
        and _same(case.systems[0].dispatcher, other.systems[0].dispatcher)
    )


def _same(value: Number, other: Number) -> bool:
    return value is other if isinstance(value, np.ndarray) else bool(value == other)


def _walk_phases(
    block: Block, recompute: bool, seconds: Callable[[Task], Number], contention: Number
) -> dict[Phase, BlockTime]:
    done: dict[int, BlockTime] = {}
    result: dict[Phase, BlockTime] = {}
    for phase, tasks in running_phases(block, recompute):
        # Recomputation of a block without selection is its forward pass over again.
        same = phase == "recompute" and block.name != "attention" and id(tasks) in done
        result[phase] = done[id(tasks)] if same else walk(tasks, phase, seconds, contention)
        done[id(tasks)] = result[phase]
    return result
