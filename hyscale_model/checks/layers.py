"""Whole attention layers of one context-parallel rank, measured on one GPU, beside what the model says of them.

The prediction is that of a scenario of one layer without communication (``scope``), by the code that predicts steps.
Three inputs are those of the measurement and not of the profile: the kernels are ``hyscale_kernels``, neighbouring
queries share as many keys as the data made them share, and a layer by itself is a sum of kernels, so the factor for
what steps take over those is 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hyscale_model.catalog import measured
from hyscale_model.checks.bars import bar
from hyscale_model.checks.kernels import USUAL_PROFILE, errors_of
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.families import anatomy
from hyscale_model.layers.kept import layer_input_bytes
from hyscale_model.layers.sizes import FP32_BYTES, INT32_BYTES
from hyscale_model.layers.tiles import TOGETHER
from hyscale_model.memory.moments import SCALED_KINDS
from hyscale_model.memory.stages import KINDS, StageMemory
from hyscale_model.prediction import Origin
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.rates.profile import Profile, Rate
from hyscale_model.scenario.resolve import read_scenario
from hyscale_model.scenario.schema import Scenario
from hyscale_model.summary import interval

GROUP = "layers"
# What stands beside a prediction: the whole step of a layer, one of its parts, its memory.
TIME, PART, MEMORY = "time", "part", "memory"
# What was measured where queries share a pass in another way than in the kernels that are predicted: no bar is over it.
OTHER_KERNELS = "other kernels"
MEDIAN_BAR, WORST_BAR, MEMORY_BAR = 0.06, 0.12, 0.03
# Share of keys that neighbours have in common where nobody has counted it.
USUAL_SHARED_KEYS = 0.9
GPUS_PER_NODE = 8
_NOTE = "measured with kernels in which {} queries share a pass over their keys"
_PROJECTED = ("projections", "output", "gather")
# Measured phases -> the terms of a prediction that they are; the rest is projections and passes.
PARTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "selection_forward": (("forward.selection",), ("selection_forward",)),
    "selection_recompute": (("recompute.selection",), ("selection_recompute",)),
    "sparse_attention_forward": (("forward.sparse_attention",), ("sparse_attention_forward",)),
    "sparse_attention_recompute": (("recompute.sparse_attention",), ("sparse_attention_recompute",)),
    "sparse_attention_backward": (("backward.sparse_attention",), ("sparse_attention_backward",)),
    "index_loss": (("recompute.index_loss", "backward.index_loss"), ("index_loss",)),
    "projections": (
        (
            *(f"{direction}.{part}" for direction in ("forward", "recompute", "backward") for part in _PROJECTED),
            # Where a layer pools its keys, or gathers more than one kind, products of keys run beside the indexer's.
            "forward.index_projections",
            "recompute.index_projections",
            "backward.index_projections",
        ),
        ("projections", "index_projections", "other_compute"),
    ),
}
# Parts that are one where queries are paired: a recomputation lists what they share, and the backward's rate, as it was
# measured, has the lists in it.
_LISTED = ("sparse_attention_recompute", "sparse_attention_backward")
_TOGETHER = "sparse_attention_recompute_and_backward"
# Of what a rank holds, what a measurement counts: not what is there before the layer runs, nor the framework.
_BEFORE = ("parameters", "gradients", "optimizer", "workspaces", "framework")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer and a system, as a row of the measurement names them.

    Attributes:
        model: of the catalogue; layer: its kind of attention; system: of the catalogue.
        length: tokens of the sequence; ranks: of context parallelism.
        shared_keys: share of selected keys that neighbouring queries have in common.
    """

    model: str
    layer: str
    system: str
    length: int
    ranks: int
    shared_keys: float

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Layer:
        """Of a measured row."""
        return cls(
            model=row["model"],
            layer=row["layer"],
            system=row["system"],
            length=row["shape"]["L"],
            ranks=row["shape"]["ranks"],
            shared_keys=row["shared_keys"],
        )

    @property
    def pairs(self) -> bool:
        """Whether its system pairs queries."""
        return layer_scenario(self, "h200").systems[0].sparse_attention == "query_pairs"

    @property
    def id(self) -> str:
        """Such as ``glm-5.1 dsa 1048576/128 megatron``."""
        return f"{self.model} {self.layer} {self.length}/{self.ranks} {self.system}"


def parts_of(layer: Layer) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Measured phases and terms of each part that both sides tell."""
    if not layer.pairs:
        return PARTS
    phases, terms = zip(*(PARTS[name] for name in _LISTED), strict=True)
    found = {name: part for name, part in PARTS.items() if name not in _LISTED}
    return found | {_TOGETHER: (sum(phases, ()), sum(terms, ()))}


def layer_scenario(layer: Layer, gpu: str) -> Scenario:
    """The scenario of one layer without communication."""
    nodes = max(layer.ranks // GPUS_PER_NODE, 1)
    text = f"""
schema_version: 1
name: {layer.id}
model: {layer.model}
cluster: {{gpu: {gpu}, nodes: {nodes}, gpus_per_node: {layer.ranks // nodes}, nic_gbit_per_gpu: 400}}
layout: {{tp: 1, pp: 1, cp: {layer.ranks}, ep: {layer.ranks}, zero: 1, cp_order: zigzag, index_balance: true}}
workload: {{sequence_length: {layer.length}, global_batch_size: 1, micro_batch_size: 1}}
training: {{precision: bf16, index_precision: bf16, recompute: full, index_loss: sparse}}
systems: [{{name: {layer.system}, extends: {layer.system}, backend: hyscale_kernels}}]
scope: {{layer: {layer.layer}, include: [attention]}}
"""
    return read_scenario(f"{layer.id}.yaml", text=text.encode()).scenario


@dataclass(frozen=True, slots=True)
class PredictedLayer:
    """What the model says of a layer.

    Attributes:
        seconds: of a step, ``[1, draws + 1]``; parts: the same by name of ``parts_of``.
        peak_bytes: most bytes that the layer allocates; at_peak_bytes: by kind.
    """

    seconds: np.ndarray
    parts: Mapping[str, np.ndarray]
    peak_bytes: float
    at_peak_bytes: Mapping[str, float]


def predict_layer(layer: Layer, gpu: str, profile: Profile, draws: int, seed: int) -> PredictedLayer:
    """Time and memory of a layer on a GPU."""
    scenario = layer_scenario(layer, gpu)
    evaluator = Evaluator(scenario, {}, Draws(draws, seed), profile_of_layer(profile, layer.shared_keys))
    (result,) = evaluator.steps(scenario.systems)
    parts = {
        name: sum((result.step.term(term) for term in terms), start=np.zeros((1, 1)))
        for name, (_, terms) in parts_of(layer).items()
    }
    memory = evaluator.memory(scenario.systems[0])
    return PredictedLayer(result.step.seconds, parts, *layer_bytes(memory, result))


def profile_of_layer(profile: Profile, shared_keys: float) -> Profile:
    """A profile with what a layer by itself fixes: nothing over its kernels, and keys that neighbours share."""

    def fixed(value: float, reason: str) -> Rate:
        return Rate(value, value, value, Origin("given", reason))

    return replace(
        profile,
        factors={
            **profile.factors,
            "step_over_kernels": fixed(1.0, "a layer by itself is a sum of kernels"),
            "pair_overlap": fixed(shared_keys, "counted in the selections of the layer"),
        },
    )


def layer_bytes(memory: StageMemory, result: Evaluation) -> tuple[float, dict[str, float]]:
    """Most bytes that the layer itself has allocated at any moment, by kind too; what it reads is there before.

    A measured layer has one residual stream, what its forward returned is held until its step has ended, and what the
    step before selected until this one's forward has: it is there before, and gone by the backward.
    """
    kinds = memory.nominal_kinds()[0]
    body, sizes, case = anatomy(result.case.model), result.sizes, result.case
    for kind in _BEFORE:
        kinds[:, KINDS.index(kind)] = 0.0
    for kind in SCALED_KINDS:
        kinds[:, KINDS.index(kind)] /= float(np.asarray(memory.allocator).reshape(-1)[0])
    before = float(layer_input_bytes(case, sizes, body))
    before_of_block = before / body.streams
    if body.streams > 1:
        # Of several streams a layer keeps all and reads a mixture, which is what was measured.
        before += before_of_block
    row = KINDS.index("activations")
    kinds[:, row] -= before
    kinds[_moments(memory, "backward, "), row] += before_of_block
    attending = _moments(memory, "backward, attention")
    # The gradient of its output is there too, and what a recomputation returns has one stream.
    kinds[attending, row] -= body.streams * before_of_block
    selected = kinds[:, KINDS.index("selection_indices")]
    if case.systems[0].recompute_selection == "skip":
        # Scores are kept with the indices.
        kinds[attending, row] -= selected[attending] * FP32_BYTES / INT32_BYTES
    selected[attending] = 0.0
    place = int(kinds.sum(axis=1).argmax())
    at_peak = dict(zip(KINDS, kinds[place].tolist(), strict=True))
    return float(kinds[place].sum()), {kind: value for kind, value in at_peak.items() if value}


def _moments(memory: StageMemory, begin: str) -> list[bool]:
    return [moment.startswith(begin) for moment in memory.moments]


def layer_rows(profile: str | None, draws: int, seed: int) -> list[dict[str, Any]]:
    """Every measured layer and what a profile says of it.

    Args:
        profile: its GPU's layers alone, beside what was predicted of them in advance, if anything was, else beside what
            the profile says. None: all that were measured, by the best profile of each GPU.
        draws: samples behind each interval; seed: of the draws.

    Raises:
        InputError: there is no such profile.
    """
    wanted = None if profile is None else _gpu_of(profile)
    found: list[dict[str, Any]] = []
    for gpu, name, data in _measured():
        if wanted not in (None, gpu):
            continue
        ahead = None if profile is None or profile == USUAL_PROFILE else predicted_in_advance(gpu, data)
        rates = load_profile(profile or measured.for_gpu(gpu) or USUAL_PROFILE)
        for row in data["rows"]:
            layer = Layer.of(row)
            known = (ahead or {}).get(layer.id)
            result = known or as_json(predict_layer(layer, gpu, rates, draws, seed))
            source = f"{name}, profile {rates.name}{', in advance' * bool(known)}"
            rows = list(_compared(layer, gpu, row, result, source))
            if data["together"] != TOGETHER and layer.pairs:
                rows = [row | {"split": OTHER_KERNELS, "note": _NOTE.format(data["together"])} for row in rows]
            found += rows
    return found


def _gpu_of(profile: str) -> str:
    path = measured.paths().get(profile, Path(profile))
    if path.suffix != ".json":
        raise InputError(
            f"{profile} was measured on no GPU",
            field="--profile",
            expected="a measured profile: " + ", ".join(measured.paths()),
        )
    return str(measured.read(path).get("gpu"))


def _measured() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """GPU, where it is recorded, and measured layers; of one GPU the user's own before shipped ones."""
    seen: set[str] = set()
    for folder in measured.folders():
        for path in sorted((folder.parent / "results").glob("*/layers.json")):
            data = json.loads(path.read_text(encoding="utf-8"))
            gpu = str(data["gpu"])
            if gpu not in seen:
                seen.add(gpu)
                yield gpu, f"results/{path.parent.name}/{path.name}", data


def as_json(found: PredictedLayer) -> dict[str, Any]:
    """Intervals of seconds, and bytes."""
    return {
        "time_s": interval(found.seconds),
        "parts_s": {name: interval(values) for name, values in found.parts.items()},
        "peak_bytes": found.peak_bytes,
        "at_peak_bytes": dict(found.at_peak_bytes),
    }


def predicted_in_advance(gpu: str, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Predictions of a GPU's layers by their ids, if there are any of the kernels that were measured."""
    for folder in measured.folders():
        path = folder.parent / "results" / "predicted" / "layers" / f"{gpu}.json"
        if path.is_file():
            file = json.loads(path.read_text(encoding="utf-8"))
            same = file["kernel_hash"] in (None, data["kernel_hash"])
            return {row["id"]: row for row in file["rows"]} if same else None
    return None


def _compared(
    layer: Layer, gpu: str, row: Mapping[str, Any], predicted: Mapping[str, Any], source: str
) -> Iterator[dict[str, Any]]:
    """A measured layer beside its prediction: the whole, its parts, its memory."""

    def one(kind: str, name: str, unit: str, value: float, expected: Mapping[str, float]) -> dict[str, Any]:
        return {
            "group": GROUP,
            "split": kind,
            "family": f"{gpu}: {name}",
            "id": f"{layer.id}: {name}" if kind != TIME else layer.id,
            "metric": f"layer.{name.replace(' ', '_')}_{unit}",
            "relation": "equal",
            "reported": value,
            "predicted": dict(expected),
            "error": expected["nominal"] / value - 1,
            "inside": expected["p10"] <= value <= expected["p90"] if kind != MEMORY else None,
            "floor": None,
            "note": None,
            "source": source,
        }

    yield one(TIME, "step", "time_s", row["median_ms"] * 1e-3, predicted["time_s"])
    phases = row["phases_ms"]
    for name, (measured_phases, _) in parts_of(layer).items():
        seconds = sum(phases.get(phase, 0.0) for phase in measured_phases) * 1e-3
        # A selection that is kept takes no time, but for looking it up.
        if predicted["parts_s"][name]["nominal"] > 0:
            yield one(PART, name.replace("_", " "), "time_s", seconds, predicted["parts_s"][name])
    peak = predicted["peak_bytes"]
    yield one(MEMORY, "memory", "bytes", row["peak_bytes"], dict.fromkeys(("nominal", "p10", "p50", "p90"), peak))


def layer_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Errors by what is compared, and the bars over whole layers and their memory."""
    families = {
        family: errors_of([row for row in rows if row["family"] == family])
        for family in dict.fromkeys(row["family"] for row in rows if row["error"] is not None)
    }
    errors = {kind: np.abs([row["error"] for row in rows if row["split"] == kind]) for kind in (TIME, MEMORY)}
    reached = (
        ("median error of time", np.median, TIME, MEDIAN_BAR),
        ("worst error of time", np.max, TIME, WORST_BAR),
        ("worst error of memory", np.max, MEMORY, MEMORY_BAR),
    )
    bars = [bar(name, float(of(errors[kind])), at_most=limit) for name, of, kind, limit in reached if len(errors[kind])]
    return {"by_family": families, "bars": bars}
