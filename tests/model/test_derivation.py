import pytest

from hyscale_model.derivation import CLOSING, derive
from hyscale_model.moments import memory_moments
from hyscale_model.prediction import ORIGINS


@pytest.fixture(scope="module")
def scenario(resolve):
    return resolve()


def listed(found):
    return sum(part["runs"] * part["seconds"] for part in found["parts"])


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
@pytest.mark.parametrize("term", ["selection_forward", "selection_recompute", "moe", "projections"])
def test_the_parts_of_computation_sum_to_the_term(scenario, predicted, system, term):
    found = derive(scenario, system, term)
    assert found["seconds"] == pytest.approx(predicted()["systems"][system]["time_s"][term])
    assert listed(found) == pytest.approx(found["seconds"])


def test_no_part_is_faster_than_the_peaks_allow(scenario, predicted):
    for term in predicted()["systems"]["hyscale"]["time_s"]:
        for part in derive(scenario, "hyscale", term)["parts"]:
            assert part["floor_s"] is None or part["seconds"] >= part["floor_s"]
            assert part["origin"] in ORIGINS
            assert part["detail"]


def test_hidden_transfers_take_longer_on_the_wire_than_they_cost(scenario):
    found = derive(scenario, "hyscale", "cp_communication_exposed")
    assert listed(found) > found["seconds"] > 0


def test_terms_without_operations_are_explained(scenario, predicted):
    for term, value in predicted()["systems"]["megatron"]["time_s"].items():
        found = derive(scenario, "megatron", term)
        assert not value or found["parts"] or term in CLOSING, term


def test_moments_are_those_of_the_memory(scenario, predicted):
    for system in ("megatron", "hyscale"):
        moments = memory_moments(scenario, system)
        memory = predicted()["systems"][system]["memory"]
        assert moments["capacity_bytes"] == memory["capacity_bytes"]
        for rows, stage in zip(moments["stages"], memory["stages"], strict=True):
            totals = [sum(row.values()) for row in rows]
            assert max(totals) == pytest.approx(stage["peak_bytes"])
            assert moments["moments"][totals.index(max(totals))] == stage["peak_when"]
