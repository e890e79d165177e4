"""What systems do differently shows in their times."""

import math

import numpy as np
import pytest
from variants import variant

from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile

POLICIES = ("rerun", "keep_scores", "keep_indices", "replay", "skip")


# Systems -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
def test_policies_order_by_what_they_do_again(predicted, system):
    found = {
        policy: predicted(f"systems.{system}.recompute_selection={policy}", systems=(system,))["systems"][system]
        for policy in POLICIES
        # Without a table there are no scores to keep.
        if (policy, system) != ("keep_scores", "hyscale")
    }
    order = ("rerun", "keep_indices", "replay", "skip")
    again = [found[policy]["time_s"].get("selection_recompute", 0.0) for policy in order]
    steps = [found[policy]["step_time_s"]["nominal"] for policy in order]
    assert again == sorted(again, reverse=True)
    assert steps == sorted(steps, reverse=True)
    assert again[0] == found["rerun"]["time_s"]["selection_forward"]
    assert again[-1] == 0
    assert len({item["time_s"]["selection_forward"] for item in found.values()}) == 1


def test_without_recomputation_nothing_is_selected_again(predicted):
    for system in variant(predicted, "without recomputation")["systems"].values():
        assert "selection_recompute" not in system["time_s"]
        assert "sparse_attention_recompute" not in system["time_s"]


def test_without_index_loss_there_is_none(predicted):
    for system in variant(predicted, "without index loss")["systems"].values():
        assert "index_loss" not in system["time_s"]


def test_pairs_of_queries_shrink_the_work_that_binds(resolve, evaluate):
    """Pairs are used where they shrink the work on the SMs; products that grow may cost some of that again."""
    scenario, draws = resolve("systems.megatron.sparse_attention=query_pairs").scenario, Draws(64)
    pairs = evaluate(scenario, {}, draws).steps[0].term("sparse_attention_backward")
    single = evaluate(resolve().scenario, {}, draws).steps[0].term("sparse_attention_backward")
    assert pairs[0, 0] < single[0, 0]
    assert np.all(pairs <= single * 1.05)


@pytest.mark.parametrize("draws", [0, 16])
def test_hidden_gathers_leave_less_to_wait_for(predicted, draws):
    """What is hidden is not waited for, and slows what it hides behind by the drawn contention."""
    plain, hidden = (
        predicted(f"systems.hyscale.cp_overlap={overlap}", systems=("hyscale",), draws=draws)["systems"]["hyscale"]
        for overlap in ("none", "behind_selection")
    )
    term = "cp_communication_exposed"
    assert plain["hidden_communication_s"].get("cp", 0.0) == 0
    assert hidden["hidden_communication_s"]["cp"] > 0
    for key in ("p10", "p50", "p90"):
        assert hidden["terms"][term][key] <= plain["terms"][term][key]
    contention = load_profile("published").factors["overlap_contention"].value
    gone = plain["time_s"][term] - hidden["time_s"][term]
    assert gone == pytest.approx((1 - contention) * hidden["hidden_communication_s"]["cp"], rel=1e-9)


def test_kept_indices_leave_nothing_to_hide_the_repeated_gather_behind(predicted):
    """Attention asks for keys at once where the selection is known; scores of the loss come after it."""
    slow = "cluster.nic_efficiency=0.1"
    hidden = {
        policy: predicted(slow, f"systems.hyscale.recompute_selection={policy}", systems=("hyscale",))["systems"][
            "hyscale"
        ]
        for policy in ("rerun", "replay", "skip")
    }
    seconds = [hidden[policy]["hidden_communication_s"]["cp"] for policy in ("rerun", "replay", "skip")]
    assert seconds[0] > seconds[1] == seconds[2]


def test_the_ablation_ends_at_the_target(predicted):
    data = predicted(draws=16)
    rows = data["ablation"]
    assert rows[-1]["speedup"] == pytest.approx(data["speedup"]["hyscale/megatron"])
    assert rows[-1]["step_time_s"] == pytest.approx(data["systems"]["hyscale"]["step_time_s"])
    assert [row["change"].split(":")[0] for row in rows] == [
        "selection",
        "recompute_selection",
        "cp_overlap",
        "sparse_attention",
    ]
    assert math.prod(row["gain"]["nominal"] for row in rows) == pytest.approx(rows[-1]["speedup"]["nominal"])
    base = data["systems"]["megatron"]["step_time_s"]["nominal"]
    for row in rows:
        assert row["speedup"]["nominal"] == pytest.approx(base / row["step_time_s"]["nominal"])


def test_a_step_of_the_ablation_is_what_its_switches_predict(predicted):
    row = predicted()["ablation"][0]
    alone = predicted("systems.megatron.selection=hytopk", systems=("megatron",))["systems"]["megatron"]
    assert row["step_time_s"] == pytest.approx(alone["step_time_s"])


def test_one_system_is_compared_with_nothing(predicted):
    data = predicted(systems=("hyscale",))
    assert data["speedup"] == {}
    assert data["ablation"] == []


def test_speedups_are_ratios_of_times(predicted):
    data = predicted()
    steps = {name: system["step_time_s"]["nominal"] for name, system in data["systems"].items()}
    for pair, value in data["speedup"].items():
        later, earlier = pair.split("/")
        assert value["nominal"] == pytest.approx(steps[earlier] / steps[later])
        for term, ratio in data["speedup_by_term"][pair].items():
            times = [data["systems"][name]["time_s"][term] for name in (earlier, later)]
            assert ratio["nominal"] == pytest.approx(times[0] / times[1])


def test_systems_that_agree_take_the_same_time(predicted):
    twin = "systems: [megatron, {name: twin, extends: megatron}]"
    data = predicted(edit=("systems: [megatron, megatron-best, hyscale]", twin), draws=16)
    assert set(data["speedup"]["twin/megatron"].values()) == {1.0}
    assert data["ablation"] == []
