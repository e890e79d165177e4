"""What crosses which link in a step: every collective of the critical stage, and one node that stands for all.

Times and bytes are nominal, of one step on the pipeline stage with the most work. Every node of a symmetric layout
carries the same, so links are those of one node (``network.symmetric``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np

from hyscale_model.arrays import nominal
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.layers.operation import Transfer
from hyscale_model.network.collectives import Network
from hyscale_model.network.groups import Group, group
from hyscale_model.network.symmetric import kept, node_graph, node_load
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import LayerScope, Scenario
from hyscale_model.step.once import host_seconds
from hyscale_model.step.optimizer import Held, gradient_transfers, host_step, inner_transfers
from hyscale_model.step.passes import sends_of_ranks, stage_send
from hyscale_model.step.pipeline import structures
from hyscale_model.timeline import block_intervals

# Groups whose exchange a layout may hide behind work outside its block.
HIDDEN_LATER = ("ep", "tp")
# Group of a collective -> the group under which a prediction counts its time.
COUNTED_UNDER: Mapping[str, str] = {"edp": "dp", "odp": "dp", "oedp": "dp", "etp": "ep"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of a step, all its runs together.

    Attributes:
        name: the task; ``block``, ``phase``: where it runs; ``group``: the parallel group.
        transfer: one run; ``runs``: in a step.
        seconds: on the wire; ``exposed_s``: of those, what computation waits for.
    """

    name: str
    block: str
    phase: str
    group: str
    transfer: Transfer
    runs: float
    seconds: float
    exposed_s: float


def traffic(resolved: Resolved, system: str) -> dict[str, Any]:
    """The communication graph of one system.

    Args:
        resolved: the scenario.
        system: the name of one of its systems.

    Returns:
        ``{"scenario", "system", "stage", "step_time_s", "nodes", "gpus_per_node", "collectives", "groups", "links",
        "bottleneck"}``, the last being the busiest link, with

        - ``collectives``: ``[{"name", "block", "phase", "group", "kind", "runs", "payload_bytes", "seconds",
          "exposed_s", "hidden_s", "bottleneck"}]``, the last being the kind of link that takes longest;
        - ``groups``: ``{group: {"ranks", "nodes", "bytes", "seconds", "exposed_s", "hidden_s", "bottleneck"}}``;
        - ``links``: ``[{"from", "to", "kind", "bytes_per_s", "bytes", "seconds", "load", "groups": {group: {"bytes",
          "seconds"}}}]``; ``seconds`` is how long its bytes keep a link busy at the rates that collectives reach,
          ``load`` that over the step.
    """
    scenario = resolved.scenario
    evaluator = Evaluator(scenario, {}, Draws(0), profile_of(scenario))
    result = evaluator.steps([next(each for each in scenario.systems if each.name == system)])[0]
    collectives = list(_collectives(result))
    step_s = nominal(result.step.seconds)
    graph = node_graph(result.case.cluster)
    for _, _, link in graph.edges(data=True):
        link.update(bytes=0.0, seconds=0.0, groups={})
    rows = [_row(each, _place(graph, each, result)) for each in collectives if each.seconds]
    links = [
        {
            "from": one,
            "to": other,
            **{name: link[name] for name in ("kind", "bytes_per_s", "bytes", "seconds")},
            "load": link["seconds"] / step_s,
            "groups": link["groups"],
        }
        for one, other, link in graph.edges(data=True)
        if link["bytes"]
    ]
    return {
        "scenario": scenario.name,
        "system": system,
        "stage": int(result.step.stage[0, 0]),
        "step_time_s": step_s,
        "nodes": int(result.case.cluster.nodes),
        "gpus_per_node": int(result.case.cluster.gpus_per_node),
        "collectives": rows,
        "groups": _groups(rows, links, result),
        "links": links,
        "bottleneck": _busiest(links),
    }


def _row(each: Collective, bottleneck: str | None) -> dict[str, Any]:
    return {
        "name": each.name,
        "block": each.block,
        "phase": each.phase,
        "group": each.group,
        "kind": each.transfer.kind,
        "runs": each.runs,
        "payload_bytes": nominal(each.transfer.payload_bytes),
        "seconds": each.seconds,
        "exposed_s": each.exposed_s,
        "hidden_s": each.seconds - each.exposed_s,
        "bottleneck": bottleneck,
    }


def _place(graph: nx.DiGraph, each: Collective, result: Evaluation) -> str | None:
    """Add a collective's bytes to the links; the kind of the link that it keeps busy for longest."""
    cluster = result.case.cluster
    transfer = replace(
        each.transfer,
        payload_bytes=nominal(each.transfer.payload_bytes),
        node_copies=nominal(each.transfer.node_copies),
        rank_copies=nominal(each.transfer.rank_copies),
    )
    longest: tuple[float, str | None] = (0.0, None)
    for link, size in node_load(transfer, _ranks(transfer, result), int(cluster.gpus_per_node)).items():
        edge = graph.edges[link]
        moved = each.runs * size
        seconds = moved / (edge["bytes_per_s"] * kept(transfer, edge["kind"], cluster))
        edge["bytes"] += moved
        edge["seconds"] += seconds
        mine = edge["groups"].setdefault(each.group, {"bytes": 0.0, "seconds": 0.0})
        mine["bytes"] += moved
        mine["seconds"] += seconds
        longest = max(longest, (seconds, edge["kind"]), key=lambda found: found[0])
    return longest[1]


def _ranks(transfer: Transfer, result: Evaluation) -> Group:
    return Group(1, 1) if transfer.group == "host" else group(transfer.group, result.case, result.sizes)


def _groups(
    rows: Iterable[Mapping[str, Any]], links: Iterable[Mapping[str, Any]], result: Evaluation
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = found.setdefault(row["group"], dict.fromkeys(("bytes", "seconds", "exposed_s", "hidden_s"), 0.0))
        entry["bytes"] += row["runs"] * row["payload_bytes"]
        for name in ("seconds", "exposed_s", "hidden_s"):
            entry[name] += row[name]
    for name, entry in found.items():
        ranks = Group(1, 1) if name == "host" else group(name, result.case, result.sizes)  # type: ignore[arg-type]
        mine = [link | link["groups"][name] for link in links if name in link["groups"]]
        entry |= {"ranks": int(ranks.size), "nodes": float(ranks.nodes), "bottleneck": _busiest(mine)}
    return found


def _busiest(links: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    busiest = max(links, key=lambda link: link["seconds"], default=None)
    return None if busiest is None else {name: busiest[name] for name in ("from", "to", "kind", "bytes", "seconds")}


def _collectives(result: Evaluation) -> Iterator[Collective]:
    network = Network(result.case, result.sizes, result.priced.rates.coefficients)
    yield from _in_blocks(result, network)
    if isinstance(result.case.scope, LayerScope):
        return
    (structure,) = structures(result.case, result.sizes, (1, 1))
    stage = int(result.step.stage[0, 0])
    if structure.pp > 1:
        send = stage_send(result.case, result.sizes)
        runs = float(sends_of_ranks(structure)[stage])
        exposed = nominal(result.step.term("pp_communication_exposed"))
        yield _once("pipeline sends", send, runs, nominal(network.seconds(send)), exposed)
    yield from _exchange(result, network, structure.rank_counts[stage])


def _in_blocks(result: Evaluation, network: Network) -> Iterator[Collective]:
    """Collectives of the blocks. What a layout says is hidden behind other work is shared out in proportion."""
    intervals = [
        (each, runs)
        for row, runs in enumerate(result.step.runs[:, 0].tolist())
        if runs
        for each in block_intervals(result, row, network)
        if each.transfer is not None
    ]
    waited: dict[str, float] = {}
    beside: dict[str, float] = {}
    for each, runs in intervals:
        counted = COUNTED_UNDER.get(each.stream, each.stream)
        waited[counted] = waited.get(counted, 0.0) + runs * each.exposed_s
        beside[counted] = beside.get(counted, 0.0) + runs * (each.end_s - each.start_s - each.exposed_s)
    for each, runs in intervals:
        counted = COUNTED_UNDER.get(each.stream, each.stream)
        hidden = nominal(result.step.hidden.get(counted, result.step.hidden.get(each.stream, np.zeros(1))))
        further = max(hidden - beside[counted], 0.0) if counted in HIDDEN_LATER else 0.0
        open_share = 1 - min(further / waited[counted], 1.0) if waited[counted] else 1.0
        assert each.transfer is not None
        yield Collective(
            name=each.name,
            block=each.block,
            phase=each.phase,
            group=each.stream,
            transfer=each.transfer,
            runs=runs,
            seconds=runs * (each.end_s - each.start_s),
            exposed_s=open_share * runs * each.exposed_s,
        )


def _once(name: str, transfer: Transfer, runs: float, each_s: float, exposed_s: float) -> Collective:
    seconds = runs * each_s
    return Collective(
        name=name,
        block="step",
        phase="step",
        group=transfer.group,
        transfer=transfer,
        runs=runs,
        seconds=seconds,
        exposed_s=min(exposed_s, seconds),
    )


def _exchange(result: Evaluation, network: Network, counts: np.ndarray) -> Iterator[Collective]:
    """What a rank sends once a step: gradients, parameters, parts of matrices for Muon, copies of the host's optimizer.

    What the step shows of gradients and parameters is shared out in proportion.
    """
    case: Scenario = result.case
    held = Held.of(case, counts[None, :]).rank(0)
    inner = [each for each in inner_transfers(case, counts) if nominal(network.seconds(each))]
    exchanged = gradient_transfers(case, result.sizes, held.shared, held.experts)
    transfers = [each for each in exchanged if nominal(network.seconds(each)) and nominal(each.payload_bytes)]
    total = sum(nominal(network.seconds(each)) for each in transfers)
    exposed = nominal(result.step.term("dp_communication_exposed"))
    exposed -= sum(nominal(network.seconds(each)) for each in inner)
    names = {
        "reduce_scatter": "gradients",
        "all_reduce": "gradients of all instances",
        "all_gather": "parameters",
    }
    for each in transfers:
        seconds = nominal(network.seconds(each))
        yield _once(names[each.kind], each, 1.0, seconds, exposed * seconds / total)
    for each in inner:
        seconds = nominal(network.seconds(each))
        yield _once("matrices of the optimizer", each, 1.0, seconds, seconds)
    host = host_step(case, result.sizes, held)
    if host is not None:
        copies = {"gradients to the host": host.out, "parameters from the host": host.back}
        optimizer = np.asarray(result.step.term("optimizer"))[:1, :1]
        hidden = nominal(host_seconds(case, host, network, optimizer)[1])
        whole = sum(nominal(network.seconds(each)) for each in copies.values())
        for name, each in copies.items():
            seconds = nominal(network.seconds(each))
            yield _once(name, each, 1.0, seconds, seconds * max(1 - hidden / whole, 0.0))
