"""A small transformer trained as several systems side by side, beside what the model says of its step.

Whether systems trained the same model is a fact of the record (``python -m hyscale_calibration.training``):
fingerprints of what was selected and the bits of losses agree or they do not. Time and memory are predicted by the code
that predicts any step, from a scenario with the model that was trained. Two inputs are those of the measurement and not
of the profile: the kernels are ``hyscale_kernels``, and neighbouring queries share as many keys as they were counted to
share.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hyscale_model.catalog import measured
from hyscale_model.checks.bars import bar
from hyscale_model.checks.kernels import USUAL_PROFILE
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluator
from hyscale_model.locations import user_data_directory
from hyscale_model.memory.ends import CUBLAS_WORKSPACE_BYTES
from hyscale_model.prediction import Origin
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.rates.profile import Profile, Rate
from hyscale_model.scenario.resolve import read_scenario
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.summary import interval

GROUP = "training"
NAME = "training.json"
# Times are of runs whose kernels add in any order, as they are used; bits are compared of the others.
ATOMIC = "/atomic"
BASE = "megatron"
# A system of the record -> the one of the catalogue that it extends, and its other switches.
_EXTENDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "hyscale-one-query": ("hyscale", {"sparse_attention": "per_query"}),
}
TIME, RATIO, MEMORY = "time", "speed_up", "memory"
# Deterministic runs that must agree to the bit: they make the same additions in the same order.
SAME_BITS = (BASE, "hyscale")


def records() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where trainings are recorded, and what; those on the user's own GPUs first."""
    folders = dict.fromkeys([user_data_directory(), *(folder.parent for folder in measured.folders())])
    for folder in folders:
        for path in sorted((folder / "results").glob(f"*/{NAME}")):
            data = _read(path)
            # Without a GPU only kernels are tried, not timed.
            if data["gpu"]:
                yield f"results/{path.parent.name}/{path.name}", data


def _read(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def losses(run: Mapping[str, Any]) -> list[float]:
    """The loss of each step, from the bits of FP32."""
    return [struct.unpack(">f", bytes.fromhex(bits))[0] for bits in run["loss"]]


def long_steps(data: Mapping[str, Any]) -> int:
    """The first step on documents as long as the sequence."""
    return sum(stage["steps"] for stage in data["stages"][:-1])


def step_seconds(data: Mapping[str, Any], run: str) -> float | None:
    """Median time of the steps on the longest documents; None where there are none."""
    held = data["runs"][run]
    times = held["time_ms"][max(0, long_steps(data) - held["first_step"]) :]
    return float(np.median(times)) * 1e-3 if times else None


def common_keys(data: Mapping[str, Any]) -> float:
    """Share of selected keys that neighbouring queries have in common, over layers and the steps it was counted in."""
    first = long_steps(data)
    found = [share for entry in data["selections"] if entry["step"] >= first for share in entry["shared_keys"]]
    return float(np.mean(found)) if found else 0.0


def training_scenario(data: Mapping[str, Any]) -> Scenario:
    """What was trained, as a scenario of one GPU; systems are those whose steps were timed."""
    systems = [
        {"name": name, "extends": base, "backend": "hyscale_kernels", **switches}
        for name in _timed(data)
        for base, switches in [_EXTENDS.get(name, (name, {}))]
    ]
    # JSON is YAML.
    text = json.dumps(
        {
            "schema_version": 1,
            "name": "a small transformer",
            "model": {"extends": "glm-5.1", **data["model"]},
            "cluster": {"gpu": data["gpu"], "nodes": 1, "gpus_per_node": 1, "nic_gbit_per_gpu": 400},
            "layout": {"tp": 1},
            "workload": {"sequence_length": data["task"]["tokens"], "global_batch_size": 1},
            "training": {
                "precision": "bf16",
                "index_precision": "bf16",
                "recompute": "full",
                "index_loss": "sparse",
                "gradient_precision": "bf16",
            },
            "systems": systems,
        }
    )
    return read_scenario(NAME, text=text.encode()).scenario


def _timed(data: Mapping[str, Any]) -> list[str]:
    """Systems with a run that adds in any order and that reached the longest documents."""
    names = [name.removesuffix(ATOMIC) for name in data["runs"] if name.endswith(ATOMIC)]
    return [name for name in names if step_seconds(data, name + ATOMIC) is not None]


def training_rows(profile: str | None, draws: int, seed: int) -> list[dict[str, Any]]:
    """Time of a step, speed-up and memory of each system of each recorded training, measured and predicted.

    Raises:
        InputError: there is no such profile.
    """
    return [row for source, data in records() for row in _rows(source, data, profile, draws, seed)]


def recorded() -> bool:
    """Whether there is a training to check."""
    return any(True for _ in records())


def must_be_recorded() -> None:
    """For whoever asks for trainings alone.

    Raises:
        InputError: none is recorded; with how to do it.
    """
    if not recorded():
        folder = user_data_directory() / "results"
        raise InputError(
            "no training is recorded",
            field="--group",
            expected=f"a record, of python -m hyscale_calibration.training --json {folder}/GPU/{NAME} on a GPU",
        )


def _rows(source: str, data: Mapping[str, Any], profile: str | None, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    gpu = str(data["gpu"])
    rates = load_profile(profile or measured.for_gpu(gpu) or USUAL_PROFILE)
    scenario = training_scenario(data)
    evaluator = Evaluator(scenario, {}, Draws(draws, seed), _counted(rates, common_keys(data)))
    results = {
        system.name: result.step.seconds
        for system, result in zip(scenario.systems, evaluator.steps(scenario.systems), strict=True)
    }

    def one(kind: str, name: str, metric: str, value: float, expected: Mapping[str, float]) -> dict[str, Any]:
        return {
            "group": GROUP,
            "split": kind,
            "family": f"{gpu}: {kind}",
            "id": name,
            "metric": metric,
            "relation": "equal",
            "reported": value,
            "predicted": dict(expected),
            "error": expected["nominal"] / value - 1,
            "inside": expected["p10"] <= value <= expected["p90"] if kind != MEMORY else None,
            "floor": None,
            "note": None,
            "source": f"{source}, profile {rates.name}",
        }

    seconds = {name: step_seconds(data, name + ATOMIC) for name in results}
    for system in scenario.systems:
        name = system.name
        told = seconds[name]
        if told is not None:
            yield one(TIME, f"step of {name}", f"systems.{name}.step_time_s", told, interval(results[name]))
    for name, told in islice(seconds.items(), 1, None):
        base = seconds.get(BASE)
        if told and base:
            ratio = interval(results[BASE] / results[name])
            yield one(RATIO, f"{name} over {BASE}", f"speedup.{name}/{BASE}", base / told, ratio)
    for system in scenario.systems:
        peak = data["runs"][system.name + ATOMIC]["peak_bytes"]
        found = dict.fromkeys(("nominal", "p10", "p50", "p90"), _peak_bytes(evaluator, system))
        name = system.name
        yield one(MEMORY, f"memory of {name}", f"systems.{name}.memory.peak_allocated_bytes", peak, found)


def _peak_bytes(evaluator: Evaluator, system: System) -> float:
    """As allocated. The trainer adds gradients up in PyTorch's way: there are no placeholders of them."""
    memory = evaluator.memory(system)
    always = {**memory.always, "workspaces": CUBLAS_WORKSPACE_BYTES}
    alone = replace(memory, always=always)
    return float(alone.nominal_allocated(alone.nominal_kinds()).max())


def _counted(profile: Profile, shared: float) -> Profile:
    origin = Origin("given", "counted in the selections of the training")
    # Rates are drawn by their logarithm.
    shared = max(shared, 1e-6)
    return replace(profile, factors={**profile.factors, "pair_overlap": Rate(shared, shared, shared, origin)})


def training_bars() -> list[dict[str, Any]]:
    """Whether systems that must train the same model did, to the bit."""
    bars = []
    for _, data in records():
        if all(name in data["runs"] for name in SAME_BITS):
            first, second = (data["runs"][name] for name in SAME_BITS)
            for what, told in (("selected", "selections"), ("loss", "losses"), ("weights", "weights")):
                differ = sum(a != b for a, b in zip(first[what], second[what], strict=False))
                name = f"number of steps whose {told} differ between {' and '.join(SAME_BITS)}"
                bars.append(bar(name, differ, at_most=0, unit="count"))
    return bars


def training_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is added to the summary of the group: its bars."""
    return {"bars": training_bars()} if rows else {}
