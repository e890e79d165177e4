"""From arrays to the JSON of one system: nominal values, intervals, memory and its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.evaluate import Evaluation
from hyscale_model.layers.hytopk import HyTopKSizes
from hyscale_model.layers.parameters import training_flops_per_token
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.layer import layer_bytes
from hyscale_model.memory.stages import KINDS, MOMENTS, StageMemory
from hyscale_model.prediction import SELECTION_TERMS, TERMS, Origin
from hyscale_model.rates.roofline import weakest
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.step import IDLE_TERMS, StepTime

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
    """The JSON of one system, for a single scenario."""
    step, case, sizes = result.step, result.case, result.sizes
    explanation = result.explain()
    used = [term for term in TERMS if step.term(term).any()]
    stacked = np.concatenate([step.seconds, *(step.term(term) for term in used)])
    low, middle, high = quantiles(stacked).tolist()
    nominal = stacked[:, 0].tolist()
    time_s = dict(zip(used, nominal[1:], strict=True))
    terms = {
        term: {"p10": low[row], "p50": middle[row], "p90": high[row], "origin": _origin(explanation.origins, term)}
        for row, term in enumerate(used, start=1)
    }
    busy = sum(value for term, value in time_s.items() if term not in (*IDLE_TERMS, "optimizer"))
    selection = sum(time_s.get(term, 0.0) for term in SELECTION_TERMS)
    tokens = case.workload.global_batch_size * case.workload.sequence_length
    world = sizes.world
    flops = training_flops_per_token(case.model, case.workload.sequence_length, sizes.selected)
    gpu_hours = world * step.seconds / 3600 / (tokens / 1e9)
    price = case.cluster.usd_per_gpu_hour
    nominal_tokens = _nominal(tokens)
    return {
        "switches": {
            name: value for name, value in asdict(case.systems[0]).items() if name not in ("name", "layout", "training")
        },
        "step_time_s": {"nominal": nominal[0], "p10": low[0], "p50": middle[0], "p90": high[0]},
        "time_s": time_s,
        "terms": terms,
        "hidden_communication_s": {name: float(values[0, 0]) for name, values in step.hidden.items()},
        "floor_s": {term: value for term, value in explanation.floor_s.items() if term in time_s},
        "bound_by": {term: value for term, value in explanation.bound_by.items() if term in time_s},
        "critical_stage": int(step.stage[0, 0]),
        "busy_time_s": busy,
        "selection_share_of_step": _share(step, SELECTION_TERMS),
        "selection_share_of_busy": selection / busy if busy else 0.0,
        "selection_recompute_share_of_step": _share(step, ("selection_recompute",)),
        "tokens_per_s_per_gpu": interval(np.broadcast_to(tokens / world / step.seconds, step.seconds.shape)),
        "model_flops_utilization": _nominal(flops)
        * nominal_tokens
        / (nominal[0] * _nominal(world) * case.cluster.gpu.bf16_flops),
        "micro_batches": int(_nominal(sizes.micro_batches)),
        "data_parallel": int(_nominal(sizes.dp)),
        "hytopk": _hytopk(result),
        "gpu_hours_per_billion_tokens": float(np.ravel(gpu_hours)[0]),
        "cost_per_billion_tokens": None if price is None else float(np.ravel(gpu_hours)[0]) * _nominal(price),
    }


def _nominal(value: Number) -> float:
    return float(np.ravel(value)[0])


def _share(step: StepTime, terms: Sequence[str]) -> dict[str, float]:
    return interval(sum(step.term(term) for term in terms) / step.seconds)


def _origin(found: Mapping[str, Origin], term: str) -> str:
    """The least certain origin behind a term; what follows from all of them is as certain as the worst."""
    return (found[term] if term in found else weakest(list(found.values()))).origin


def _hytopk(result: Evaluation) -> dict[str, float] | None:
    if result.case.systems[0].selection != "hytopk":
        return None
    sizes = HyTopKSizes.of(_nominal(result.sizes.keys), result.case.model.index_topk)
    return {
        "samples": sizes.samples,
        "stride": sizes.stride,
        "rank": sizes.rank,
        "expected_candidates": sizes.candidates,
    }


def summarize_memory(case: Scenario, memory: StageMemory) -> dict[str, Any]:
    """The memory part of a system's JSON: peak, verdict, what it consists of, by stage."""
    totals = memory.totals
    nominal = totals[:, :, 0, 0]
    stage, moment = np.unravel_index(nominal.argmax(), nominal.shape)
    capacity = _nominal(case.cluster.gpu.memory_bytes)
    peak = interval(totals.max(axis=(0, 1)))
    kinds = memory.bytes[:, :, :, 0, 0]
    layer = layer_bytes(case, Sizes.of(case))
    stages = [
        {
            "stage": rank,
            "peak_bytes": float(nominal[rank].max()),
            "peak_when": MOMENTS[int(nominal[rank].argmax())],
            "at_peak_bytes": _by_kind(kinds[rank, nominal[rank].argmax()]),
        }
        for rank in range(nominal.shape[0])
    ]
    return {
        "capacity_bytes": capacity,
        "peak_bytes": peak["nominal"],
        "peak_interval_bytes": peak,
        "peak_stage": int(stage),
        "peak_when": MOMENTS[int(moment)],
        "verdict": verdict(peak, capacity),
        "overflow": _overflow(kinds[stage, moment], peak["nominal"], capacity, int(stage)),
        "at_peak_bytes": _by_kind(kinds[stage, moment]),
        "largest_bytes": _by_kind(kinds.max(axis=(0, 1))),
        "per_layer_bytes": {
            "selection_indices": _nominal(layer.indices),
            "score_table": _nominal(layer.table),
            "candidates": _nominal(layer.candidates),
            "gathered_kv": _nominal(layer.gathered),
            "activations": _nominal(layer.kept),
        },
        "stages": stages,
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
