"""Seconds of a collective: bytes over bus bandwidth, plus latency of its steps.

A group of g ranks with m of them on a node moves, for a payload of B bytes,
    all_gather, reduce_scatter   B (g - 1) / g over the slower of NVLink and the m adapters of a node (one ring a rail)
    all_to_all                   B (g - m) / g over a rank's own adapter, beside B (m - 1) / g over NVLink
    send                         B over an adapter, or NVLink inside a node
Bus bandwidth is the link rate times the measured efficiency of the cluster (NCCL tests).
"""

from __future__ import annotations

from hyscale_model.arrays import Number, maximum, minimum, where
from hyscale_model.layers.operation import Transfer
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.groups import group
from hyscale_model.scenario.schema import Scenario

BYTES_PER_GBIT = 1e9 / 8


def transfer_seconds(transfer: Transfer, case: Scenario, sizes: Sizes) -> Number:
    """Seconds of one collective; 0 over a single rank."""
    cluster = case.cluster
    ranks = group(transfer.group, case, sizes)
    size, local = ranks.size, ranks.local
    nvlink = cluster.gpu.nvlink_bytes_per_s * cluster.nvlink_efficiency
    adapter = cluster.nic_gbit_per_gpu * BYTES_PER_GBIT * cluster.nic_efficiency
    payload = transfer.payload_bytes
    crosses = ranks.nodes > 1
    if transfer.kind == "send":
        bandwidth = where(local > 1, nvlink, adapter)
        seconds = payload / bandwidth + where(local > 1, cluster.nvlink_latency_s, cluster.nic_latency_s)
    elif transfer.kind == "all_to_all":
        outside = payload * (size - local) / size / adapter
        inside = payload * (local - 1) / size / nvlink
        steps = where(crosses, (ranks.nodes - 1) * cluster.nic_latency_s, 0.0) + cluster.nvlink_latency_s
        seconds = maximum(outside, inside) + steps
    else:
        bandwidth = where(crosses, minimum(nvlink, adapter * local), nvlink)
        # Ring steps: a hop inside a node costs NVLink latency, one between nodes adapter latency.
        hops = (size - ranks.nodes) * cluster.nvlink_latency_s + where(crosses, ranks.nodes, 0.0) * cluster.nic_latency_s
        seconds = payload * (size - 1) / size / bandwidth + hops
    return where(size > 1, seconds, 0.0)
