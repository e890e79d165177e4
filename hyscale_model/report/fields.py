"""How people call the fields of a scenario."""

from __future__ import annotations

from collections.abc import Mapping

# How people call a field; a field that is not listed is called by its name.
LABELS: Mapping[str, str] = {
    "sequence_length": "sequence length, tokens",
    "global_batch_size": "sequences a step",
    "micro_batch_size": "sequences a micro-batch",
    "tp": "tensor parallel, TP",
    "pp": "pipeline stages, PP",
    "vpp": "virtual stages a rank, VPP",
    "cp": "context parallel, CP",
    "ep": "expert parallel, EP",
    "etp": "expert tensor parallel, ETP",
    "zero": "ZeRO stage",
    "cp_kind": "kind of context parallelism",
    "cp_order": "order of context parts",
    "index_balance": "balanced indexer",
    "moe_imbalance": "load of the busiest expert rank",
    "gpu": "GPU",
    "nic_gbit_per_gpu": "network adapter, Gbit/s a GPU",
    "nic_efficiency": "share of the adapter reached",
    "alltoall_efficiency": "the same in all-to-all",
    "nvlink_efficiency": "share of NVLink reached",
    "pcie_efficiency": "share of PCIe reached",
    "nvlink_latency_s": "NVLink latency, s",
    "nvlink_ramp_s_per_root_byte": "filling NVLink, s a root of bytes",
    "nic_latency_s": "network latency, s",
    "usd_per_gpu_hour": "US dollars a GPU hour",
    "gpus_per_node": "GPUs a node",
}


def label_of(name: str) -> str:
    """How people call a field."""
    return LABELS.get(name, name.replace("_", " "))
