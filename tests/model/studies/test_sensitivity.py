"""One input at a time is what setting that input would say; lengths and conditions follow from predictions."""

import pytest

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluator
from hyscale_model.lengths import GAIN
from hyscale_model.predict import predict
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.sensitivity import HIGH, LOW, Probe, sensitivity

NAME = "glm-5.1-1m-512xh20"
TEXT = catalog.path("published", NAME).read_bytes()


def read(*overrides, systems=()):
    return read_scenario(NAME, text=TEXT, overrides=overrides, systems=systems)


@pytest.fixture(scope="module")
def study():
    return sensitivity(read(), draws=8)


def nominal(*overrides):
    return predict(read(*overrides), draws=1).data["speedup"]["hyscale/megatron"]["nominal"]


def test_each_setting_of_an_assumption_is_the_prediction_with_it_set(study):
    assert study["nominal"] == pytest.approx(nominal(), rel=1e-12)
    rows = [row for row in study["inputs"] if row["kind"] == "assumption"]
    assert len(rows) >= 4
    for row in rows:
        for setting in row["settings"]:
            assert setting["speedup"] == pytest.approx(nominal(f"{row['input']}={setting['value']}"), rel=1e-9)


def test_inputs_are_in_order_and_their_shares_sum_to_one(study):
    swings = [row["swing"] for row in study["inputs"]]
    assert swings == sorted(swings, reverse=True)
    assert sum(row["share"] for row in study["inputs"]) == pytest.approx(1)


def test_every_rate_that_is_drawn_is_an_input(study):
    scenario = read().scenario
    seen = set()

    class Watched(Draws):
        def uniform(self, name):
            seen.add(name)
            return super().uniform(name)

    Evaluator(scenario, {}, Watched(4), load_profile(scenario.profile)).steps(
        [scenario.systems[0], scenario.systems[-1]]
    )
    found = {row["input"] for row in study["inputs"] if row["kind"] == "rate"}
    assert found <= seen
    # The others do not move the ratio.
    for name in seen - found:
        probe = Probe(2, columns_of={name: ((1, LOW), (2, HIGH))})
        before, after = Evaluator(scenario, {}, probe, load_profile(scenario.profile)).steps(
            [scenario.systems[0], scenario.systems[-1]]
        )
        ratio = (before.step.seconds / after.step.seconds)[0]
        assert ratio == pytest.approx(ratio[0], rel=1e-8), name


def test_a_probe_varies_one_unknown_and_leaves_the_others():
    probe = Probe(4, columns_of={"one": ((1, LOW), (2, HIGH)), "two": ((3, LOW), (4, HIGH))})
    assert probe.uniform("one")[0].tolist() == [0.5, LOW, HIGH, 0.5, 0.5]
    assert probe.uniform("two")[0].tolist() == [0.5, 0.5, 0.5, LOW, HIGH]
    assert probe.uniform("three")[0].tolist() == [0.5] * 5
    assert list(probe.names) == ["one", "two", "three"]


def test_probes_of_different_unknowns_are_never_taken_for_each_other():
    scenario = read().scenario
    pair = [scenario.systems[0], scenario.systems[-1]]
    seconds = []
    for name in ("factor.serial_share", "hbm"):
        probe = Probe(2, columns_of={name: ((1, LOW), (2, HIGH))})
        assert probe != Probe(2)
        seconds.append(Evaluator(scenario, {}, probe, load_profile(scenario.profile)).steps(pair)[0].step.seconds[0])
        assert name in probe.names
    assert seconds[0][0] == pytest.approx(seconds[1][0])
    assert seconds[0][1] != pytest.approx(seconds[1][1])


def test_everything_against_it_is_worse_than_anything_alone(study):
    alone = min(setting["speedup"] for row in study["inputs"] for setting in row["settings"])
    assert study["all_against"]["speedup"] < alone
    assert study["all_against"]["holds"] == (study["all_against"]["speedup"] > 1)


def test_without_the_needed_time_the_steps_would_be_equal(study):
    data = predict(read(), draws=1).data["systems"]
    before, after = data["megatron"], data["hyscale"]
    selection = next(row for row in study["vanishes"] if row["part"] == "selection")
    assert selection["seconds"] == pytest.approx(
        before["time_s"]["selection_forward"] + before["time_s"]["selection_recompute"]
    )
    assert selection["needed_s"] == pytest.approx(
        selection["seconds"] - (before["step_time_s"]["nominal"] - after["step_time_s"]["nominal"])
    )
    assert selection["times_faster"] == pytest.approx(selection["seconds"] / selection["needed_s"])


def test_lengths_from_which_a_change_counts_are_those_of_predictions(study):
    rows = {row["change"]: row for row in study["break_even"]}
    assert rows["selection: hytopk"]["from_tokens"] > 4096
    for change, row in rows.items():
        gains = {gain["tokens"]: gain for gain in row["gains"]}
        first = row["from_tokens"]
        assert first is None or all(gain["nominal"] >= GAIN for tokens, gain in gains.items() if tokens >= first)
        if first is not None and first / 2 in gains:
            assert gains[first / 2]["nominal"] < GAIN
        if change == "all of them":
            for tokens in (131072, 1048576):
                wanted = nominal(f"workload.sequence_length={tokens}")
                assert gains[tokens]["nominal"] == pytest.approx(wanted, rel=1e-9)


def test_a_layer_has_no_lengths_and_one_system_nothing_to_compare():
    assert sensitivity(read("scope={layer: dsa}"), draws=2)["break_even"] == []
    with pytest.raises(InputError, match="one system"):
        sensitivity(read(systems=["hyscale"]))


def test_what_was_asked_before_changes_nothing(resolve):
    first = sensitivity(resolve(), draws=4)
    sensitivity(resolve(systems=("megatron", "megatron-best")), draws=4)
    assert sensitivity(resolve(), draws=4) == first
