"""Figures that follow from a step, and results of others beside it."""

import pytest
from variants import VARIANTS, variant

from hyscale_model.errors import InputError, UnpricedError

# Derived figures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_derived_figures_follow_from_the_step(predicted, name):
    data = variant(predicted, name, draws=16)
    scenario = data["scenario"]
    tokens = scenario["workload"]["global_batch_size"] * scenario["workload"]["sequence_length"]
    gpus = scenario["cluster"]["nodes"] * scenario["cluster"]["gpus_per_node"]
    for system in data["systems"].values():
        seconds = system["step_time_s"]["nominal"]
        assert system["tokens_per_s_per_gpu"]["nominal"] == pytest.approx(tokens / seconds / gpus)
        assert system["gpu_hours_per_billion_tokens"] == pytest.approx(gpus * seconds / 3600 / tokens * 1e9)
        selection = sum(system["time_s"].get(f"selection_{phase}", 0.0) for phase in ("forward", "recompute"))
        assert system["selection_share_of_step"]["nominal"] == pytest.approx(selection / seconds)
        assert system["selection_share_of_busy"] == pytest.approx(selection / system["busy_time_s"])
        assert 0 < selection < system["busy_time_s"] < seconds
        assert 0 < system["model_flops_utilization"] < 1


def test_a_price_is_that_of_the_hours(predicted):
    system = predicted("cluster.usd_per_gpu_hour=2.5")["systems"]["hyscale"]
    assert system["cost_per_billion_tokens"] == pytest.approx(2.5 * system["gpu_hours_per_billion_tokens"])


def test_utilization_by_hand(predicted):
    """6 FLOP a weight (4 of the indexer), causal scores once and kept ones twice more, attention three times."""
    indexer = 78 * 9.372e6
    selected = 2048 - 2048 * 2047 / 2 / 1048576
    pair = 78 * 2 * 32 * 128
    a_token = (
        6 * (40.83e9 - indexer) + 4 * indexer + pair * (524288.5 + 2 * selected) + 3 * 78 * 2 * 64 * 1088 * selected
    )
    system = predicted()["systems"]["megatron"]
    by_hand = a_token * 4 * 1048576 / (system["step_time_s"]["nominal"] * 512 * 148e12)
    assert system["model_flops_utilization"] == pytest.approx(by_hand, rel=1e-3)


def test_sizes_of_hytopk_are_shown(predicted):
    data = predicted()["systems"]
    assert data["hyscale"]["hytopk"] == {"samples": 8192, "stride": 128, "rank": 48, "expected_candidates": 6144}
    assert data["megatron"]["hytopk"] is None


# Reported results and refusals -----------------------------------------------------------------------------


def test_reported_values_are_compared_and_never_used(predicted):
    data = predicted(draws=16)
    assert [row["id"] for row in data["reported"]] == [
        "P1",
        "P4",
        "P5 before",
        "P5 after",
        "P5 ratio",
        "P6",
        "P7",
        "P8",
    ]
    changed = predicted(edit=("value: 2.07", "value: 9.99"), draws=16)
    assert changed["systems"] == data["systems"]
    assert changed["speedup"] == data["speedup"]
    assert changed["reported"][0]["reported"] == 9.99
    for row in data["reported"]:
        assert row["error"] == pytest.approx(row["predicted"]["nominal"] / row["reported"] - 1)
    by_id = {row["id"]: row for row in data["reported"]}
    assert by_id["P7"]["error"] == by_id["P8"]["error"] == 0
    assert by_id["P1"]["predicted"] == data["speedup"]["hyscale/megatron"]
    before = data["systems"]["megatron"]
    assert by_id["P5 before"]["predicted"]["nominal"] == before["time_s"]["selection_recompute"]
    assert by_id["P5 before"]["floor"] == before["floor_s"]["selection_recompute"]
    assert by_id["P5 before"]["floor"] <= by_id["P5 before"]["predicted"]["nominal"]


@pytest.mark.parametrize("override", ["workload.sequence_length=524288", "cluster=512xh20-141"])
def test_results_of_another_experiment_are_not_compared(predicted, override):
    data = predicted(override)
    assert data["reported"] == []
    assert override.partition("=")[0] in data["warnings"][-1]


def test_what_the_file_leaves_open_may_be_set(predicted):
    # The batch and the pipeline are assumptions of the scenario, and no report states them.
    assert len(predicted("workload.global_batch_size=8", "layout.vpp=3")["reported"]) == 8


def test_a_metric_of_a_system_left_out_is_a_warning(predicted):
    data = predicted(systems=("megatron",))
    assert [row["id"] for row in data["reported"]] == ["P4", "P5 before", "P7"]
    assert len(data["warnings"]) == 5


def test_a_metric_that_does_not_exist_is_refused(predicted):
    with pytest.raises(InputError) as refused:
        predicted(edit=("metric: speedup.hyscale/megatron", "metric: speedup.hyscale/nothing"))
    assert refused.value.field == "reported.0.metric"


def test_what_cannot_be_priced_is_refused(predicted):
    with pytest.raises(UnpricedError) as refused:
        predicted("systems.hyscale.backend=unfused")
    assert "backend" in refused.value.field


# One model among families ------------------------------------------------------------------------------------


def test_glm_5_1_costs_what_it_did_when_it_was_the_only_model(predicted):
    """Describing layers as data changes no number of the published scenario."""
    nominal = {name: system["step_time_s"]["nominal"] for name, system in predicted()["systems"].items()}
    assert nominal["megatron"] == pytest.approx(172.03, rel=1e-3)
