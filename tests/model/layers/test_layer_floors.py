"""Floors of whole terms at the peaks of the GPU, derived from the shapes alone.

On the published layout a rank of the critical stage holds 20 layers and runs 4 micro-batches of 8,192 queries.
"""

import pytest

from hyscale_model.rates.load import load_profile

RUNS, QUERIES, LENGTH, TOPK = 4 * 20, 8192, 1048576, 2048
PEAK, HBM = 148e12, 4.0e12
SELECTED = TOPK - TOPK * (TOPK - 1) / (2 * LENGTH)


@pytest.fixture(scope="module")
def published(predicted):
    return predicted(draws=16)["systems"]


@pytest.fixture(scope="module")
def floors(published):
    assert published["megatron"]["critical_stage"] in (1, 2)
    return published["megatron"]["floor_s"]


def test_projections_are_two_flops_a_weight_forward_recomputed_and_twice_backward(floors):
    weights = 6144 * 2048 + 2048 * 64 * 256 + 6144 * 576 + 512 * 64 * (192 + 256) + 64 * 256 * 6144
    assert floors["projections"] == pytest.approx(RUNS * 4 * 2 * QUERIES * weights / PEAK, rel=1e-9)


def test_index_projections_are_two_flops_a_weight_forward_recomputed_and_once_backward(floors):
    weights = 2048 * 32 * 128 + 6144 * 128 + 6144 * 32
    products = RUNS * 3 * 2 * QUERIES * weights / PEAK
    assert products <= floors["index_projections"] <= 1.2 * products


def test_experts_and_router_are_two_flops_a_weight_used(floors):
    products = RUNS * 4 * 2 * QUERIES * (9 * 3 * 6144 * 2048 + 6144 * 256) / PEAK
    assert products <= floors["moe"] <= 1.05 * products


def test_sparse_attention_meets_the_selected_latents(floors):
    forward = RUNS * 2 * QUERIES * 64 * SELECTED * 1088 / PEAK
    assert floors["sparse_attention_forward"] == pytest.approx(forward, rel=1e-9)
    assert floors["sparse_attention_recompute"] == pytest.approx(forward, rel=1e-9)
    assert floors["sparse_attention_backward"] == pytest.approx(2.5 * forward, rel=1e-9)


def test_the_table_path_scores_every_visible_key_and_reads_the_table_back(floors):
    scoring = RUNS * 2 * QUERIES * (LENGTH + 1) / 2 * 32 * 128 / PEAK
    reading = RUNS * 4 * QUERIES * LENGTH / HBM
    assert scoring + reading <= floors["selection_forward"] <= 1.05 * (scoring + reading)
    assert floors["selection_recompute"] == floors["selection_forward"]


def test_hytopk_scores_every_visible_key_too(published):
    scoring = RUNS * 2 * QUERIES * (LENGTH + 1) / 2 * 32 * 128 / PEAK
    assert scoring <= published["hyscale"]["floor_s"]["selection_forward"] <= 1.05 * scoring


def test_replay_scores_512_times_fewer_keys_than_the_table_holds(published):
    replay = RUNS * 2 * QUERIES * SELECTED * 32 * 128 / PEAK
    assert published["hyscale"]["floor_s"]["selection_recompute"] == pytest.approx(replay, rel=1e-9)


def test_no_term_is_faster_than_its_floor(published):
    for system in published.values():
        for term, floor in system["floor_s"].items():
            assert system["time_s"][term] >= floor * (1 - 1e-12), term


def test_the_index_loss_reads_attention_twice_and_scores_what_is_kept_once_more(floors):
    """The teacher normalises first and then weighs, where gradients are recorded; backward is three score products."""
    teacher = 2 * 2 * QUERIES * 64 * SELECTED * 576
    backward = 3 * 2 * QUERIES * SELECTED * 32 * 128
    products = RUNS * (teacher + backward) / PEAK
    assert products <= floors["index_loss"] <= 1.1 * products


def test_a_top_k_reads_whole_rows_and_not_the_visible_part(predicted):
    """torch.topk keeps 0.36 TB/s on the 132 SMs of an H200; an H20 has 78. Masked columns save 2 %."""
    system = predicted("systems.megatron.recompute_selection=keep_scores", systems=("megatron",))["systems"]["megatron"]
    factors = load_profile("published").factors
    table = 4 * QUERIES * LENGTH
    on_sms, from_memory = 0.98 * table / (0.36e12 * 78 / 132), table / (0.8 * HBM)
    kernel = on_sms + factors["serial_share"].value * from_memory
    by_hand = RUNS * factors["step_over_kernels"].value * kernel
    assert system["time_s"]["selection_recompute"] == pytest.approx(by_hand, rel=0.01)


def test_a_teacher_without_a_kernel_moves_gathered_keys_for_every_sixteen_heads(predicted):
    """14 bytes a gathered value and chunk of 16 of 64 heads, 24 a score of each head."""
    found = predicted("training.index_teacher=chunked")["systems"]["megatron"]
    fused = predicted()["systems"]["megatron"]
    gathered = QUERIES * SELECTED * 576
    moved = RUNS * (14 * gathered * 4 + 24 * QUERIES * SELECTED * 64) / HBM
    assert found["floor_s"]["index_loss"] > moved
    assert found["time_s"]["index_loss"] > moved + fused["time_s"]["index_loss"] / 2
    rest = [
        sum(value for term, value in each["time_s"].items() if term not in ("index_loss", "pp_bubble"))
        for each in (found, fused)
    ]
    assert rest[0] == pytest.approx(rest[1])
