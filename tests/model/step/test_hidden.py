"""What runs beside computation, and what no overlap can hide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario
from hyscale_model.step.hidden import exposed, hidden_share

DENSE = """
schema_version: 1
name: a Llama on two nodes
model: {extends: llama-3-8b, num_hidden_layers: 8}
cluster: {gpu: h100, nodes: 2, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {tp: 2, pp: 2, vpp: 2, schedule: interleaved}
workload: {sequence_length: 4096, global_batch_size: 32}
training: {recompute: none}
systems: [megatron]
"""

EXPERTS = """
schema_version: 1
name: experts over two nodes
model: {extends: qwen3-30b-a3b, num_hidden_layers: 8}
cluster: {gpu: h100, nodes: 2, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {ep: 16}
workload: {sequence_length: 4096, global_batch_size: 64}
training: {recompute: none}
systems: [megatron]
"""

seconds = st.floats(0, 1e3)


def step(text, *overrides):
    data = predict(read_scenario("scenario.yaml", text=text, overrides=overrides), draws=0).data
    return data["systems"]["megatron"]


@given(transfer=seconds, computation=seconds, left=st.floats(0, 1))
def test_what_is_left_lies_between_the_surplus_and_all_of_it(transfer, computation, left):
    shown = exposed(np.array([transfer]), np.array([computation]), left)
    assert max(transfer - computation, 0) <= shown <= transfer
    hidden = hidden_share(np.array([transfer]), np.array([computation]), left)
    assert 0 <= hidden <= 1
    if transfer:
        assert hidden * transfer == pytest.approx(transfer - shown, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "flag", "term", "group"),
    [
        (DENSE, "tp_comm_overlap", "tp_communication_exposed", "tp"),
        (EXPERTS, "overlap_moe_expert_parallel_comm", "ep_communication_exposed", "ep"),
    ],
)
def test_an_overlap_moves_seconds_from_exposed_to_hidden(text, flag, term, group):
    plain, beside = step(text), step(text, f"layout.{flag}=true")
    before, after = plain["time_s"][term], beside["time_s"][term]
    hidden = beside["hidden_communication_s"][group]
    assert 0 < after < before
    # What hides still costs the share of the GPU that it takes.
    assert before - hidden < after < before - 0.5 * hidden
    assert beside["step_time_s"]["nominal"] < plain["step_time_s"]["nominal"]
    assert sum(beside["time_s"].values()) == pytest.approx(beside["step_time_s"]["nominal"], rel=1e-9)


def test_the_first_micro_batches_have_no_backward_beside_them():
    """Of m micro-batches of one stage, the exchange of one forward and one backward stays exposed."""
    shown = {}
    for count in (2, 16):
        flags = (f"workload.global_batch_size={16 * count}", "layout.overlap_moe_expert_parallel_comm=")
        plain, beside = (step(EXPERTS, flags[0], flags[1] + on) for on in ("false", "true"))
        hidden = beside["hidden_communication_s"]["ep"] / plain["time_s"]["ep_communication_exposed"]
        shown[count] = 1 - hidden
    assert shown[2] >= 0.5
    assert 1 / 16 <= shown[16] < shown[2]


@pytest.mark.parametrize("flag", ["overlap_grad_reduce", "overlap_param_gather", "overlap_p2p_comm"])
def test_every_overlap_shortens_a_step(flag):
    plain, beside = step(DENSE), step(DENSE, f"layout.{flag}=true")
    assert beside["step_time_s"]["nominal"] < plain["step_time_s"]["nominal"]
    assert sum(beside["time_s"].values()) == pytest.approx(beside["step_time_s"]["nominal"], rel=1e-9)


def test_a_layer_of_gradients_is_never_hidden():
    plain, beside = (
        step(DENSE, f"layout.overlap_grad_reduce={on}", f"layout.overlap_param_gather={on}")["time_s"]
        for on in ("false", "true")
    )
    shown = beside["dp_communication_exposed"] / plain["dp_communication_exposed"]
    # Four layers on a rank.
    assert shown == pytest.approx(1 / 4, rel=0.25)


def test_sharded_gradients_are_reduced_for_every_micro_batch():
    times = [step(DENSE, f"layout.zero={zero}")["time_s"]["dp_communication_exposed"] for zero in (2, 3)]
    assert times[1] > times[0] > 0


RECOMPUTED = ["core_attn", "layernorm", "mlp"]


@given(chosen=st.sets(st.sampled_from(RECOMPUTED), min_size=1))
def test_recomputing_some_lies_between_recomputing_nothing_and_all(chosen):
    none, some, full = (
        step(DENSE, f"training.recompute={name}", f"training.recompute_modules=[{', '.join(sorted(chosen))}]")
        for name in ("none", "selective", "full")
    )
    times = [each["step_time_s"]["nominal"] for each in (none, some, full)]
    assert times == sorted(times)
    assert times[0] < times[1] < times[2]
    memory = [each["memory"]["stored_activations_bytes"] for each in (none, some, full)]
    assert memory[0] > memory[1] > memory[2]


def test_recomputing_the_core_repeats_attention_and_nothing_else():
    none, some = step(DENSE)["time_s"], step(DENSE, "training.recompute=selective")["time_s"]
    for term, seconds_ in none.items():
        if term not in ("dense_attention", "pp_bubble"):
            assert some[term] == pytest.approx(seconds_, rel=1e-9), term
    # Forward 1, backward 2.5 times the FLOP at a lower rate: one more forward is less than a third on top.
    assert 1.1 < some["dense_attention"] / none["dense_attention"] < 1.34


def test_putting_weight_gradients_off_shrinks_the_bubble_and_nothing_else():
    text = DENSE.replace("vpp: 2, schedule: interleaved", "vpp: 1")
    plain, deferred = (step(text, f"layout.schedule={name}") for name in ("1f1b", "zero_bubble"))
    assert deferred["time_s"]["pp_bubble"] < 0.7 * plain["time_s"]["pp_bubble"]
    for term, seconds_ in plain["time_s"].items():
        if term != "pp_bubble":
            assert deferred["time_s"][term] == pytest.approx(seconds_, rel=1e-9), term
    assert deferred["memory"]["stored_activations_bytes"] == plain["memory"]["stored_activations_bytes"]


def test_under_replay_the_repeated_gather_of_recomputation_is_exposed(predicted):
    """A selection that runs again hides the gather that is repeated beside it; on slow adapters replay does not."""
    rerun, replay = (
        predicted(
            "cluster.nic_gbit_per_gpu=100", f"systems.hyscale.recompute_selection={policy}", systems=("hyscale",)
        )["systems"]["hyscale"]
        for policy in ("rerun", "replay")
    )
    term = "cp_communication_exposed"
    more = replay["time_s"][term] - rerun["time_s"][term]
    assert more > 0
    # What is exposed now was hidden before.
    hidden = rerun["hidden_communication_s"]["cp"] - replay["hidden_communication_s"]["cp"]
    assert 0.8 * hidden < more <= hidden


SHARED = EXPERTS.replace("qwen3-30b-a3b", "deepseek-v3")


def test_shared_experts_hide_the_exchange_that_they_run_beside():
    """No more than they take, and only while tokens travel: each product beside one exchange."""
    plain, beside = (step(SHARED, f"layout.moe_shared_expert_overlap={on}") for on in ("false", "true"))
    hidden = beside["hidden_communication_s"]["ep"]
    assert 0 < hidden < plain["time_s"]["ep_communication_exposed"]
    saved = plain["step_time_s"]["nominal"] - beside["step_time_s"]["nominal"]
    # What is hidden slows what it runs beside.
    assert 0.7 * hidden < saved < hidden
    assert beside["time_s"]["moe"] == pytest.approx(plain["time_s"]["moe"])
    slow = step(SHARED, "layout.moe_shared_expert_overlap=true", "cluster.nic_gbit_per_gpu=50")
    # Far longer exchanges hide no more: shared experts take as long as before.
    assert slow["hidden_communication_s"]["ep"] == pytest.approx(hidden, rel=0.02)


@pytest.mark.parametrize(
    "overrides",
    [
        ("systems.megatron.dispatcher=deepep",),
        ("layout.ep=8", "layout.etp=2"),
        ("layout.overlap_moe_expert_parallel_comm=true",),
    ],
)
def test_shared_experts_run_beside_plain_all_to_all_alone(overrides):
    with pytest.raises(InputError) as error:
        step(SHARED, "layout.moe_shared_expert_overlap=true", *overrides)
    assert error.value.field == "layout.moe_shared_expert_overlap"
