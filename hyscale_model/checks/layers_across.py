"""Attention layers shared by several GPUs of one host, with real collectives, beside what the model says of them.

The prediction is that of ``checks.layers`` with communication: a scenario of one layer over context ranks of one node,
collectives at the links that the profile measured over as many GPUs, or else those assumed, by the code that predicts
steps. Exposed is what a rank's GPU spends on collectives alone; waiting for slower ranks is measured apart, the model
has ranks that are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyscale_model import catalog
from hyscale_model.catalog import measured
from hyscale_model.checks.bars import bar
from hyscale_model.checks.kernels import USUAL_PROFILE
from hyscale_model.checks.layers import GROUP, USUAL_SHARED_KEYS, Layer, layer_bytes, profile_of_layer
from hyscale_model.evaluate import Evaluator
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.rates.profile import Profile
from hyscale_model.scenario.resolve import read_scenario
from hyscale_model.scenario.schema import Scenario
from hyscale_model.summary import interval

# What stands beside a prediction; bars are over the first two.
STEP, EXPOSED, HIDDEN, CONTENTION, MEMORY = (
    "step of ranks",
    "exposed communication",
    "hidden communication",
    "contention",
    "memory of ranks",
)
STEP_BAR, EXPOSED_BAR, EXPOSED_BAR_S = 0.08, 0.15, 1e-3
_EXPOSED, _GROUP = "cp_communication_exposed", "cp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLayer:
    """A layer, a system and whether its gathers are hidden, over context ranks of one node."""

    layer: Layer
    cp_overlap: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> SharedLayer:
        """Of a measured row."""
        return cls(layer=Layer.of(row), cp_overlap=row["cp_overlap"])

    @property
    def id(self) -> str:
        """Such as ``glm-5.1 dsa 131072/2 hyscale, gathers behind_selection``."""
        return f"{self.layer.id}, gathers {'exposed' if self.cp_overlap == 'none' else 'hidden'}"


def shared_layers() -> list[SharedLayer]:
    """Those of the catalogue."""
    file = catalog.document("layers", "across-ranks").data
    return [
        SharedLayer(
            layer=Layer(
                model=row["model"],
                layer=row["layer"],
                system=variant["system"],
                length=row["sequence_length"],
                ranks=row["cp"],
                shared_keys=USUAL_SHARED_KEYS,
            ),
            cp_overlap=variant["cp_overlap"],
        )
        for row in file["rows"]
        for variant in file["variants"]
    ]


def shared_scenario(shared: SharedLayer, gpu: str, profile: str) -> Scenario:
    """The scenario of one layer with its communication over the GPUs of a node, whose links are those of a profile."""
    layer = shared.layer
    switches = f"backend: hyscale_kernels, cp_overlap: {shared.cp_overlap}"
    text = f"""
schema_version: 1
name: {shared.id}
model: {layer.model}
cluster: {{gpu: {gpu}, nodes: 1, gpus_per_node: {layer.ranks}, nic_gbit_per_gpu: 400}}
layout: {{tp: 1, pp: 1, cp: {layer.ranks}, ep: {layer.ranks}, zero: 1, cp_order: zigzag, index_balance: true}}
workload: {{sequence_length: {layer.length}, global_batch_size: 1, micro_batch_size: 1}}
training: {{precision: bf16, index_precision: bf16, recompute: full, index_loss: sparse}}
systems: [{{name: {layer.system}, extends: {layer.system}, {switches}}}]
scope: {{layer: {layer.layer}, include: [attention, communication]}}
profile: "{profile}"
"""
    return read_scenario(f"{shared.id}.yaml", text=text.encode()).scenario


def predict_shared(shared: SharedLayer, gpu: str, profile: Profile, draws: int, seed: int) -> dict[str, Any]:
    """Intervals of seconds: of a step, its exposed and hidden collectives, and their contention; and peak bytes.

    Contention is the time that computation loses a second of a collective beside it. A step's term of exposed
    communication has what is lost so too; here exposed is the collectives' own.
    """
    scenario = shared_scenario(shared, gpu, profile.name)
    rates = profile_of_layer(profile, shared.layer.shared_keys)
    evaluator = Evaluator(scenario, {}, Draws(draws, seed), rates)
    (result,) = evaluator.steps(scenario.systems)
    step = result.step
    hidden = step.hidden.get(_GROUP, np.zeros_like(step.seconds))
    contention = np.broadcast_to(result.priced.rates.factor("overlap_contention"), step.seconds.shape)
    peak, _ = layer_bytes(evaluator.memory(scenario.systems[0]), result)
    return {
        "time_s": interval(step.seconds),
        "exposed_s": interval(step.term(_EXPOSED) - contention * hidden),
        "hidden_s": interval(hidden),
        "contention": interval(contention),
        "peak_bytes": peak,
    }


def shared_rows(profile: str | None, draws: int, seed: int) -> list[dict[str, Any]]:
    """Every measured layer of several GPUs and what was predicted of it in advance, or else is predicted now.

    Args:
        profile: its GPU's layers alone; None: all, by the best profile of each GPU.
        draws: samples behind each interval; seed: of the draws.
    """
    wanted = None if profile is None else measured.read(measured.paths()[profile]).get("gpu")
    found: list[dict[str, Any]] = []
    for source, data in recorded():
        gpu = str(data["gpu"])
        if wanted not in (None, gpu):
            continue
        rates = load_profile(profile or measured.for_gpu(gpu) or USUAL_PROFILE)
        for row in data["rows"]:
            shared = SharedLayer.of(row)
            found += _compared(shared, gpu, row, predict_shared(shared, gpu, rates, draws, seed), source)
    return found


def recorded() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where it is recorded, and what was measured: ``results/<gpu>/layers-cp<ranks>.json``, the user's own first."""
    seen: set[str] = set()
    for folder in measured.folders():
        for path in sorted((folder.parent / "results").glob("*/layers-cp*.json")):
            name = f"{path.parent.name}/{path.name}"
            if name not in seen:
                seen.add(name)
                yield f"results/{name}", json.loads(path.read_text(encoding="utf-8"))


def unmeasured() -> list[str]:
    """What no machine has measured of the catalogue's layers, a sentence for each number of ranks."""
    done = {SharedLayer.of(row).id for _, data in recorded() for row in data["rows"]}
    missing: dict[int, int] = {}
    for shared in shared_layers():
        if shared.id not in done:
            missing[shared.layer.ranks] = missing.get(shared.layer.ranks, 0) + 1
    return [
        f"{GROUP}: {count} layers over {ranks} GPUs were NOT MEASURED, real context parallelism there is predicted "
        f"alone. Measure: torchrun --nproc-per-node {ranks} -m hyscale_calibration.layers --cp"
        for ranks, count in missing.items()
    ]


def _compared(
    shared: SharedLayer, gpu: str, row: Mapping[str, Any], predicted: Mapping[str, Any], source: str
) -> Iterator[dict[str, Any]]:
    def one(kind: str, metric: str, value: float, expected: Mapping[str, float]) -> dict[str, Any]:
        return {
            "group": GROUP,
            "split": kind,
            "family": f"{gpu}: {kind}",
            "id": f"{shared.id}: {kind}",
            "metric": metric,
            "relation": "equal",
            "reported": value,
            "predicted": dict(expected),
            # Of a difference of two times that are nearly equal a share says nothing; its interval does.
            "error": expected["nominal"] / value - 1 if value > 0 and kind != CONTENTION else None,
            "inside": expected["p10"] <= value <= expected["p90"] if expected["p10"] < expected["p90"] else None,
            "floor": None,
            "note": None,
            "source": source,
        }

    shown = row["communication"]
    yield one(STEP, "layer.step_of_ranks_time_s", row["median_ms"] * 1e-3, predicted["time_s"])
    yield one(
        EXPOSED, "layer.exposed_communication_time_s", shown["exposed_transfer_ms"] * 1e-3, predicted["exposed_s"]
    )
    if predicted["hidden_s"]["nominal"] > 0:
        yield one(HIDDEN, "layer.hidden_communication_time_s", shown["hidden_ms"] * 1e-3, predicted["hidden_s"])
    contention = row.get("contention")
    if contention is not None and shared.cp_overlap != "none":
        yield one(CONTENTION, "layer.overlap_contention", contention["lost_per_s"], predicted["contention"])
    peak = dict.fromkeys(("nominal", "p10", "p50", "p90"), predicted["peak_bytes"])
    yield one(MEMORY, "layer.memory_of_ranks_bytes", row["peak_bytes"], peak)


def shared_bars(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The worst step, and the worst exposed communication in shares of what it may be off by; none if none was
    measured."""
    bars = []
    steps = [abs(row["error"]) for row in rows if row["split"] == STEP]
    if steps:
        bars.append(bar("worst error of a step of ranks", float(max(steps)), at_most=STEP_BAR))
    beyond = [
        abs(row["predicted"]["nominal"] - row["reported"]) / max(EXPOSED_BAR * row["reported"], EXPOSED_BAR_S)
        for row in rows
        if row["split"] == EXPOSED
    ]
    if beyond:
        bars.append(bar("worst exposed communication, in shares of 15 % or 1 ms", float(max(beyond)), at_most=1.0))
    return bars
