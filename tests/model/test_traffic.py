"""The communication graph of a scenario agrees with its prediction."""

from pathlib import Path

import pytest

from hyscale_model.scenario import read_scenario
from hyscale_model.traffic import traffic


@pytest.fixture(scope="module")
def found(resolve):
    return {name: traffic(resolve(), name) for name in ("megatron", "hyscale")}


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
def test_exposed_and_hidden_seconds_are_those_of_the_prediction(found, predicted, system):
    data = predicted()["systems"][system]
    for name in ("cp", "ep", "pp", "dp"):
        term = data["time_s"].get(f"{name}_communication_exposed", 0.0)
        hidden = data["hidden_communication_s"].get(name, 0.0)
        entry = found[system]["groups"][name]
        # Hidden transfers slow computation, which the term holds too.
        assert entry["exposed_s"] <= term + 1e-9
        assert entry["exposed_s"] == pytest.approx(term, abs=0.15 * hidden + 1e-9)
        assert entry["hidden_s"] == pytest.approx(hidden, abs=1e-9)
        assert entry["seconds"] == pytest.approx(entry["exposed_s"] + entry["hidden_s"])


def test_under_replay_the_gather_of_recomputation_has_less_to_hide_behind(resolve):
    """Keys of attention hide behind the forward selection; a fast replay leaves nothing beside the repeated gather."""
    data = traffic(resolve("cluster.nic_gbit_per_gpu=20"), "hyscale")
    keys = {row["phase"]: row for row in data["collectives"] if row["name"] == "cp.keys"}
    assert keys["recompute"]["exposed_s"] > keys["forward"]["exposed_s"]
    assert keys["forward"]["seconds"] == pytest.approx(keys["recompute"]["seconds"])


def test_links_sum_their_groups_and_the_bottleneck_is_the_busiest(found):
    data = found["hyscale"]
    for link in data["links"]:
        assert link["bytes"] == pytest.approx(sum(each["bytes"] for each in link["groups"].values()))
        assert link["load"] == pytest.approx(link["seconds"] / data["step_time_s"])
        assert link["load"] <= 1
    assert data["bottleneck"]["seconds"] == max(link["seconds"] for link in data["links"])
    assert data["bottleneck"]["kind"] == "adapter"


def test_a_gather_over_context_ranks_puts_an_eighth_of_the_sequence_on_each_rail(found):
    """128 ranks on 16 nodes of 8: the keys of the sequence, less one share, in rings over eight rails."""
    data = found["megatron"]
    rail = next(link for link in data["links"] if link["kind"] == "adapter")
    gathered = sum(row["runs"] * row["payload_bytes"] for row in data["collectives"] if row["group"] == "cp")
    assert rail["groups"]["cp"]["bytes"] == pytest.approx(gathered * 127 / 128 / 8)


def test_transfers_that_a_layout_hides_are_told_as_hidden(resolve, predicted):
    override = "layout.overlap_moe_expert_parallel_comm=true"
    data = traffic(resolve(override), "hyscale")
    expected = predicted(override)["systems"]["hyscale"]["hidden_communication_s"]["ep"]
    assert data["groups"]["ep"]["hidden_s"] == pytest.approx(expected)


def test_one_gpu_sends_nothing(resolve):
    overrides = ("cluster.nodes=1", "cluster.gpus_per_node=1", "layout.pp=1", "layout.cp=1", "layout.ep=1")
    data = traffic(resolve(*overrides, small=True), "megatron")
    assert data["collectives"] == []
    assert data["links"] == []
    assert data["bottleneck"] is None


def test_a_layer_sends_what_its_blocks_send(resolve):
    scope = "scope={layer: dsa, include: [attention, communication]}"
    data = traffic(resolve(scope), "megatron")
    assert set(data["groups"]) == {"cp"}


def test_every_shipped_scenario_has_a_graph_without_negative_seconds():
    for path in sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml")):
        resolved = read_scenario(str(path))
        data = traffic(resolved, resolved.scenario.systems[-1].name)
        assert all(min(row["exposed_s"], row["hidden_s"]) >= -1e-9 for row in data["collectives"]), path
        assert all(0 < link["load"] < 1 for link in data["links"]), path
