"""Bus bandwidth of collectives beside what NCCL and DeepEP were measured to reach.

The efficiencies that links keep are taken from one row of each kind of link; those rows are marked ``fit``. Bandwidth
is what the source counts: (g - 1) / g of a gathered message, twice that of a reduced one, sent copies of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import catalog
from hyscale_model.families.anatomy import FeedForward
from hyscale_model.layers.routing import copies_to
from hyscale_model.network.collectives import cost, deepep_cost
from hyscale_model.network.groups import Group
from hyscale_model.rates.load import gpu_named
from hyscale_model.scenario.schema import Cluster

# What NVLink keeps in an all-gather over a node, by architecture: rows C01, C08 and C12.
NVLINK_EFFICIENCY = {"hopper": 0.75, "blackwell": 0.69, "ampere": 0.68}
# What adapters keep under DeepEP: 43 of 50 GB/s once copies that stay on the node are taken out (C20).
DEEPEP_EFFICIENCY = 0.8
FITTED = ("C01", "C08", "C12", "C14", "C20", *(f"C{number}" for number in range(22, 30)))
# DeepSeek-V3 routing, which DeepEP is measured with: experts of 4 of 8 groups.
GROUPS, OPEN_GROUPS = 8, 4
BAR = 0.10


def collective_rows() -> list[dict[str, Any]]:
    """Rows in the form of every check; bandwidth in bytes a second, without draws."""
    return [_row(row) for row in catalog.document("collectives", "published").data["rows"]]


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    moved = row["operation"] == "dispatch"
    reported = 1e9 * row["gb_per_s" if moved else "bus_gb_per_s"]
    predicted = _dispatch(row) if moved else _bus(row)
    return {
        "id": row["id"],
        "group": "collectives",
        "series": "deepep" if moved else "nccl",
        "split": "fit" if row["id"] in FITTED else "held_out",
        "family": f"{row['gpu']} {row['operation']} {row['ranks']}",
        "metric": f"{row['operation']}.{row['ranks']} {row['gpu']}.bus_bytes_per_s",
        "relation": "equal",
        "reported": reported,
        "predicted": dict.fromkeys(("nominal", "p10", "p50", "p90"), predicted),
        "error": predicted / reported - 1,
        "inside": None,
        "floor": None,
        "note": None,
        "source": row["source"],
    }


def _cluster(row: Mapping[str, Any]) -> tuple[Cluster, Group]:
    gpu = gpu_named(row["gpu"])
    ranks = Group(row["ranks"], row["local"])
    cluster = Cluster(
        gpu=gpu,
        nodes=int(ranks.nodes),
        gpus_per_node=row["local"],
        nic_gbit_per_gpu=row["nic_gbit"],
        nvlink_efficiency=NVLINK_EFFICIENCY[gpu.architecture],
        alltoall_efficiency=DEEPEP_EFFICIENCY,
    )
    return cluster, ranks


def _bus(row: Mapping[str, Any]) -> float:
    cluster, ranks = _cluster(row)
    per_byte, latency = cost(row["operation"], ranks, cluster)
    rounds = 2 if row["operation"] == "all_reduce" else 1
    counted = rounds * row["message_bytes"] * (ranks.size - 1) / ranks.size
    return float(counted / (row["message_bytes"] * per_byte + latency))


def _dispatch(row: Mapping[str, Any]) -> float:
    """Copies a second, times bytes, that the source counts: to nodes, or to ranks inside a single one."""
    cluster, ranks = _cluster(row)
    groups, opened = (GROUPS, OPEN_GROUPS) if row.get("limited", True) else (1, 1)
    ffn = FeedForward(kind="moe", intermediate=1, chosen=row["chosen"], groups=groups, open_groups=opened)
    to_nodes, to_ranks = copies_to(ranks.nodes, ffn), copies_to(ranks.size, ffn)
    per_byte, latency = deepep_cost(ranks, cluster, to_nodes, to_ranks)
    token_bytes = row["tokens"] * row["hidden"] * row["bytes_per_value"]
    counted = to_nodes if ranks.nodes > 1 else to_ranks
    return float(token_bytes * counted / (token_bytes * per_byte + latency))
