"""The time of a step of one system, by term, on the pipeline rank with the most work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.layers.model_blocks import model_blocks
from hyscale_model.layers.operation import Block, Operation, Task, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.network.collectives import transfer_seconds
from hyscale_model.prediction import TERMS, Origin
from hyscale_model.rates.roofline import RESOURCES, Rates, weakest
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.graph import BlockTime, term_of, walk
from hyscale_model.step.optimizer import block_parameters, gradient_transfers, optimizer_operation
from hyscale_model.step.pipeline import Structure, structures
from hyscale_model.step.schedule import step_seconds

# Time in these terms is not work of the compute stream.
IDLE_TERMS = tuple(term for term in TERMS if term.endswith("_exposed")) + ("waiting", "pp_bubble", "offload")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step on its critical pipeline rank; arrays have shape (points, draws).

    Attributes:
        seconds: step time; ``terms`` sum to it.
        hidden: seconds of transfers hidden behind computation, by parallel group.
        critical_stage: pipeline rank of the terms, shape (points,).
        floor_s: nominal lower bound by term, at the peaks.
        bound_by: resource that binds most of a term's time.
        origins: least certain origin of a term's rates.
    """

    seconds: np.ndarray
    terms: dict[str, np.ndarray]
    hidden: dict[str, np.ndarray]
    critical_stage: np.ndarray
    floor_s: dict[str, float]
    bound_by: dict[str, str]
    origins: dict[str, Origin]


@dataclass(slots=True)
class _Priced:
    """Blocks with the time of each phase and what each task costs."""

    blocks: tuple[Block, ...]
    times: list[dict[str, BlockTime]]
    operations: dict[Operation, int]
    seconds: np.ndarray
    floor_s: np.ndarray
    binding: np.ndarray
    origins: tuple[Origin, ...]


def _price(case: Scenario, sizes: Sizes, rates: Rates) -> _Priced:
    blocks = model_blocks(case, sizes, rates.factor)
    tasks = [task for block in blocks for _, phase_tasks in block.phases() for task in phase_tasks]
    operations: dict[Operation, int] = {}
    for task in tasks:
        if isinstance(task.work, Operation):
            operations.setdefault(task.work, len(operations))
    timed = rates.times(list(operations))
    transfers: dict[Transfer, Number] = {}

    def seconds(task: Task) -> Number:
        if isinstance(task.work, Operation):
            return timed.seconds[operations[task.work]]
        if task.work not in transfers:
            transfers[task.work] = transfer_seconds(task.work, case, sizes)
        return transfers[task.work]

    contention = rates.factor("overlap_contention")
    recomputed = case.training.recompute == "full"
    times = []
    for block in blocks:
        phases = {
            phase: walk(phase_tasks, phase, seconds, contention)
            for phase, phase_tasks in block.phases()
            if recomputed or phase != "recompute"
        }
        times.append(phases)
    return _Priced(blocks, times, operations, timed.seconds, timed.floor_s, timed.binding, timed.origins)


def step_time(case: Scenario, sizes: Sizes, rates: Rates, shape: tuple[int, int]) -> StepTime:
    """Time a step of ``case`` (one system, overrides applied) for a batch of ``shape`` (points, draws)."""
    priced = _price(case, sizes, rates)
    flat = shape[0] * shape[1]

    def flatten(value: Number) -> np.ndarray:
        return np.broadcast_to(value, shape).reshape(flat)

    send = transfer_seconds(
        Transfer(kind="send", group="pp", payload_bytes=sizes.queries * case.model.hidden_size * BF16_BYTES), case, sizes
    )
    forward = np.stack([flatten(phases["forward"].total) for phases in priced.times])
    backward = np.stack(
        [flatten(phases["backward"].total + _total(phases, "recompute")) for phases in priced.times]
    )
    block_terms = [_merge(phases, "terms") for phases in priced.times]
    block_hidden = [_merge(phases, "hidden") for phases in priced.times]
    once: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    nominal_counts = np.zeros(0)

    result = np.empty(flat)
    stage_of = np.empty(flat, dtype=int)
    terms = {term: np.zeros(flat) for term in TERMS}
    hidden: dict[str, np.ndarray] = {}
    sends = flatten(send)
    for group in structures(case, sizes, shape):
        columns = slice(None) if group.columns is None else group.columns
        makespan, stage = _pipeline(group, group.take(forward), group.take(backward), group.take(sends))
        key = group.rank_counts.tobytes()
        if key not in once:
            once[key] = _once(case, sizes, rates, group.rank_counts, shape)
        optimizer, exchange = (group.take(part) for part in once[key])
        last = (optimizer + exchange).max(axis=0)
        result[columns] = makespan + last
        stage_of[columns] = stage
        counts = group.micro_batches * group.rank_counts[stage].T
        if group.columns is None or group.columns[0] == 0:
            nominal_counts = counts[:, 0]
        for block, per_term in enumerate(block_terms):
            for term, value in per_term.items():
                terms[term][columns] += counts[block] * group.take(flatten(value))
        for block, per_group in enumerate(block_hidden):
            for name, value in per_group.items():
                kept = hidden.setdefault(name, np.zeros(flat))
                kept[columns] += counts[block] * group.take(flatten(value))
        terms["pp_communication_exposed"][columns] += _sends(group)[stage] * group.take(sends)
        busy = sum(values[columns] for values in terms.values())
        pick = (stage, np.arange(stage.size))
        terms["pp_bubble"][columns] = makespan - busy
        terms["optimizer"][columns] = optimizer[pick]
        terms["dp_communication_exposed"][columns] = exchange[pick]
        terms["waiting"][columns] += last - optimizer[pick] - exchange[pick]

    bound_by, origins, floors = _explain(case, priced, nominal_counts)
    return StepTime(
        seconds=result.reshape(shape),
        terms={term: values.reshape(shape) for term, values in terms.items()},
        hidden={name: values.reshape(shape) for name, values in hidden.items()},
        critical_stage=stage_of.reshape(shape)[:, 0],
        floor_s=floors,
        bound_by=bound_by,
        origins=origins,
    )


def _total(phases: dict[str, BlockTime], phase: str) -> Number:
    return phases[phase].total if phase in phases else 0.0


def _merge(phases: dict[str, BlockTime], part: str) -> dict[str, Number]:
    """Sum a part (terms, hidden) over the phases of a block: each phase runs once a micro-batch."""
    merged: dict[str, Number] = {}
    for time in phases.values():
        for name, value in getattr(time, part).items():
            merged[name] = merged[name] + value if name in merged else value
    return merged


def _sends(group: Structure) -> np.ndarray:
    """Activations and gradients each rank sends in a step: every virtual boundary once forward, once backward."""
    virtual = np.full(group.pp * group.vpp, 2.0)
    virtual[0] -= 1
    virtual[-1] -= 1
    if group.pp == 1:
        virtual[:] = 0
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
    case: Scenario, sizes: Sizes, rates: Rates, counts: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of optimizer and gradient exchange of each pipeline rank, shape (pp, points x draws)."""
    shared, experts = (np.tensordot(counts, part, axes=1) for part in block_parameters(case))
    operations = [optimizer_operation(case, sizes, *held) for held in zip(shared, experts, strict=True)]
    exchange = [sum(transfer_seconds(t, case, sizes) for t in gradient_transfers(case, held)) for held in shared]

    def flatten(values: Sequence[Number]) -> np.ndarray:
        return np.stack([np.broadcast_to(value, shape).ravel() for value in values])

    return flatten(rates.times(operations).seconds), flatten(exchange)


def _explain(
    case: Scenario, priced: _Priced, counts: np.ndarray
) -> tuple[dict[str, str], dict[str, Origin], dict[str, float]]:
    """What binds each term, its least certain origin, and its floor, at the nominal point.

    ``counts``: how often each block runs in the step on the critical rank.
    """
    by_resource: dict[str, dict[str, float]] = {}
    sources: dict[str, list[Origin]] = {}
    floors: dict[str, float] = {}
    recomputed = case.training.recompute == "full"
    for index, block in enumerate(priced.blocks):
        if not counts[index]:
            continue
        for phase, tasks in block.phases():
            if phase == "recompute" and not recomputed:
                continue
            for task in tasks:
                term = term_of(task, phase)
                if isinstance(task.work, Transfer):
                    by_resource.setdefault(term, {}).setdefault("network", 0.0)
                    sources.setdefault(term, []).append(Origin("published", "NCCL bus bandwidth of the cluster's links"))
                    floors.setdefault(term, 0.0)
                    continue
                number = priced.operations[task.work]
                seconds = float(priced.seconds[number, 0, 0]) * counts[index]
                resource = RESOURCES[priced.binding[number]]
                shares = by_resource.setdefault(term, {})
                shares[resource] = shares.get(resource, 0.0) + seconds
                sources.setdefault(term, []).append(priced.origins[number])
                floors[term] = floors.get(term, 0.0) + float(priced.floor_s[number]) * counts[index]
    bound_by = {term: max(shares, key=lambda name: shares[name]) for term, shares in by_resource.items()}
    return bound_by, {term: weakest(found) for term, found in sources.items()}, floors
