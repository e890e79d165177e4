"""What collectives over a whole node were measured to reach goes before what is assumed, not before what is stated."""

import json

import pytest

from hyscale_model.catalog import measured
from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.sweep import Sweep

TEXT = """
schema_version: 1
name: links
model: glm-5.1
cluster: {{gpu: {gpu}, nodes: 1, gpus_per_node: {gpus}, nic_gbit_per_gpu: 400{more}}}
layout: {{cp: {gpus}, ep: {gpus}}}
workload: {{sequence_length: 131072, global_batch_size: 1, micro_batch_size: 1}}
training: {{precision: bf16, recompute: full}}
systems: [megatron]
profile: {profile}
"""
FIT = {"bus_bytes_per_s": 3e11, "latency_s": 1.4e-5, "ramp_s_per_sqrt_byte": 5e-9}


def group(ranks, ranks_per_node, **fit):
    fits = {"all_gather": {**FIT, **fit}}
    return {"ranks": ranks, "ranks_per_node": ranks_per_node, "backend": "nccl", "fits": fits}


@pytest.fixture
def profile(tmp_path):
    """The shipped profile with collectives over a node of eight, and over eight of two nodes."""
    data = dict(measured.read(measured.paths()["h200-sxm"]))
    data["collectives"] = {"measured": True, "groups": [group(8, 4, bus_bytes_per_s=1e10), group(8, 8)]}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    return path


def resolved(profile, gpu="h200", gpus=8, more=""):
    return read_scenario("s.yaml", text=TEXT.format(gpu=gpu, gpus=gpus, more=more, profile=profile))


def test_a_node_of_as_many_gpus_has_what_was_measured(profile):
    found = resolved(profile)
    cluster = found.scenario.cluster
    assert cluster.nvlink_efficiency == pytest.approx(3e11 / cluster.gpu.nvlink_bytes_per_s)
    assert cluster.nvlink_latency_s == pytest.approx(1.4e-5 / 7)
    assert cluster.nvlink_ramp_s_per_root_byte == 5e-9
    for name in measured.LINKS:
        origin = found.origins[f"cluster.{name}"]
        assert (origin.origin, origin.detail) == ("measured", f"collectives of profile {profile}")


@pytest.mark.parametrize("case", [{"gpus": 4}, {"gpu": "h100"}, {"more": ", nvlink_efficiency: 0.5"}])
def test_other_nodes_other_gpus_and_what_is_stated_stay(profile, case):
    found = resolved(profile, **case)
    assert found.scenario.cluster.nvlink_efficiency == (0.5 if "more" in case else 0.75)
    assert found.scenario.cluster.nvlink_ramp_s_per_root_byte == 0
    assert found.origins["cluster.nvlink_latency_s"].origin == "assumed"


def test_a_drawn_field_stays_drawn(profile):
    drawn = "assumptions: [{path: cluster.nvlink_efficiency, range: [0.6, 0.8], reason: unknown}]\n"
    text = TEXT.format(gpu="h200", gpus=8, more="", profile=profile) + drawn
    found = read_scenario("s.yaml", text=text)
    assert found.origins["cluster.nvlink_efficiency"].origin == "assumed"
    assert found.scenario.cluster.nvlink_ramp_s_per_root_byte == 0


def test_the_shipped_profile_has_two_gpus():
    cluster = resolved("h200-sxm", gpus=2).scenario.cluster
    assert 0.5 < cluster.nvlink_efficiency < 0.75
    assert 5e-6 < cluster.nvlink_latency_s < 2e-5
    assert 1e-9 < cluster.nvlink_ramp_s_per_root_byte < 1e-8


def step_times(scenario):
    found = Sweep.of(scenario, draws=0).collect()
    return [row["step_time_s"] for row in found["rows"]]


SWEPT = {"cluster.gpus_per_node": [4, 8], "cluster.nvlink_efficiency": [0.5, 0.7]}


@pytest.mark.parametrize("field", SWEPT)
def test_a_sweep_has_the_links_that_each_of_its_points_has_alone(profile, field):
    """Of eight GPUs measured ones, of four the assumed; of an efficiency that is stated no other field is measured."""
    text = TEXT.format(gpu="h200", gpus=8, more="", profile=profile).replace("cp: 8, ep: 8", "cp: 4, ep: 4")
    text = text.replace("global_batch_size: 1", "global_batch_size: 2")

    def times(*overrides):
        return step_times(read_scenario("s.yaml", text=text, overrides=overrides))

    alone = [times(f"{field}={value}", "sweep.workload.sequence_length=[131072]")[0] for value in SWEPT[field]]
    assert times(f"sweep.{field}={SWEPT[field]}") == pytest.approx(alone, rel=1e-12)
    assert alone[0] != alone[1]


def test_a_gpu_with_other_links_keeps_the_share_that_was_measured(profile):
    found = resolved(profile)
    faster = found.again(["cluster.gpu.nvlink_bytes_per_s=9e11"])
    assert faster.scenario.cluster.nvlink_efficiency == found.scenario.cluster.nvlink_efficiency


@pytest.mark.parametrize("groups", [[{"backend": "nccl"}], [{**group(8, 8), "fits": {}}], 8])
def test_damaged_collectives_are_told(profile, groups):
    data = json.loads(profile.read_text())
    profile.write_text(json.dumps({**data, "collectives": {"groups": groups}}))
    with pytest.raises(InputError, match="collectives are damaged"):
        resolved(profile)
