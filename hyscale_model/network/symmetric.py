"""A collective on one node that stands for all of its group: every node carries the same, so its links tell the rest.

Flows keep where they begin and end inside a node and whether they leave it; how many nodes there are is a number, not a
size of the graph, so a group of 16,384 GPUs costs what one of 64 does. ``network.topology`` builds every node of a
group; tests hold both together.

With m of g ranks on each of N nodes and a payload of B bytes, a node sends
    all_gather, reduce_scatter   m rings, B (g - 1) / g / m between neighbours, one pair in m of them between nodes
    all_reduce                   twice that
    all_to_all                   B / g from each rank to each other one
    deepep                       B n (N - 1) / N over each rail, B r / m to each rank of the node (a token goes to n
                                 nodes and r ranks)
    send                         B from each rank, to another node where the group has several
    to_host, from_host           B over PCIe or NVLink-C2C
"""

from __future__ import annotations

import math
from itertools import pairwise

import networkx as nx

from hyscale_model.layers.operation import Transfer
from hyscale_model.network.groups import Group
from hyscale_model.network.topology import BYTES_PER_GBIT
from hyscale_model.scenario.schema import Cluster

SWITCH, HOST = "NVSwitch", "host"
# (index of the sender on its node, index of the receiver on its node, whether that is another node) -> bytes.
Flows = dict[tuple[int, int, bool], float]
Link = tuple[str, str]


def gpu(index: int) -> str:
    """The name of a GPU of the node."""
    return f"GPU {index}"


def leaf(index: int) -> str:
    """The name of the switch where the adapters of one rail meet."""
    return f"rail {index}"


def node_graph(cluster: Cluster) -> nx.DiGraph:
    """GPUs of a node with their links to the NVSwitch, to their rails and to the host.

    Edges carry ``kind`` (nvlink, adapter or host) and ``bytes_per_s``, the rate of the link itself.
    """
    graph = nx.DiGraph()
    links = [(SWITCH, "nvlink", cluster.gpu.nvlink_bytes_per_s), (HOST, "host", cluster.gpu.host_bytes_per_s)]
    for index in range(cluster.gpus_per_node):
        rail = (leaf(index), "adapter", cluster.nic_gbit_per_gpu * BYTES_PER_GBIT)
        for end, kind, rate in (*links, *([rail] if cluster.nodes > 1 else [])):
            for pair in ((gpu(index), end), (end, gpu(index))):
                graph.add_edge(*pair, kind=kind, bytes_per_s=float(rate))
    return graph


def kept(transfer: Transfer, kind: str, cluster: Cluster) -> float:
    """Share of a link's rate that a collective reaches."""
    if kind == "host":
        return float(cluster.pcie_efficiency)
    if kind == "adapter":
        spread = transfer.kind in ("all_to_all", "deepep")
        return float(cluster.alltoall_efficiency if spread else cluster.nic_efficiency)
    copied = cluster.gpu.deepep_bytes_per_s
    if transfer.kind == "deepep" and copied is not None:
        return float(min(cluster.nvlink_efficiency, copied / cluster.gpu.nvlink_bytes_per_s))
    return float(cluster.nvlink_efficiency)


def node_flows(transfer: Transfer, ranks: Group) -> Flows:
    """Bytes that ranks of one node send, by index inside the group's part of the node; empty over a single rank."""
    local, nodes, size = int(ranks.local), math.ceil(ranks.nodes), int(ranks.size)
    payload, indices = float(transfer.payload_bytes), range(int(ranks.local))
    if size == 1:
        return {}
    if transfer.kind == "send":
        return {(index, index if nodes > 1 else (index + 1) % local, nodes > 1): payload for index in indices}
    if transfer.kind == "all_to_all":
        each = payload / size
        found = {(one, other, False): each for one in indices for other in indices if one != other}
        if nodes > 1:
            found |= {(one, other, True): each * (nodes - 1) for one in indices for other in indices}
        return found
    if transfer.kind == "deepep":
        beside = payload * float(transfer.rank_copies) / local
        found = {(one, other, False): beside for one in indices for other in indices if one != other}
        if nodes > 1:
            sent = payload * float(transfer.node_copies) * (nodes - 1) / nodes
            found |= {(index, index, True): sent for index in indices}
        return found
    each = (2 if transfer.kind == "all_reduce" else 1) * payload * (size - 1) / size / local
    if nodes == 1:
        return {(index, (index + 1) % local, False): local * each for index in indices}
    # Ring ``first`` enters a node at that index, passes all others and leaves by the rail it came on.
    found = {(index, (index + 1) % local, False): (local - 1) * each for index in indices if local > 1}
    return found | {((first - 1) % local, first, True): each for first in indices}


def node_load(transfer: Transfer, ranks: Group, per_node: int) -> dict[Link, float]:
    """Bytes on each link of a node, of all groups of the node that run the collective at once.

    Args:
        transfer: of whole numbers, not of arrays.
        ranks: the group.
        per_node: GPUs of a node.
    """
    found: dict[Link, float] = {}

    def add(way: list[str], amount: float) -> None:
        for link in pairwise(way):
            found[link] = found.get(link, 0.0) + amount

    if transfer.group == "host":
        for index in range(per_node):
            way = [gpu(index), HOST]
            add(way if transfer.kind == "to_host" else way[::-1], float(transfer.payload_bytes))
        return found
    local = int(ranks.local)
    apart = min(int(ranks.stride), max(per_node // local, 1))
    for first in range(per_node):
        # The first of its group on the node; its neighbours follow at a distance.
        if first // apart % local:
            continue
        for (one, other, leaves), amount in node_flows(transfer, ranks).items():
            sender, receiver = gpu(first + one * apart), gpu(first + other * apart)
            rail = leaf(first + other * apart)
            if not leaves:
                add([sender, SWITCH, receiver], amount)
                continue
            # Over NVLink first where the receiver's rail is another one; what arrives comes from a node like this.
            if one != other:
                add([sender, SWITCH, receiver], amount)
            add([receiver, rail, receiver], amount)
    return found
