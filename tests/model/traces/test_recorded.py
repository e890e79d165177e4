"""Traces of an attention layer of GLM-5.1 that ran on an H200, against times of its phases taken without the profiler.

Each file in ``recorded`` says in its key ``origin`` how it was made.
"""

import gzip
import json
from math import log
from pathlib import Path

import pytest

from hyscale_model.scenario import read_scenario
from hyscale_model.studies.fit_run import fit_run, measured_in_trace
from hyscale_model.traces import attribute, read_trace, shipped_rules

FOLDER = Path(__file__).parent / "recorded"
# Parts of a step and the phases that they are; the rest are projections, norms and copies.
PHASES = {
    "selection_forward": ["forward.selection"],
    "selection_recompute": ["recompute.selection"],
    "sparse_attention_forward": ["forward.sparse_attention"],
    "sparse_attention_recompute": ["recompute.sparse_attention"],
    "sparse_attention_backward": ["backward.sparse_attention"],
    "index_loss": ["recompute.index_loss", "backward.index_loss"],
}
# Phases that kernels of ours or of a top-k fill; the others hold concatenations and sums of PyTorch too.
FILLED = ("selection_forward", "sparse_attention_backward")


@pytest.fixture(scope="module", params=["megatron", "hyscale"])
def recorded(request):
    path = FOLDER / f"glm-5.1-131072-{request.param}.json.gz"
    told = json.loads(gzip.decompress(path.read_bytes()))
    return attribute(read_trace(path), shipped_rules()), told


def test_nearly_all_of_the_gpu_time_is_attributed(recorded):
    found, _ = recorded
    assert found.attributed_share >= 0.95
    assert found.uncertain_s < 0.01 * found.busy_s


def test_the_step_under_the_profiler_is_that_without(recorded):
    found, told = recorded
    assert found.busy_s == pytest.approx(told["step_ms"] * 1e-3, rel=0.1)
    assert found.busy_s < found.step_s < 1.1 * told["step_ms"] * 1e-3


def test_parts_are_the_phases_that_were_measured(recorded):
    found, told = recorded
    parts = {part.terms[0]: part.seconds for part in found.parts if len(part.terms) == 1}
    for term, phases in PHASES.items():
        measured = sum(told["phases_ms"][phase] for phase in phases) * 1e-3
        # A phase holds its kernels, what PyTorch does between them, and waiting for the host.
        assert 0.55 * measured <= parts[term] <= 1.02 * measured, term
        if term in FILLED:
            assert parts[term] == pytest.approx(measured, rel=0.06), term


def test_products_are_told_together_and_are_what_is_left(recorded):
    found, told = recorded
    (rest,) = (part for part in found.parts if len(part.terms) > 1)
    assert {"projections", "index_projections", "other_compute"} <= set(rest.terms)
    known = {phase for phases in PHASES.values() for phase in phases}
    others = sum(value for phase, value in told["phases_ms"].items() if phase not in known) * 1e-3
    assert rest.seconds == pytest.approx(others, rel=0.1)


def test_replay_recomputes_a_selection_in_a_fraction_of_its_time(recorded):
    found, told = recorded
    parts = {part.terms[0]: part.seconds for part in found.parts}
    share = parts["selection_recompute"] / parts["selection_forward"]
    assert share < 0.15 if "hyscale" in told["origin"] else share == pytest.approx(1, rel=0.01)


LAYER = """
schema_version: 1
name: the layer that was traced
model: glm-5.1
cluster: {gpu: h200, nodes: 2, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {cp: 16, ep: 16}
workload: {sequence_length: 131072, global_batch_size: 1}
training: {recompute: full}
systems:
  - {name: megatron, backend: hyscale_kernels, extends: megatron}
  - {name: hyscale, backend: hyscale_kernels, extends: hyscale}
scope: {layer: dsa, include: [attention]}
profile: h200-sxm
"""


def test_a_trace_narrows_the_prediction_of_its_layer(recorded):
    found, told = recorded
    system = "hyscale" if "hyscale" in told["origin"] else "megatron"
    scenario = read_scenario("layer.yaml", text=LAYER)
    measured = measured_in_trace(found, scenario.scenario, system)
    assert {"step_time_s", "time_s.selection_forward", "time_s.sparse_attention_backward"} <= set(measured.values)
    data = fit_run(scenario, measured)
    if system == "hyscale":
        # Recorded when two queries shared a pass of the backward: kernels that the profile does not know.
        assert not data["explained"]
        slower = {row["metric"]: row["value"] - row["before"]["p50"] for row in data["measured"]}
        step = slower.pop("step_time_s")
        assert max(slower, key=slower.__getitem__) == "time_s.sparse_attention_backward"
        assert slower["time_s.sparse_attention_backward"] > 0.5 * step
        return
    assert data["explained"]
    before, after = (data["systems"][system][when] for when in ("before", "after"))
    assert after["p90"] - after["p10"] < 0.7 * (before["p90"] - before["p10"])
    # In all, what the trace says lies nearer, and the step within two errors.
    off_before, off_after = (
        [log(row[when]["p50"] / row["value"]) / row["error"] for row in data["measured"]]
        for when in ("before", "after")
    )
    assert sum(off**2 for off in off_after) < sum(off**2 for off in off_before)
    assert data["measured"][0]["metric"] == "step_time_s"
    assert abs(off_after[0]) < 2
