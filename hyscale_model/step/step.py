"""The time of a step, by term, on the pipeline rank with the most work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.layers.model_blocks import BLOCKS
from hyscale_model.layers.operation import Operation, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.prediction import TERMS, Origin
from hyscale_model.rates.roofline import Rates, weakest
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import block_parameters, gradient_transfers, optimizer_operation
from hyscale_model.step.pipeline import Structure, join
from hyscale_model.step.price import Priced, price
from hyscale_model.step.schedule import step_seconds

NAMES = tuple(TERMS)
ROW = {term: row for row, term in enumerate(NAMES)}
# Time in these terms is not work of the compute stream.
IDLE_TERMS = (*(term for term in TERMS if term.endswith("_exposed")), "waiting", "pp_bubble", "offload")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step on its critical pipeline rank.

    Attributes:
        seconds: step time, shape (points, draws).
        terms: seconds by term in the order of ``TERMS``, shape (terms, points, draws); they sum to ``seconds``.
        hidden: seconds of transfers hidden behind computation, by parallel group.
        stage: pipeline rank of the terms, shape (points, draws).
        runs: how often each block runs on that rank at the nominal point, in the order of ``BLOCKS``.
    """

    seconds: np.ndarray
    terms: np.ndarray
    hidden: dict[str, np.ndarray]
    stage: np.ndarray
    runs: np.ndarray

    def term(self, name: str) -> np.ndarray:
        """Seconds of one term, shape (points, draws)."""
        return self.terms[ROW[name]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What stands behind the terms at the nominal point: floors at the peaks, what binds, where rates come from."""

    floor_s: dict[str, float]
    bound_by: dict[str, str]
    origins: dict[str, Origin]


def step_times(
    cases: Sequence[Scenario],
    sizes: Sequence[Sizes],
    pipelines: Sequence[Sequence[Structure]],
    rates: Rates,
    shape: tuple[int, int],
) -> tuple[list[StepTime], Priced]:
    """Time a step of several systems of one scenario that have the same pipeline depth.

    Args:
        cases: one scenario each, with one system, its overrides applied.
        sizes: their sizes.
        pipelines: the structures of each.
        rates: rates of the GPU they share.
        shape: (points, draws) of the batch.
    """
    networks = [Network(case, size) for case, size in zip(cases, sizes, strict=True)]
    priced = price(cases, sizes, networks, rates)
    count, columns = len(cases), shape[0] * shape[1]
    # One flat axis over (case, point, draw); ``by_case`` views of the same memory are filled case by case.
    by_case = (count, *shape)
    forward, backward = np.empty((2, len(BLOCKS), count * columns))
    sends = np.empty(count * columns)
    terms_of, hidden_of = _Table(count, shape), _Table(count, shape)
    for index, (case, size, network) in enumerate(zip(cases, sizes, networks, strict=True)):
        sends.reshape(by_case)[index] = network.seconds(_send(case, size))
    for block in range(len(BLOCKS)):
        for members in _sharing([case.both[block] for case in priced.cases]):
            ahead, both = priced.cases[members[0]].forward[block], priced.cases[members[0]].both[block]
            forward[block].reshape(by_case)[members] = ahead.total
            backward[block].reshape(by_case)[members] = both.total - ahead.total
            for term, value in both.terms.items():
                terms_of.set(block, term, members, value)
            for name, value in both.hidden.items():
                hidden_of.set(block, name, members, value)

    groups = join(pipelines, columns)
    once = _once(cases, sizes, networks, rates, [group.rank_counts for group in groups], shape)
    seconds = np.empty(count * columns)
    stage_of = np.empty(count * columns, dtype=int)
    terms = np.empty((len(NAMES), count * columns))
    hidden = {name: np.zeros(count * columns) for _, name in hidden_of.rows}
    runs = np.zeros((len(BLOCKS), count * columns))
    for group in groups:
        at = slice(None) if len(groups) == 1 else group.columns
        makespan, stage = _pipeline(group, forward[:, at], backward[:, at], sends[at])
        optimizer, exchange = (part[:, at] for part in once[group.rank_counts.tobytes()])
        last = (optimizer + exchange).max(axis=0)
        runs[:, at] = group.micro_batches * group.rank_counts[stage].T
        run = runs[:, at]
        part = np.zeros((len(NAMES), stage.size))
        for (block, term), values in terms_of.rows.items():
            part[ROW[term]] += run[block] * values[at]
        for (block, name), values in hidden_of.rows.items():
            hidden[name][at] += run[block] * values[at]
        pick = (stage, np.arange(stage.size))
        part[ROW["pp_communication_exposed"]] += _sends(group)[stage] * sends[at]
        part[ROW["pp_bubble"]] = makespan - part.sum(axis=0)
        part[ROW["optimizer"]] = optimizer[pick]
        part[ROW["dp_communication_exposed"]] = exchange[pick]
        part[ROW["waiting"]] += last - optimizer[pick] - exchange[pick]
        terms[:, at] = part
        seconds[at] = makespan + last
        stage_of[at] = stage

    results = [
        StepTime(
            seconds=seconds.reshape(by_case)[index],
            terms=terms.reshape(len(NAMES), *by_case)[:, index],
            hidden={name: values.reshape(by_case)[index] for name, values in hidden.items()},
            stage=stage_of.reshape(by_case)[index],
            runs=runs.reshape(len(BLOCKS), *by_case)[:, index, 0, 0],
        )
        for index in range(count)
    ]
    return results, priced


def _sharing(items: Sequence[object]) -> list[list[int]]:
    """Indices of equal objects together."""
    found: dict[int, list[int]] = {}
    for index, item in enumerate(items):
        found.setdefault(id(item), []).append(index)
    return list(found.values())


class _Table:
    """Values by block and name, over the flat axis of (case, point, draw)."""

    def __init__(self, cases: int, shape: tuple[int, int]) -> None:
        self.rows: dict[tuple[int, str], np.ndarray] = {}
        self._shape = (cases, *shape)

    def set(self, block: int, name: str, cases: list[int], value: Number) -> None:
        """Set the value of some cases; the others have none."""
        if (block, name) not in self.rows:
            self.rows[block, name] = np.zeros(int(np.prod(self._shape)))
        self.rows[block, name].reshape(self._shape)[cases] = value


def _send(case: Scenario, sizes: Sizes) -> Transfer:
    return Transfer(kind="send", group="pp", payload_bytes=sizes.queries * case.model.hidden_size * BF16_BYTES)


def _sends(group: Structure) -> np.ndarray:
    """Activations and gradients each rank sends in a step: every virtual boundary once forward, once backward."""
    virtual = np.full(group.pp * group.vpp, 2.0 if group.pp > 1 else 0.0)
    if group.pp > 1:
        virtual[[0, -1]] -= 1
    return group.micro_batches * virtual.reshape(group.vpp, group.pp).sum(axis=0)


def _pipeline(
    group: Structure, forward: np.ndarray, backward: np.ndarray, send: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Makespan and critical rank. Sends block their sender (Megatron-LM without overlapped sends)."""
    crosses = np.ones((group.pp * group.vpp, 2)) * (group.pp > 1)
    crosses[-1, 0] = crosses[0, 1] = 0
    ahead = group.counts @ forward + crosses[:, :1] * send
    back = group.counts @ backward + crosses[:, 1:] * send
    busy = (ahead + back).reshape(group.vpp, group.pp, -1).sum(axis=0)
    return step_seconds(ahead, back, group.pp, group.vpp, group.micro_batches), busy.argmax(axis=0)


def _once(
    cases: Sequence[Scenario],
    sizes: Sequence[Sizes],
    networks: Sequence[Network],
    rates: Rates,
    counts: Sequence[np.ndarray],
    shape: tuple[int, int],
) -> dict[bytes, tuple[np.ndarray, np.ndarray]]:
    """Seconds of optimizer and gradient exchange of each pipeline rank, shape (pp, cases x points x draws).

    By the blocks that the ranks hold; cases that differ in selection alone are computed once.
    """
    held = {count.tobytes(): count for count in counts}
    alike: dict[tuple[int, int], list[int]] = {}
    for index, case in enumerate(cases):
        alike.setdefault((id(case.layout), id(case.training)), []).append(index)
    parameters = [block_parameters(cases[members[0]]) for members in alike.values()]
    operations: list[Operation] = []
    places: list[tuple[bytes, int, list[int], np.ndarray, np.ndarray]] = []
    for members, (shared, experts) in zip(alike.values(), parameters, strict=True):
        first = members[0]
        for key, count in held.items():
            both = (np.tensordot(count, part, axes=1) for part in (shared, experts))
            for rank, (replicated, routed) in enumerate(zip(*both, strict=True)):
                operations.append(optimizer_operation(cases[first], sizes[first], replicated, routed))
                places.append((key, rank, members, replicated, routed))
    in_step = rates.factor("step_over_kernels")
    seconds = [in_step * kernel for kernel in rates.times(operations).seconds]
    result = {key: np.empty((2, count.shape[0], len(cases), *shape)) for key, count in held.items()}
    for row, (key, rank, members, replicated, routed) in enumerate(places):
        transfers = gradient_transfers(cases[members[0]], replicated, routed)
        result[key][0, rank, members] = seconds[row]
        result[key][1, rank, members] = sum(networks[members[0]].seconds(transfer) for transfer in transfers)
    return {
        key: (part[0].reshape(part.shape[1], -1), part[1].reshape(part.shape[1], -1)) for key, part in result.items()
    }


def explain(priced: Priced, index: int, step: StepTime) -> Explanation:
    """What binds each term of one of the priced systems, its least certain origin and its floor."""
    shares: dict[str, dict[str, float]] = {}
    origins: dict[str, list[Origin]] = {}
    floors: dict[str, float] = {}
    case = priced.cases[index]
    for block, runs in zip(case.blocks, step.runs.tolist(), strict=True):
        for part in priced.parts(block, case.recompute) if runs else ():
            by_resource = shares.setdefault(part.term, {})
            by_resource[part.resource] = by_resource.get(part.resource, 0.0) + runs * part.seconds
            floors[part.term] = floors.get(part.term, 0.0) + runs * part.floor_s
            origins.setdefault(part.term, []).append(part.origin)
    bound_by = {term: max(part, key=part.__getitem__) for term, part in shares.items()}
    return Explanation(floors, bound_by, {term: weakest(found) for term, found in origins.items()})
