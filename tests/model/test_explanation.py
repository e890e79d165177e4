"""What stands behind a number adds up to it."""

import pytest

from hyscale_model.errors import InputError
from hyscale_model.explanation import explain_metric
from hyscale_model.predict import predict
from hyscale_model.prediction import ORIGINS


@pytest.fixture(scope="module")
def small(resolve):
    return resolve(small=True)


@pytest.fixture(scope="module")
def data(small):
    return predict(small, draws=0).data


def test_every_term_is_the_sum_of_its_parts(small, data):
    for name, system in data["systems"].items():
        for term, seconds in system["time_s"].items():
            found = explain_metric(small, f"systems.{name}.time_s.{term}")
            assert found["value"] == pytest.approx(seconds, rel=1e-9), term
            if found["parts"]:
                assert sum(part["value"] for part in found["parts"]) == pytest.approx(seconds, rel=1e-9)
            assert found["formula"]


def test_operations_name_their_rate_and_its_origin(small):
    found = explain_metric(small, "systems.megatron.time_s.moe")
    experts = [part for part in found["parts"] if "moe.experts" in part["what"]]
    assert len(experts) == 3
    for part in experts:
        assert part["flops"] > 0
        assert part["bytes"] > 0
        assert part["bound_by"] in ("tensor", "sm", "hbm")
        assert part["origin"] in ORIGINS
        assert part["source"]


def test_a_step_is_the_sum_of_its_terms(small, data):
    found = explain_metric(small, "systems.hyscale.step_time_s")
    assert found["value"] == pytest.approx(data["systems"]["hyscale"]["step_time_s"]["nominal"], rel=1e-9)
    assert sum(part["value"] for part in found["parts"]) == pytest.approx(found["value"], rel=1e-9)


def test_a_peak_is_the_sum_of_its_kinds(small, data):
    found = explain_metric(small, "systems.megatron.memory.peak_bytes")
    assert found["value"] == data["systems"]["megatron"]["memory"]["peak_bytes"]
    assert sum(part["value"] for part in found["parts"]) == pytest.approx(found["value"])


def test_activations_name_the_module_that_keeps_them(small):
    parts = explain_metric(small, "systems.megatron.memory.at_peak_bytes.activations")["parts"]
    assert any("layernorm" in part["what"] for part in parts)
    assert all("recomputed" in part["what"] for part in parts)


def test_a_speedup_names_both_steps(small, data):
    found = explain_metric(small, "speedup.hyscale/megatron")
    assert found["value"] == pytest.approx(data["speedup"]["hyscale/megatron"]["nominal"], rel=1e-9)
    assert [part["what"] for part in found["parts"]] == ["systems.megatron.step_time_s", "systems.hyscale.step_time_s"]


def test_an_input_tells_its_origin(small):
    (part,) = explain_metric(small, "layout.cp")["parts"]
    assert (part["value"], part["origin"]) == (4, "given")
    (assumed,) = explain_metric(small, "cluster.nic_efficiency")["parts"]
    assert assumed["origin"] == "assumed"


@pytest.mark.parametrize(
    "metric", ["nothing", "systems.megatron.time_s.luck", "systems.other.step_time_s", "systems.megatron.memory.luck"]
)
def test_what_is_no_metric_is_refused(small, metric):
    with pytest.raises(InputError) as refused:
        explain_metric(small, metric)
    assert refused.value.field == "--explain"
    assert refused.value.expected


NARROW = (
    "model.hidden_size=1024",
    "model.moe_intermediate_size=256",
    "model.intermediate_size=1024",
    "model.index_topk=256",
    "workload.sequence_length=1024",
    "workload.global_batch_size=8",
)
HOST = ("training.optimizer_cpu_offload=true", "training.cpu_offloading_num_layers=2")


def test_what_a_refusal_offers_is_explained(small):
    with pytest.raises(InputError) as refused:
        explain_metric(small, "systems.hyscale.terms")
    offered = refused.value.expected.partition("one of ")[2].split(", ")
    assert {"busy_time_s", "model_flops_utilization"} <= set(offered)
    for name in offered:
        assert explain_metric(small, f"systems.hyscale.{name}")["formula"]


@pytest.mark.parametrize(
    ("overrides", "term", "words"),
    [
        (("training.optimizer=muon",), "optimizer", "Newton-Schulz"),
        (("training.optimizer=muon",), "dp_communication_exposed", "all_gather"),
        (HOST, "offload", "gradients to the host"),
        (HOST, "offload", "offload.activations_out"),
        (NARROW, "host_bound", "launches"),
        (("layout.schedule=dualpipe", "workload.global_batch_size=8"), "ep_communication_exposed", "moe.dispatch"),
    ],
)
def test_terms_of_the_whole_step_name_what_is_behind_them(resolve, overrides, term, words):
    resolved = resolve(*overrides, small=True)
    found = explain_metric(resolved, f"systems.megatron.time_s.{term}")
    expected = predict(resolved, draws=0).data["systems"]["megatron"]["time_s"][term]
    assert found["value"] == pytest.approx(expected, rel=1e-9)
    assert sum(part["value"] for part in found["parts"]) == pytest.approx(expected, rel=1e-9)
    named = [part for part in found["parts"] if words in part["what"]]
    assert named
    assert all(part["origin"] in ORIGINS and part["source"] for part in named)


def test_what_lies_on_the_host_is_explained(resolve):
    found = explain_metric(resolve(*HOST, small=True), "systems.megatron.memory.host_bytes")
    assert found["value"] > 0
    assert "host memory" in found["formula"]
