"""The time of a step, by term, on the pipeline rank with the most work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.layers.model_blocks import BLOCKS
from hyscale_model.layers.operation import Transfer
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.prediction import TERMS, Origin
from hyscale_model.rates.roofline import RESOURCES, Rates, weakest
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.graph import term_of
from hyscale_model.step.optimizer import block_parameters, gradient_transfers, optimizer_operation
from hyscale_model.step.pipeline import Structure, structures
from hyscale_model.step.price import Priced, price, running_phases
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
    cases: Sequence[Scenario], sizes: Sequence[Sizes], rates: Rates, shape: tuple[int, int]
) -> tuple[list[StepTime], Priced]:
    """Time a step of several systems of one scenario that have the same pipeline depth.

    Args:
        cases: one scenario each, with one system, its overrides applied.
        sizes: their sizes.
        rates: rates of the GPU they share.
        shape: (points, draws) of the batch.
    """
    networks = [Network(case, size) for case, size in zip(cases, sizes, strict=True)]
    priced = price(cases, sizes, networks, rates)
    count, columns = len(cases), shape[0] * shape[1]
    # One flat axis over (case, point, draw); ``by_case`` views of the same memory are filled case by case.
    by_case = (count, *shape)
    forward, backward = np.empty((2, len(BLOCKS), count * columns))
    block_terms = np.zeros((len(BLOCKS), len(NAMES), count * columns))
    block_hidden: dict[str, np.ndarray] = {}
    sends = np.empty(count * columns)
    forward_by_case, backward_by_case = (part.reshape(len(BLOCKS), *by_case) for part in (forward, backward))
    terms_by_case = block_terms.reshape(len(BLOCKS), len(NAMES), *by_case)
    for index, (case, size, network, blocks) in enumerate(zip(cases, sizes, networks, priced.cases, strict=True)):
        sends.reshape(by_case)[index] = network.seconds(_send(case, size))
        for block, phases in enumerate(blocks.times):
            forward_by_case[block, index] = phases["forward"].total
            backward_by_case[block, index] = sum(time.total for phase, time in phases.items() if phase != "forward")
            for time in phases.values():
                for term, value in time.terms.items():
                    terms_by_case[block, ROW[term], index] += value
                for group_name, value in time.hidden.items():
                    kept = block_hidden.setdefault(group_name, np.zeros_like(forward))
                    kept.reshape(len(BLOCKS), *by_case)[block, index] += value

    once: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    seconds = np.empty(count * columns)
    stage_of = np.empty(count * columns, dtype=int)
    terms = np.empty((len(NAMES), count * columns))
    hidden = {name: np.empty(count * columns) for name in block_hidden}
    runs = np.zeros((len(BLOCKS), count * columns))
    for group in structures(cases, sizes, shape):
        at = group.columns
        makespan, stage = _pipeline(group, forward[:, at], backward[:, at], sends[at])
        key = group.rank_counts.tobytes()
        if key not in once:
            once[key] = _once(cases, sizes, networks, rates, group.rank_counts, shape)
        optimizer, exchange = (part[:, at] for part in once[key])
        last = (optimizer + exchange).max(axis=0)
        runs[:, at] = group.micro_batches * group.rank_counts[stage].T
        part = np.einsum("bn,btn->tn", runs[:, at], block_terms[:, :, at])
        for name, per_block in block_hidden.items():
            hidden[name][at] = np.einsum("bn,bn->n", runs[:, at], per_block[:, at])
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
    counts: np.ndarray,
    shape: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of optimizer and gradient exchange of each pipeline rank, shape (pp, cases x points x draws)."""
    optimizer = np.empty((len(counts), len(cases), *shape))
    exchange = np.empty_like(optimizer)
    for index, (case, size, network) in enumerate(zip(cases, sizes, networks, strict=True)):
        twin = next(
            (i for i in range(index) if cases[i].layout is case.layout and cases[i].training is case.training), None
        )
        if twin is not None:
            optimizer[:, index], exchange[:, index] = optimizer[:, twin], exchange[:, twin]
            continue
        held = [np.tensordot(counts, part, axes=1) for part in block_parameters(case)]
        operations = [optimizer_operation(case, size, *both) for both in zip(*held, strict=True)]
        optimizer[:, index] = rates.times(operations).seconds
        for rank, shared in enumerate(held[0]):
            exchange[rank, index] = sum(network.seconds(transfer) for transfer in gradient_transfers(case, shared))
    return optimizer.reshape(len(counts), -1), exchange.reshape(len(counts), -1)


def explain(priced: Priced, index: int, step: StepTime, recompute: bool) -> Explanation:
    """What binds each term of one of the priced systems, its least certain origin and its floor."""
    shares: dict[str, dict[str, float]] = {}
    sources: dict[str, dict[Origin, None]] = {}
    floors: dict[str, float] = {}
    nominal = priced.operations.seconds[:, 0, 0].tolist()
    floor = priced.operations.floor_s.tolist()
    binding = priced.operations.binding.tolist()
    network = Origin("published", "bus bandwidth of NCCL on the cluster's links")
    for block, runs in zip(priced.cases[index].blocks, step.runs.tolist(), strict=True):
        if not runs:
            continue
        for phase, tasks in running_phases(block, recompute):
            for task in tasks:
                term = term_of(task, phase)
                if isinstance(task.work, Transfer):
                    resource, seconds, lowest, origin = "network", 0.0, 0.0, network
                else:
                    row = priced.number[task.work]
                    resource, seconds, lowest = RESOURCES[binding[row]], nominal[row], floor[row]
                    origin = priced.operations.origins[row]
                part = shares.setdefault(term, {})
                part[resource] = part.get(resource, 0.0) + runs * seconds
                sources.setdefault(term, {})[origin] = None
                floors[term] = floors.get(term, 0.0) + runs * lowest
    bound_by = {term: max(part, key=part.__getitem__) for term, part in shares.items()}
    return Explanation(floors, bound_by, {term: weakest(list(found)) for term, found in sources.items()})
