from pathlib import Path

import pytest

from hyscale_model.lengths import Lengths, over_lengths
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.sensitivity import sensitivity


@pytest.fixture(scope="module")
def found(resolve):
    return over_lengths(resolve(), draws=8)


def test_the_own_length_is_that_of_the_prediction(found, predicted):
    place = found.lengths.index(found.own)
    for name, system in predicted()["systems"].items():
        assert found.step_s[name][place]["nominal"] == pytest.approx(system["step_time_s"]["nominal"])
    gain = predicted()["speedup"]["hyscale/megatron"]["nominal"]
    assert found.speedup["hyscale"][place]["nominal"] == pytest.approx(gain)


def test_longer_sequences_take_longer(found):
    for curve in (*found.selection_s.values(), *found.step_s.values()):
        times = [point["nominal"] for point in curve]
        assert times == sorted(times)


def test_only_lengths_that_can_be_laid_out(resolve, found):
    assert all(length % (2 * resolve().scenario.layout.cp) == 0 for length in found.lengths)
    assert found.own in found.lengths


def test_a_structure_that_is_drawn_is_evaluated_too(resolve):
    drawn = "assumptions:\n  - {path: training.index_loss, choices: [sparse, none], reason: unknown}\n"
    assert len(over_lengths(resolve(edit=("assumptions:\n", drawn)), draws=8).lengths) > 3


def test_where_it_pays():
    gains = tuple({"p10": value} for value in (1.2, 0.9, 1.1, 1.3))
    lengths = Lengths((1, 2, 4, 8), 4, {}, {}, {"mine": gains, "never": ({"p10": 0.5},) * 4, "always": gains[2:] * 2})
    assert lengths.pays_from("mine") == 4
    assert lengths.pays_from("never") is None
    assert lengths.pays_from("always") == 1


def test_the_command_and_the_dashboard_judge_by_one_rule(resolve, found):
    study = sensitivity(resolve(), draws=8)
    both = next(row for row in study["break_even"] if row["change"] == "all of them")
    assert [gain["tokens"] for gain in both["gains"]] == list(found.lengths)
    assert both["sure_from_tokens"] == found.pays_from("hyscale")


def test_packed_documents_have_lengths_too():
    path = Path(__file__).parents[2] / "scenarios" / "glm-5.1-1m-packed.yaml"
    assert len(over_lengths(read_scenario(path), draws=0).lengths) >= 3
