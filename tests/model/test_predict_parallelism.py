"""What ranks send each other, by hand and by rule."""

from itertools import pairwise

import pytest
from variants import times

from hyscale_model.rates.load import load_profile


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
@pytest.mark.parametrize(
    ("kind", "alone", "split"),
    [
        ("cp", ("layout.cp=1",), ()),
        ("ep", ("layout.ep=1",), ()),
        ("pp", ("layout.pp=1",), ()),
        ("tp", (), ("layout.tp=2", "layout.cp=2")),
        ("dp", ("layout.cp=1", "layout.ep=1", "cluster.gpus_per_node=2"), ()),
    ],
)
def test_a_dimension_of_one_rank_communicates_nothing(predicted, kind, alone, split, system):
    term = f"{kind}_communication_exposed"
    assert times(predicted, *alone, system=system).get(term, 0.0) == 0
    assert times(predicted, *split, system=system)[term] > 0


def test_one_gpu_only_computes(predicted):
    one = times(predicted, "layout.pp=1", "layout.cp=1", "layout.ep=1", "cluster.gpus_per_node=1", system="hyscale")
    for term, value in one.items():
        if "communication" in term or term in ("pp_bubble", "waiting", "offload"):
            assert value == pytest.approx(0, abs=1e-9), term


def test_one_stage_has_no_bubble(predicted):
    assert "pp_bubble" not in times(predicted, "layout.pp=1")
    assert times(predicted)["pp_bubble"] > 0


# On the published layout the critical rank runs 20 layers with 4 micro-batches, on 8-GPU nodes with 40 GB/s a rail.
RUNS, RAIL, LATENT, INDEX_KEY = 80, 50e9 * 0.8, 1048576 * 576 * 2, 1048576 * 128 * 2


def test_context_parallel_seconds_by_hand(predicted):
    """Latents and index keys are gathered forward and recomputed; their gradients are reduced once."""
    ring = 112 * 2e-6 + 16 * 5e-6
    sent = 3 * (LATENT + INDEX_KEY) * 127 / 128 / (8 * RAIL)
    found = times(predicted, small=False)["cp_communication_exposed"]
    assert found == pytest.approx(RUNS * (sent + 6 * ring), rel=1e-9)


def test_expert_parallel_seconds_by_hand(predicted):
    """Eight copies of a token go out and come back, forward, recomputed and backward; balanced over the ranks."""
    settings = ("training.moe_imbalance=1", "cluster.alltoall_efficiency=0.8")
    one = 8192 * 8 * 6144 * 2 * 120 / 128 / RAIL + 15 * 5e-6 + 2e-6
    assert times(predicted, *settings, small=False)["ep_communication_exposed"] == pytest.approx(RUNS * 6 * one)


def test_pipeline_sends_by_hand(predicted):
    """A rank in the middle sends activations of two chunks on and gradients of two chunks back."""
    one = 8192 * 6144 * 2 / RAIL + 5e-6
    assert times(predicted, small=False)["pp_communication_exposed"] == pytest.approx(4 * 4 * one, rel=1e-9)


def test_the_ends_of_a_pipeline_send_one_way(predicted):
    """Of two stages on a node, one sends four activations and the other four gradients."""
    one = 16384 * 6144 * 2 / (450e9 * 0.75) + 2e-6
    assert times(predicted)["pp_communication_exposed"] == pytest.approx(4 * one, rel=1e-9)


def test_gradient_exchange_and_optimizer_by_hand(predicted):
    layer = 165.02e6 + 9.372e6 + 3 * 6144 * 2048 + 6145 * 256 + 2 * 6144
    ring = 112 * 2e-6 + 16 * 5e-6
    found = times(predicted, small=False)
    sent = 20 * layer * (4 + 2) * 127 / 128 / (8 * RAIL)
    assert found["dp_communication_exposed"] == pytest.approx(sent + 2 * ring, rel=1e-4)
    # Two experts of every layer are on this rank, the rest is sharded over 128.
    held = 20 * (layer / 128 + 2 * 3 * 6144 * 2048)
    moved = held * (2 * 3 * 4 + 4 + 2)
    in_step = load_profile("published").factors["step_over_kernels"].value
    assert found["optimizer"] == pytest.approx(in_step * (moved / (4e12 * 0.8) + 20 * 4e-6), rel=1e-4)


def test_without_zero_gradients_are_reduced_and_gathered_in_their_precision(predicted):
    """A ring all-reduce of FP32 gradients sends 4 + 4 bytes a weight, a distributed optimizer 4 + 2."""
    sharded, whole = (
        times(predicted, f"layout.zero={zero}", small=False)["dp_communication_exposed"] for zero in (1, 0)
    )
    assert whole >= sharded * 8 / 6 * 0.99


def test_replicated_experts_exchange_their_gradients(predicted):
    """With ep = 32 of 128 ranks, four ranks hold the same 8 experts of 20 layers."""
    found = times(predicted, "layout.ep=32", small=False)["dp_communication_exposed"]
    gradients = 20 * 8 * 3 * 6144 * 2048 * 4
    assert found >= gradients * 3 / 4 / 50e9


def test_a_token_reaches_every_rank_that_holds_one_of_its_experts(predicted):
    """Uniform routing of 8 copies over 4 ranks: 4 (1 - (3/4)^8) of them are met, three quarters of those elsewhere."""
    found = times(predicted, "systems.*.dispatcher=deepep")["ep_communication_exposed"]
    met = 4 * (1 - (3 / 4) ** 8) * 3 / 4
    tokens, runs = 65536 / 4, 3 * 6 * 2
    assert found >= runs * tokens * met * 6144 * 2 / 450e9


def test_indices_on_the_host_are_copied_there_and_back(predicted):
    """64 MiB a layer and micro-batch over PCIe each way; what is hidden slows what it runs beside."""
    data = predicted("systems.hyscale.index_storage=host", systems=("hyscale",))["systems"]["hyscale"]
    copied = RUNS * 2 * 8192 * 2048 * 4 / (64e9 * 0.8)
    hidden = data["hidden_communication_s"]["host"]
    contention = load_profile("published").factors["overlap_contention"].value
    assert 0 <= hidden <= copied * (1 + 1e-9)
    assert data["time_s"]["offload"] == pytest.approx(copied - hidden + contention * hidden)


# More and less ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "cluster.nic_gbit_per_gpu",
        "cluster.gpu.nvlink_bytes_per_s",
        "cluster.gpu.hbm_bytes_per_s",
        "cluster.gpu.bf16_flops",
        "cluster.gpu.sms",
        "cluster.gpu.boost_hz",
    ],
)
def test_faster_hardware_is_never_slower(resolve, predicted, path):
    scenario = resolve().scenario
    value = scenario.cluster
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    for system in ("megatron", "hyscale"):
        steps = [
            predicted(f"{path}={value * factor:.0f}")["systems"][system]["step_time_s"]["nominal"]
            for factor in (1, 2, 4)
        ]
        assert steps[0] == pytest.approx(predicted()["systems"][system]["step_time_s"]["nominal"])
        assert steps == sorted(steps, reverse=True)
        # The slowest link of the published layout is the adapter.
        assert steps[-1] < steps[0] or "nvlink" in path


def test_longer_sequences_take_longer(predicted):
    lengths = (131072, 262144, 524288, 1048576, 2097152)
    for system in ("megatron", "megatron-best", "hyscale"):
        steps = [
            predicted(f"workload.sequence_length={length}")["systems"][system]["step_time_s"]["nominal"]
            for length in lengths
        ]
        # Scores grow with the square, everything else with the length.
        for shorter, longer in pairwise(steps):
            assert 1.9 * shorter < longer < 4.05 * shorter


def test_imbalance_is_waited_for(predicted):
    even, uneven = (times(predicted, f"training.moe_imbalance={value}", small=False) for value in (1.0, 1.3))
    assert uneven["waiting"] > even["waiting"]
    assert uneven["moe"] == even["moe"]


def test_unbalanced_order_waits_for_the_last_rank(predicted):
    balanced, contiguous = times(predicted, small=False), times(predicted, "layout.cp_order=contiguous", small=False)
    assert contiguous["waiting"] > balanced["waiting"]
    assert contiguous["selection_forward"] == balanced["selection_forward"]


def test_more_micro_batches_shrink_the_share_of_the_bubble(predicted):
    shares = []
    for size in (4, 8, 16, 64):
        system = predicted(f"workload.global_batch_size={size}")["systems"]["megatron"]
        shares.append(system["time_s"]["pp_bubble"] / system["step_time_s"]["nominal"])
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.1
