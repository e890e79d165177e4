"""How a term of a step's time comes about: the operations and transfers behind it, at the nominal point."""

from __future__ import annotations

from typing import Any

from hyscale_model.arrays import nominal
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.layers.operation import Operation, Transfer
from hyscale_model.network.collectives import Network
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import Cluster, LayerScope, Scenario
from hyscale_model.step.graph import term_of
from hyscale_model.step.host import launches
from hyscale_model.step.optimizer import (
    Held,
    HostStep,
    gradient_transfers,
    host_step,
    inner_transfers,
    optimizer_operations,
)
from hyscale_model.step.pipeline import structures
from hyscale_model.step.price import NETWORK_ORIGIN, running_phases

# Terms that no single operation is behind: how they follow from the others.
CLOSING = {
    "pp_bubble": "the longest path through the pipeline's schedule, less what the critical stage computes and sends",
    "waiting": "what the slowest rank of a group takes longer than the mean, and other stages at the end of a step",
    "optimizer": "bytes of the shard of states, gradients and parameters over HBM rate, once a step; under Muon also 4 "
    "g^2 o + 2 g^3 FLOP an iteration and matrix of g x o",
    "offload": "copies over PCIe or NVLink-C2C less what runs beside them, and what the host's update of the optimizer "
    "takes (bytes over its share of the host's memory bandwidth) beyond the GPU's",
    "host_bound": "passes x (kernels launched x seconds of the host a launch - seconds of the pass on the GPU), where "
    "that is more",
    "pp_communication_exposed": "sends of the critical stage x (bytes over an adapter or NVLink + latency)",
    "dp_communication_exposed": "gradients reduced and parameters gathered over data ranks, less the hidden part",
}


# Terms of what is done once a step.
ONCE = ("optimizer", "dp_communication_exposed", "offload")


def derive(resolved: Resolved, system: str, term: str) -> dict[str, Any]:
    """The parts of a term on the critical rank.

    Args:
        resolved: the scenario.
        system: the name of one of its systems.
        term: one of ``TERMS``.

    Returns:
        ``{"term", "seconds", "stage", "closing", "parts": [{"block", "phase", "name", "kind", "runs", "flops", "bytes",
        "seconds", "floor_s", "resource", "origin", "detail"}]}``. ``seconds`` of a part is one run; of a transfer it is
        the time on the wire, of which computation may hide some.
    """
    scenario = resolved.scenario
    evaluator = Evaluator(scenario, {}, Draws(0), profile_of(scenario))
    result = evaluator.steps([next(each for each in scenario.systems if each.name == system)])[0]
    return {
        "term": term,
        "seconds": nominal(result.step.term(term)),
        "stage": int(result.step.stage[0, 0]),
        "closing": CLOSING.get(term),
        "parts": parts_of(result, term),
    }


def parts_of(result: Evaluation, term: str) -> list[dict[str, Any]]:
    """The ``parts`` of ``derive`` of a term, of a step that is evaluated."""
    case, case_of_step = result.priced.cases[result.index], result.case
    network = Network(result.case, result.sizes, result.priced.rates.coefficients)
    parts = []
    for block, runs in zip(case.blocks, result.step.runs[:, 0].tolist(), strict=True):
        for phase, tasks in running_phases(block, case.training) if runs else ():
            for task in tasks:
                if term_of(task, phase) != term:
                    continue
                work = task.work
                told = _operation(work, result) if isinstance(work, Operation) else _transfer(work, network)
                parts.append({"block": block.name, "phase": phase, "name": task.name, "runs": runs} | told)
    if term == "host_bound":
        parts += _launched(result)
    if term in ONCE and not isinstance(case_of_step.scope, LayerScope):
        parts += _once_parts(result, term, network)
    return parts


def _once_parts(result: Evaluation, term: str, network: Network) -> list[dict[str, Any]]:
    """What the critical rank does once a step."""
    case, sizes = result.case, result.sizes
    (structure,) = structures(case, sizes, (1, 1))
    counts = structure.rank_counts[int(result.step.stage[0, 0])]
    held = Held.of(case, counts[None, :]).rank(0)
    work: dict[str, Operation | Transfer] = {}
    if term == "optimizer":
        operations = optimizer_operations(case, sizes, held, counts)
        work = dict(zip(("states", "Newton-Schulz", "Newton-Schulz, experts"), operations, strict=False))
    elif term == "dp_communication_exposed":
        exchanged = gradient_transfers(case, sizes, held.shared, held.experts)
        transfers = (*exchanged, *inner_transfers(case, counts))
        work = {f"{each.kind} {number}": each for number, each in enumerate(transfers) if nominal(each.payload_bytes)}
    host = host_step(case, sizes, held) if term == "offload" else None
    if host is not None:
        work = {"gradients to the host": host.out, "parameters from the host": host.back}
    rows = [
        {"block": "step", "phase": "once", "name": name, "runs": 1.0}
        | (_operation(each, result) if isinstance(each, Operation) else _transfer(each, network))
        for name, each in work.items()
    ]
    if host is not None:
        rows.append({"block": "step", "phase": "once", "name": "update", "runs": 1.0} | _on_host(host, case))
    return rows


def _launched(result: Evaluation) -> list[dict[str, Any]]:
    """What the host needs to launch each block of the critical rank."""
    priced, rates = result.priced.cases[result.index], result.priced.rates
    each_s = nominal(rates.factor("host_launch_s")) * rates.gpu.host_slowdown
    origin = rates.profile.factors["host_launch_s"].origin
    rows = []
    for block, runs in zip(priced.blocks, result.step.runs[:, 0].tolist(), strict=True):
        for phase, tasks in running_phases(block, priced.training) if runs else ():
            count = nominal(launches(block, tasks, priced.training))
            rows.append(
                {
                    "block": block.name,
                    "phase": phase,
                    "name": f"{count:,.0f} launches",
                    "runs": runs,
                    "kind": "host",
                    "flops": 0.0,
                    "bytes": 0.0,
                    "seconds": count * each_s,
                    "floor_s": None,
                    "resource": "host",
                    "origin": origin.origin,
                    "detail": origin.detail,
                }
            )
    return [row for row in rows if row["seconds"]]


def _on_host(host: HostStep, case: Scenario) -> dict[str, Any]:
    rate = case.cluster.host_bytes_per_s_per_gpu
    return {
        "kind": "host memory",
        "flops": 0.0,
        "bytes": nominal(host.moved_bytes),
        "seconds": nominal(host.moved_bytes / rate),
        "floor_s": None,
        "resource": "host",
        "origin": "given" if rate != Cluster.__dataclass_fields__["host_bytes_per_s_per_gpu"].default else "assumed",
        "detail": f"cluster.host_bytes_per_s_per_gpu = {nominal(rate) / 1e9:g} GB/s",
    }


def _operation(work: Operation, result: Evaluation) -> dict[str, Any]:
    told = result.priced.rates.nominal(work)
    return {
        "kind": work.family,
        "flops": nominal(work.flops),
        "bytes": nominal(work.hbm_bytes),
        "seconds": told.seconds,
        "floor_s": told.floor_s,
        "resource": told.resource,
        "origin": told.origin.origin,
        "detail": told.origin.detail,
    }


def _transfer(work: Transfer, network: Network) -> dict[str, Any]:
    return {
        "kind": f"{work.kind} over {work.group}",
        "flops": 0.0,
        "bytes": nominal(work.payload_bytes),
        "seconds": nominal(network.seconds(work)),
        "floor_s": None,
        "resource": "network",
        "origin": NETWORK_ORIGIN.origin,
        "detail": NETWORK_ORIGIN.detail,
    }
