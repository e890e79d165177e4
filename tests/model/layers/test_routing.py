"""Where tokens go: nodes within reach, the busiest rank, capacity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.batch import case_of
from hyscale_model.families import anatomy
from hyscale_model.layers.routing import busiest_load, distinct, reachable
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario

TEXT = """
schema_version: 1
name: experts on one node
model: {extends: qwen3-30b-a3b, num_hidden_layers: 4}
cluster: {gpu: h100, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {ep: 8}
workload: {sequence_length: 4096, global_batch_size: 8}
training: {recompute: none}
systems: [megatron]
"""


def load(*overrides):
    scenario = read_scenario("scenario.yaml", text=TEXT, overrides=overrides).scenario
    (moe,) = anatomy(scenario.model).feed_forwards
    return busiest_load(case_of(scenario, scenario.systems[0]), moe)


def times(*overrides):
    data = predict(read_scenario("scenario.yaml", text=TEXT, overrides=overrides), draws=0).data
    return data["systems"]["megatron"]


def test_tokens_of_deepseek_v3_reach_four_of_eight_nodes():
    assert reachable(8, 8, 4) == pytest.approx(4 / 8)
    # Four nodes of two groups each: missed only if both groups are among the four closed ones of eight.
    assert reachable(4, 8, 4) == pytest.approx(1 - (4 * 3) / (8 * 7))
    assert reachable(16, 8, 4) == pytest.approx(4 / 8)


@given(holders=st.sampled_from([1, 2, 4, 8, 16, 32]), groups=st.sampled_from([1, 2, 4, 8]), data=st.data())
def test_limits_never_reach_more_and_no_limit_reaches_all(holders, groups, data):
    opened = data.draw(st.integers(1, groups))
    share = reachable(holders, groups, opened)
    assert 0 < share <= 1
    assert reachable(holders, groups, groups) == pytest.approx(1)
    assert distinct(max(holders * share, 1), 8) <= distinct(holders, 8) + 1e-12


def test_the_busiest_of_eight_ranks_of_sixteen_experts():
    """A variation of 1 an expert is 1/4 a rank; the largest of 8 normal deviates is 1.42, its leading term 2.04."""
    assert load() == 1
    assert load("training.moe_load_variation=1") == pytest.approx(1 + 0.25 * 2.04, rel=1e-3)
    assert load("training.moe_load_variation=1", "training.moe_imbalance=1.2") == pytest.approx(1.2 * 1.51, rel=1e-3)


@given(capacity=st.floats(0.5, 3), imbalance=st.floats(1, 3))
def test_capacity_bounds_the_busiest_rank(capacity, imbalance):
    found = load(f"training.moe_expert_capacity_factor={capacity!r}", f"training.moe_imbalance={imbalance!r}")
    assert found == pytest.approx(min(capacity, imbalance))


def test_dropped_tokens_are_neither_sent_nor_computed():
    uneven = times("training.moe_imbalance=1.6")
    capped = times("training.moe_imbalance=1.6", "training.moe_expert_capacity_factor=1.2")
    even = times()
    for term in ("waiting", "ep_communication_exposed"):
        assert even["time_s"].get(term, 0) <= capped["time_s"][term] < uneven["time_s"][term]
    assert even["memory"]["peak_bytes"] < capped["memory"]["peak_bytes"] < uneven["memory"]["peak_bytes"]
    assert times("training.moe_expert_capacity_factor=0.5")["time_s"]["moe"] < even["time_s"]["moe"]
