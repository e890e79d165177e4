"""Seconds of a collective: bytes over bus bandwidth, plus latency of its steps.

A group of g ranks with m of them on a node moves, for a payload of B bytes,
    all_gather, reduce_scatter   B (g - 1) / g over the slower of NVLink and the m adapters of a node (one ring a rail)
    all_reduce                   twice that
    all_to_all                   B (g - m) / g over a rank's own adapter, beside B (m - 1) / g over NVLink
    deepep                       the larger of B n (nodes - 1) / nodes over a rank's own adapter and B r (m - 1) / m
                                 over NVLink, at most at the rate its SMs copy, where a token goes to n nodes, r ranks
    send                         B over an adapter, or NVLink inside a node
    to_host, from_host           B over PCIe or NVLink-C2C

Inside a node filling the pipeline of a library adds the root of B times what calibration measured, 0 if it did not.
Bus bandwidth is the link rate times the measured efficiency of the cluster (NCCL tests).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hyscale_model.arrays import Number, maximum, minimum, where
from hyscale_model.layers.operation import GroupName, Transfer, TransferKind
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.groups import Group, group
from hyscale_model.rates.cost import Coefficients, Cost, varies_over_points_only
from hyscale_model.scenario.schema import Cluster, Scenario

BYTES_PER_GBIT = 1e9 / 8
# Transfers of equal cost a byte: kind, group, copies of a token.
Key = tuple[TransferKind, GroupName, Any, Any]


class Network:
    """Collectives of one layout on one cluster: seconds = bytes x inverse bandwidth + latency + root of bytes x ramp.

    Args:
        case: the scenario of one system.
        sizes: its sizes.
        coefficients: where the sums that a transfer enters are evaluated.
    """

    def __init__(self, case: Scenario, sizes: Sizes, coefficients: Coefficients) -> None:
        self._case, self._sizes, self._coefficients = case, sizes, coefficients
        self._costs: dict[Key, tuple[Number, Number, Number]] = {}
        self._numbers: dict[Key, tuple[int, ...]] = {}
        self._held: list[Transfer] = []

    def cost(self, transfer: Transfer) -> Cost:
        """Seconds of one collective; 0 over a single rank."""
        terms = self._terms(transfer)
        payload = transfer.payload_bytes
        if any(map(_over_points, terms)) or not varies_over_points_only(payload):
            return Cost(rest=_sum(terms, payload))
        key = _key(transfer)
        if key not in self._numbers:
            self._numbers[key] = tuple(map(self._coefficients.register, terms))
        byte, once, root = self._numbers[key]
        return Cost({byte: payload, once: 1.0, root: payload**0.5})

    def seconds(self, transfer: Transfer) -> Number:
        """Seconds of one collective, broadcastable to (points, draws)."""
        return _sum(self._terms(transfer), transfer.payload_bytes)

    def _terms(self, transfer: Transfer) -> tuple[Number, Number, Number]:
        """Seconds a byte, once, and a root of a byte."""
        key = _key(transfer)
        if key not in self._costs:
            # Copies that are arrays count by identity, so the transfer is held.
            self._held.append(transfer)
            self._costs[key] = self._cost(transfer)
        return self._costs[key]

    def _cost(self, transfer: Transfer) -> tuple[Number, Number, Number]:
        cluster = self._case.cluster
        if transfer.group == "host":
            return 1 / (cluster.gpu.host_bytes_per_s * cluster.pcie_efficiency), 0.0, 0.0
        ranks = group(transfer.group, self._case, self._sizes)
        if transfer.kind == "deepep":
            return *deepep_cost(ranks, cluster, transfer.node_copies, transfer.rank_copies), 0.0
        inside = where(ranks.nodes > 1, 0.0, 1.0) * where(ranks.size > 1, 1.0, 0.0)
        return *cost(transfer.kind, ranks, cluster), inside * cluster.nvlink_ramp_s_per_root_byte


def _sum(terms: tuple[Number, Number, Number], payload: Number) -> Number:
    per_byte, latency, per_root = terms
    return payload * per_byte + latency + payload**0.5 * per_root


def _key(transfer: Transfer) -> Key:
    nodes, ranks = (
        id(each) if isinstance(each, np.ndarray) else each for each in (transfer.node_copies, transfer.rank_copies)
    )
    return transfer.kind, transfer.group, nodes, ranks


def deepep_cost(ranks: Group, cluster: Cluster, node_copies: Number, rank_copies: Number) -> tuple[Number, Number]:
    """Seconds a byte of one copy of every token, and seconds of latency."""
    adapter = cluster.nic_gbit_per_gpu * BYTES_PER_GBIT * cluster.alltoall_efficiency
    nvlink = cluster.gpu.nvlink_bytes_per_s * cluster.nvlink_efficiency
    if cluster.gpu.deepep_bytes_per_s is not None:
        nvlink = minimum(nvlink, cluster.gpu.deepep_bytes_per_s)
    remote, local = (ranks.nodes - 1) / ranks.nodes, (ranks.local - 1) / ranks.local
    per_byte = maximum(node_copies * remote / adapter, rank_copies * local / nvlink)
    latency = (ranks.nodes - 1) * cluster.nic_latency_s + cluster.nvlink_latency_s
    several = ranks.size > 1
    return where(several, per_byte, 0.0), where(several, latency, 0.0)


def cost(kind: TransferKind, ranks: Group, cluster: Cluster) -> tuple[Number, Number]:
    """Seconds a byte of payload, and seconds of latency."""
    size, local = ranks.size, ranks.local
    nvlink = cluster.gpu.nvlink_bytes_per_s * cluster.nvlink_efficiency
    adapter = cluster.nic_gbit_per_gpu * BYTES_PER_GBIT * cluster.nic_efficiency
    crosses = ranks.nodes > 1
    if kind == "send":
        # The slowest hop of a pipeline: an adapter wherever it leaves a node.
        per_byte = where(crosses, 1 / adapter, 1 / nvlink)
        latency = where(crosses, cluster.nic_latency_s, cluster.nvlink_latency_s)
    elif kind == "all_to_all":
        spread = cluster.nic_gbit_per_gpu * BYTES_PER_GBIT * cluster.alltoall_efficiency
        per_byte = maximum((size - local) / size / spread, (local - 1) / size / nvlink)
        latency = where(crosses, (ranks.nodes - 1) * cluster.nic_latency_s, 0.0) + cluster.nvlink_latency_s
    else:
        bandwidth = where(crosses, minimum(nvlink, adapter * local), nvlink)
        # A ring all-reduce scatters sums and gathers them.
        rounds = 2 if kind == "all_reduce" else 1
        per_byte = rounds * (size - 1) / size / bandwidth
        # Ring steps: a hop inside a node costs NVLink latency, one between nodes adapter latency.
        between = where(crosses, ranks.nodes, 0.0) * cluster.nic_latency_s
        latency = rounds * ((size - ranks.nodes) * cluster.nvlink_latency_s + between)
    several = size > 1
    return where(several, per_byte, 0.0), where(several, latency, 0.0)


def _over_points(value: Number) -> bool:
    return isinstance(value, np.ndarray) and value.shape[0] > 1
