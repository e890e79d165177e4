"""Adds to an import what its source does not say: a cluster, a layout, a workload, each marked as a default."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, lcm
from typing import Any

from hyscale_model import catalog
from hyscale_model.importers.imported import Entry, Imported

GPU = "h100"
GPUS_OF_A_NODE = 8
NIC_GBIT = 400
SEQUENCE_LENGTH = 131072
# From this length on a sequence is cut.
LONG_SEQUENCE = 65536
# A layer with experts is spread over this many GPUs, if they divide evenly.
EXPERT_GPUS = 64
_DEFAULT = "default of the import"

Sections = dict[str, dict[str, Entry]]


def complete(imported: Imported, cluster: str | None = None) -> Imported:
    """The import with every section a scenario needs.

    Args:
        imported: what the source says.
        cluster: a name from the catalogue; without one, as many H100 as the layout needs.

    Raises:
        InputError: there is no such cluster.
    """
    sections: Sections = {name: dict(entries) for name, entries in imported.sections.items()}
    model, layout = sections["model"], sections.setdefault("layout", {})
    workload = sections.setdefault("workload", {})
    sections.setdefault("training", {})
    positions = model.get("max_position_embeddings")
    default = Entry(SEQUENCE_LENGTH, f"{_DEFAULT}: a long context", stated=False)
    if positions is not None:
        default = Entry(positions.value, "max_position_embeddings", stated=False)
    length = workload.setdefault("sequence_length", default).value
    if not layout:
        layout.update(_layout(model, length))
    value = {name: entry.value for name, entry in layout.items()}
    stated = imported.gpus
    if cluster is not None:
        sections["cluster"] = {"": Entry(cluster, "--cluster")}
        gpus = _size(cluster)
    else:
        gpus = stated or _least_gpus(value)
        origin = "of the launcher" if stated else f"{_DEFAULT}: the least the layout needs"
        sections["cluster"] = _cluster(gpus, value.get("tp", 1), origin, imported)
    micro = workload.setdefault("micro_batch_size", Entry(1, _DEFAULT, stated=False)).value
    if "global_batch_size" not in workload:
        ranks = max(gpus // max(value.get("tp", 1) * value.get("pp", 1) * value.get("cp", 1), 1), 1)
        batches = value.get("pp", 1) if value.get("vpp", 1) > 1 else 1
        size = ranks * micro * batches
        workload["global_batch_size"] = Entry(size, f"{_DEFAULT}: the least the layout allows", stated=False)
    return replace(imported, sections=sections)


def systems(imported: Imported) -> list[str]:
    """The systems to compare: all three where an indexer selects keys, else Megatron-LM alone."""
    model = imported.sections["model"]
    selects = any(name in model for name in ("index_topk", "indexer_budget"))
    return ["megatron", "megatron-best", "hyscale"] if selects else ["megatron"]


def _layout(model: dict[str, Entry], length: Any) -> dict[str, Entry]:
    """Experts over many GPUs, long sequences over the GPUs of a node, nothing else cut."""
    experts = model.get("n_routed_experts") or model.get("num_experts")
    spread = gcd(int(experts.value), EXPERT_GPUS) if experts is not None and _is_count(experts.value) else 1
    fields = {}
    if _is_count(length) and length >= LONG_SEQUENCE and length % (2 * GPUS_OF_A_NODE) == 0:
        fields["cp"] = Entry(GPUS_OF_A_NODE, f"{_DEFAULT}: a sequence over the GPUs of a node", stated=False)
    if spread > 1:
        fields["ep"] = Entry(spread, f"{_DEFAULT}: experts over up to {EXPERT_GPUS} GPUs", stated=False)
    return fields


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _least_gpus(layout: dict[str, Any]) -> int:
    """The fewest GPUs on which whole expert groups and whole model copies fit."""
    tp, pp, cp = (max(layout.get(name, 1), 1) for name in ("tp", "pp", "cp"))
    ep, etp = (max(layout.get(name, 1), 1) for name in ("ep", "etp"))
    return int(pp * lcm(tp * cp, ep * etp))


def _cluster(gpus: int, tp: int, origin: str, imported: Imported) -> dict[str, Entry]:
    stated = imported.gpus is not None
    each = imported.gpus_per_node
    if each is None or each.value <= 0 or gpus % each.value:
        each = _even_nodes(gpus, tp, each)
    return {
        "gpu": Entry(GPU, f"{_DEFAULT}: say which GPU it is", stated=False),
        "nodes": Entry(gpus // each.value, f"{gpus} GPUs {origin}", stated),
        "gpus_per_node": each,
        "nic_gbit_per_gpu": Entry(NIC_GBIT, f"{_DEFAULT}: one adapter a GPU", stated=False),
    }


def _even_nodes(gpus: int, tp: int, stated: Entry | None) -> Entry:
    """The largest node of at most eight GPUs that the GPUs fill evenly."""
    each = max((size for size in range(1, GPUS_OF_A_NODE + 1) if gpus % size == 0), default=1)
    if tp > each and gpus % tp == 0:
        each = tp
    if stated is not None:
        return Entry(each, f"{_DEFAULT}: {gpus} GPUs are no whole nodes of {stated.value} ({stated.origin})", False)
    return Entry(each, _DEFAULT, stated=False)


def _size(name: str) -> int:
    entry = catalog.entry("clusters", name)
    values = dict(entry.values)
    while entry.extends and not {"nodes", "gpus_per_node"} <= values.keys():
        entry = catalog.entry("clusters", entry.extends)
        values = {**entry.values, **values}
    return int(values.get("nodes", 1)) * int(values.get("gpus_per_node", 1))
