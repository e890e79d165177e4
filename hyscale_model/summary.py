"""From arrays to the JSON of one system: nominal values, intervals, memory and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyscale_model.arrays import nominal
from hyscale_model.evaluate import Evaluation
from hyscale_model.families import anatomy
from hyscale_model.layers.hytopk import HyTopKSizes
from hyscale_model.layers.kept import layer_input_bytes
from hyscale_model.layers.sizes import Sizes
from hyscale_model.layers.training_flops import training_flops_per_token
from hyscale_model.memory.selection import selection_bytes
from hyscale_model.memory.stages import KINDS, StageMemory
from hyscale_model.prediction import SELECTION_TERMS, TERMS, Origin
from hyscale_model.rates.roofline import weakest
from hyscale_model.scenario.schema import LayerScope, Scenario, System
from hyscale_model.step.step import IDLE_TERMS

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


def quantiles(values: np.ndarray) -> np.ndarray:
    """10th, 50th and 90th percentile over draws (linear between order statistics), shape (3, ...).

    ``values`` ends in (nominal, draws...); without draws the nominal value stands for all three.
    """
    if values.shape[-1] == 1:
        return np.stack([values[..., 0]] * len(QUANTILES))
    ordered = np.sort(values[..., 1:], axis=-1)
    last = ordered.shape[-1] - 1
    result = []
    for share in QUANTILES.values():
        place = share * last
        low = int(place)
        high = min(low + 1, last)
        result.append(ordered[..., low] + (place - low) * (ordered[..., high] - ordered[..., low]))
    return np.stack(result)


def interval(values: np.ndarray) -> dict[str, float]:
    """``{"nominal", "p10", "p50", "p90"}`` of an array (1, draws + 1)."""
    return intervals(values)[0]


def intervals(rows: np.ndarray) -> list[dict[str, float]]:
    """One interval for each row of an array (rows, draws + 1)."""
    columns = np.concatenate([rows[None, :, 0], quantiles(rows)])
    return [dict(zip(("nominal", *QUANTILES), row, strict=True)) for row in columns.T.tolist()]


def summarize(result: Evaluation) -> dict[str, Any]:
    """The JSON of one system without its memory, for a single scenario."""
    step, case, sizes = result.step, result.case, result.sizes
    cluster = case.cluster
    explanation = result.explain()
    used = [term for term in TERMS if step.term(term).any()]
    selection = sum(step.term(term) for term in SELECTION_TERMS)
    rows = [
        step.seconds,
        selection / step.seconds,
        step.term("selection_recompute") / step.seconds,
        result.tokens_per_gpu / step.seconds,
        *(step.term(term) for term in used),
    ]
    seconds, share, recompute_share, throughput, *per_term = intervals(np.concatenate(rows))
    time_s = {term: row["nominal"] for term, row in zip(used, per_term, strict=True)}
    busy = sum(value for term, value in time_s.items() if term not in (*IDLE_TERMS, "optimizer"))
    flops = nominal(training_flops_per_token(case, sizes))
    gpu_hours = 1e9 / throughput["nominal"] / 3600
    return {
        "switches": as_json(case.systems[0], leave_out=("name", "layout", "training")),
        "step_time_s": seconds,
        "time_s": time_s,
        "terms": {
            term: {name: row[name] for name in QUANTILES} | {"origin": _origin(explanation.origins, term)}
            for term, row in zip(used, per_term, strict=True)
        },
        "hidden_communication_s": {name: nominal(values) for name, values in step.hidden.items()},
        "floor_s": {term: value for term, value in explanation.floor_s.items() if term in time_s},
        "bound_by": {term: value for term, value in explanation.bound_by.items() if term in time_s},
        "extrapolated": extrapolated_terms(result),
        "critical_stage": int(step.stage[0, 0]),
        "busy_time_s": busy,
        "selection_share_of_step": share,
        "selection_share_of_busy": nominal(selection) / busy if busy else 0.0,
        "selection_recompute_share_of_step": recompute_share,
        "tokens_per_s_per_gpu": throughput,
        "model_flops_utilization": (
            None if isinstance(case.scope, LayerScope) else flops * throughput["nominal"] / cluster.gpu.bf16_flops
        ),
        "micro_batches": int(nominal(sizes.micro_batches)),
        "data_parallel": int(nominal(sizes.dp)),
        "hytopk": _hytopk(result),
        "gpu_hours_per_billion_tokens": gpu_hours,
        "cost_per_billion_tokens": (
            None if cluster.usd_per_gpu_hour is None else gpu_hours * nominal(cluster.usd_per_gpu_hour)
        ),
    }


def extrapolated_terms(result: Evaluation) -> list[str]:
    """Terms with a kernel outside what the profile measured, at the nominal point."""
    return [term for term, beyond in zip(TERMS, result.extrapolated()[:, 0].tolist(), strict=True) if beyond]


def _origin(found: Mapping[str, Origin], term: str) -> str:
    """The least certain origin behind a term; what follows from all of them is as certain as the worst."""
    return (found[term] if term in found else weakest(list(found.values()))).origin


def _hytopk(result: Evaluation) -> dict[str, float] | None:
    """What HyTopK samples and expects for the longest context of the first kind of layer that selects."""
    indices = [each.index for each in anatomy(result.case.model).attentions if each.index is not None]
    if result.case.systems[0].selection != "hytopk" or not indices:
        return None
    keys = nominal(result.sizes.longest()) / indices[0].ratio
    sizes = HyTopKSizes.of(keys, indices[0].topk)
    return {
        "samples": sizes.samples,
        "stride": sizes.stride,
        "rank": sizes.rank,
        "expected_candidates": sizes.candidates,
    }


def summarize_memory(case: Scenario, memory: StageMemory) -> dict[str, Any]:
    """The memory part of a system's JSON: peak, verdict, what it consists of, by stage."""
    totals = memory.totals[:, :, 0, 0]
    stage, moment = np.unravel_index(totals.argmax(), totals.shape)
    capacity = nominal(case.cluster.gpu.memory_bytes)
    peak = interval(memory.peak())
    kinds = memory.nominal_kinds()
    allocated, stored = memory.nominal_allocated(kinds), memory.nominal_stored()
    stages = [
        {
            "stage": rank,
            "peak_bytes": float(totals[rank].max()),
            "peak_when": memory.moments[int(totals[rank].argmax())],
            "at_peak_bytes": _by_kind(kinds[rank, totals[rank].argmax()]),
            "stored_activations_bytes": float(stored[rank]),
        }
        for rank in range(totals.shape[0])
    ]
    return {
        "capacity_bytes": capacity,
        "peak_bytes": peak["nominal"],
        "peak_interval_bytes": peak,
        "peak_allocated_bytes": float(allocated.max()),
        "stored_activations_bytes": float(stored.max()),
        "host_bytes": memory.nominal_on_host(),
        "peak_stage": int(stage),
        "peak_when": memory.moments[int(moment)],
        "verdict": verdict(peak, capacity),
        "overflow": _overflow(kinds[stage, moment], peak["nominal"], capacity, int(stage)),
        "at_peak_bytes": _by_kind(kinds[stage, moment]),
        "largest_bytes": _by_kind(kinds.max(axis=(0, 1))),
        "per_layer_bytes": _per_layer(case),
        "stages": stages,
    }


def _per_layer(case: Scenario) -> dict[str, float]:
    """Bytes of the widest layer and one micro-batch."""
    sizes, body = Sizes.of(case), anatomy(case.model)
    layers = [selection_bytes(case, sizes, each) for each in body.attentions]
    return {
        "selection_indices": max(nominal(layer.indices) for layer in layers),
        "score_table": max(nominal(layer.table) for layer in layers),
        "candidates": max(nominal(layer.candidates) for layer in layers),
        "gathered_kv": max(nominal(layer.gathered) for layer in layers),
        "activations": nominal(layer_input_bytes(case, sizes, body)),
    }


def verdict(peak: dict[str, float], capacity: float) -> str:
    """fits: the 90th percentile does; does_not_fit: not even the 10th does; at_risk: in between."""
    if peak["p90"] <= capacity:
        return "fits"
    return "does_not_fit" if peak["p10"] > capacity else "at_risk"


def _by_kind(values: np.ndarray) -> dict[str, float]:
    return {kind: float(value) for kind, value in zip(KINDS, values, strict=True) if value}


def _overflow(kinds: np.ndarray, peak: float, capacity: float, stage: int) -> dict[str, Any] | None:
    if peak <= capacity:
        return None
    return {"kind": KINDS[int(kinds.argmax())], "by_bytes": peak - capacity, "stage": stage}


def as_json(value: Any, leave_out: Sequence[str] = ()) -> Any:
    """Plain JSON of a schema object: dataclasses as mappings, tuples as lists, systems as a mapping by name.

    Where a field is drawn, its nominal value stands for it.
    """
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_json(getattr(value, name)) for name in value.__dataclass_fields__ if name not in leave_out}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, System) for item in value):
            return {item.name: as_json(item, ("name",)) for item in value}
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.flat[0].item()
    return value.item() if isinstance(value, np.generic) else value
