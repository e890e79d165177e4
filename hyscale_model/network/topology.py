"""The cluster as a graph: GPUs, NVSwitch, adapters, rail leaves, spine; a collective as flows over its links.

Every GPU has an NVLink to its node's switch and an adapter of its own; adapters of one rail meet at a leaf, leaves at a
spine. Flows take the shortest way: inside a node over the switch, between nodes over the sender's rail, and over NVLink
first where the receiver's rail is another one (rail-aligned routing, as NCCL's PXN does). The time of a collective is
that of its busiest link; ``network.collectives`` has the closed forms that symmetry gives, and tests hold the two
together.

Links carry ``bytes_per_s`` and ``kind``: nvlink, adapter or spine. Of a large cluster only the nodes of the group are
built: the others carry nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from hyscale_model.layers.operation import TransferKind
from hyscale_model.network.groups import Group
from hyscale_model.scenario.schema import Cluster

BYTES_PER_GBIT = 1e9 / 8
Flows = Mapping[tuple[str, str], float]


def gpu(node: int, index: int) -> str:
    """The name of a GPU in the graph."""
    return f"gpu {node}.{index}"


def cluster_graph(cluster: Cluster, nodes: int, all_to_all: bool = False) -> nx.DiGraph:
    """The first ``nodes`` nodes of a cluster, links at the bandwidth that collectives reach.

    Args:
        cluster: rates and efficiencies.
        nodes: how many of its nodes.
        all_to_all: adapters at the efficiency of all-to-all instead of that of rings.
    """
    graph = nx.DiGraph()
    nvlink = cluster.gpu.nvlink_bytes_per_s * cluster.nvlink_efficiency
    share = cluster.alltoall_efficiency if all_to_all else cluster.nic_efficiency
    adapter = cluster.nic_gbit_per_gpu * BYTES_PER_GBIT * share
    for node in range(nodes):
        for index in range(cluster.gpus_per_node):
            name = gpu(node, index)
            _link(graph, name, f"switch {node}", nvlink, "nvlink")
            if nodes > 1:
                _link(graph, name, f"leaf {index}", adapter, "adapter")
    if nodes > 1:
        for index in range(cluster.gpus_per_node):
            _link(graph, f"leaf {index}", "spine", nodes * adapter, "spine")
    return graph


def _link(graph: nx.DiGraph, one: str, other: str, bytes_per_s: float, kind: str) -> None:
    for pair in ((one, other), (other, one)):
        graph.add_edge(*pair, bytes_per_s=bytes_per_s, kind=kind, bytes=0.0)


def members(ranks: Group) -> list[str]:
    """The GPUs of a group of whole numbers: ``local`` neighbours on each of its nodes."""
    return [gpu(node, index) for node in range(int(ranks.nodes)) for index in range(int(ranks.local))]


def flows(kind: TransferKind, ranks: Group, payload_bytes: float) -> dict[tuple[str, str], float]:
    """Bytes between pairs of GPUs of one collective.

    all_gather, reduce_scatter: as many rings as a node has members, each over its own rail with (g - 1) / g of a share
    of the payload between neighbours, as NCCL lays them. all_to_all: 1 / g of what a rank sends to each other one.
    """
    names = members(ranks)
    if len(names) == 1:
        return {}
    if kind == "all_to_all":
        each = payload_bytes / len(names)
        return {(one, other): each for one in names for other in names if one != other}
    local, nodes = int(ranks.local), int(ranks.nodes)
    found: dict[tuple[str, str], float] = {}
    each = payload_bytes * (len(names) - 1) / len(names) / local
    for first in range(local):
        # A ring enters every node on rail ``first`` and leaves it where it entered the last: on the same rail.
        order = [gpu(node, (first + step) % local) for node in range(nodes) for step in range(local)]
        for one, other in zip(order, [*order[1:], order[0]], strict=True):
            found[one, other] = found.get((one, other), 0.0) + each
    return found


def route(one: str, other: str) -> list[str]:
    """The way of a flow: over the switch inside a node, else over NVLink to the receiver's rail, then that rail."""
    (node, index), (far, rail) = (name.removeprefix("gpu ").split(".") for name in (one, other))
    if node == far:
        return [one, f"switch {node}", other]
    if index == rail:
        return [one, f"leaf {rail}", other]
    return [one, f"switch {node}", gpu(int(node), int(rail)), f"leaf {rail}", other]


@dataclass(frozen=True, slots=True)
class Load:
    """A graph with bytes on its links.

    Attributes:
        graph: links with ``bytes``.
        busiest: ends of the link that takes longest.
        seconds: how long.
    """

    graph: nx.DiGraph
    busiest: tuple[str, str] | None
    seconds: float

    def by_kind(self) -> dict[str, float]:
        """Bytes on the fullest link of each kind."""
        found: dict[str, float] = {}
        for _, _, link in self.graph.edges(data=True):
            found[link["kind"]] = max(found.get(link["kind"], 0.0), link["bytes"])
        return found


def load(kind: TransferKind, ranks: Group, cluster: Cluster, payload_bytes: float) -> Load:
    """Route a collective over the nodes of its group; latencies are left out."""
    graph = cluster_graph(cluster, int(ranks.nodes), kind == "all_to_all")
    for (one, other), amount in flows(kind, ranks, payload_bytes).items():
        way = route(one, other)
        for pair in pairwise(way):
            graph.edges[pair]["bytes"] += amount
    times = {(one, other): link["bytes"] / link["bytes_per_s"] for one, other, link in graph.edges(data=True)}
    busiest = max(times, key=times.__getitem__, default=None)
    if busiest is None or not times[busiest]:
        return Load(graph, None, 0.0)
    return Load(graph, busiest, times[busiest])
