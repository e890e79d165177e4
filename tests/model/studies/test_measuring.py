"""What is measured first is what narrows most, in the time there is."""

from dataclasses import dataclass

import numpy as np
import pytest

from hyscale_model import catalog
from hyscale_model.batch import draw_assumptions
from hyscale_model.evaluate import Evaluator
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.measurements import COLLECTIVES, measurements
from hyscale_model.studies.measuring import DRAWS, Measurement, _Effect, _Remaining, measure_first

NAME = "glm-5.1-1m-512xh20"
TEXT = catalog.path("published", NAME).read_bytes()


def read(*overrides):
    scenario = read_scenario(NAME, text=TEXT, overrides=overrides).scenario
    return scenario, (scenario.systems[0], scenario.systems[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Pinned(Draws):
    """Draws of which some unknowns are known."""

    known: tuple[str, ...] = ()

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def uniform(self, name):
        values = Draws.uniform(self, name)
        return np.full_like(values, 0.5) if name in self.known else values


def variance(scenario, pair, known=()):
    draws = Pinned(DRAWS, 0, known=tuple(known))
    evaluator = Evaluator(scenario, draw_assumptions(scenario, draws), draws, profile_of(scenario))
    before, after = evaluator.steps(pair)
    return np.log(before.step.seconds / after.step.seconds)[0, 1:].var()


def row_of(first, name):
    return next(row for row in first["measurements"] if row["name"] == name)


@pytest.fixture(scope="module")
def case():
    return read()


def test_a_gain_is_the_variance_that_goes_when_the_unknown_is_known(case):
    links = Measurement("links", 1.0, paths=frozenset({"cluster.alltoall_efficiency"}))
    whole = Measurement("imbalance", 2.0, paths=frozenset({"training.moe_imbalance"}))
    first = measure_first(*case, [links, whole], budget_s=10)
    before = variance(*case)
    for name, path in (("links", "cluster.alltoall_efficiency"), ("imbalance", "training.moe_imbalance")):
        wanted = 1 - variance(*case, [f"assumption.{path}"]) / before
        assert row_of(first, name)["gain"] == pytest.approx(wanted, abs=0.04)
    both = variance(*case, ["assumption.cluster.alltoall_efficiency", "assumption.training.moe_imbalance"])
    assert first["left"] == pytest.approx(both / before, abs=0.05)
    now, then = first["now"], first["then"]
    assert then["p50"] == now["p50"]
    narrower = np.log(then["p90"] / then["p10"]) / np.log(now["p90"] / now["p10"])
    assert narrower == pytest.approx(first["left"] ** 0.5)


def test_no_more_is_chosen_than_the_time_holds_and_the_best_a_second_comes_first(case):
    able = measurements(case[0].cluster.gpu)
    for budget in (0, 20, 600):
        first = measure_first(*case, able, budget_s=budget)
        chosen = [row for row in first["measurements"] if row["chosen"]]
        assert sum(row["seconds"] for row in chosen) == pytest.approx(first["seconds"])
        assert first["seconds"] <= budget
        assert 1 - sum(row["gain"] for row in chosen) == pytest.approx(first["left"])
        if chosen:
            best = max(first["measurements"], key=lambda row: row["gain_per_minute"])
            assert chosen[0]["gain_per_minute"] == best["gain_per_minute"]
        else:
            assert first["then"] == pytest.approx(first["now"])


def test_what_was_measured_on_this_gpu_narrows_nothing():
    measured = read("cluster.gpu=h200", "profile=h200-sxm")
    first = measure_first(*measured, measurements(measured[0].cluster.gpu), budget_s=600)
    assert all(row["name"] == COLLECTIVES for row in first["measurements"] if row["gain"] > 0.03)


def test_the_factor_of_a_transfer_falls_with_the_square_of_what_is_not_measured():
    shares = {"factor.transfer": 0.8, "one.sm": 0.1, "two.sm": 0.1}
    effects = {name: _Effect(1.0, 1.0, 0.0) for name in ("one", "two")}
    remaining = _Remaining(shares, effects, 1.0)
    assert remaining.after(frozenset()) == pytest.approx(1.0)
    assert remaining.after(frozenset({"one"})) == pytest.approx(0.8 / 4 + 0.1)
    assert remaining.after(frozenset({"one", "two"})) == pytest.approx(0.0)


def test_what_a_law_leaves_is_not_gained():
    remaining = _Remaining({"one.sm": 0.5, "other": 0.5}, {"one": _Effect(0.5, 0.0, 0.1)}, 0.01)
    assert remaining.after(frozenset({"one"})) == pytest.approx(1 - 0.5 + 0.25)


def test_a_slower_gpu_takes_longer():
    slow, fast = (
        {each.name: each.seconds for each in measurements(read(f"cluster.gpu={gpu}")[0].cluster.gpu)}
        for gpu in ("h20-96", "h200")
    )
    assert slow.keys() == fast.keys()
    assert all(slow[name] >= fast[name] for name in slow)
    assert slow["selection_phases"] > 2 * fast["selection_phases"]


def test_unknowns_that_nothing_settles_are_named(case):
    first = measure_first(*case, measurements(case[0].cluster.gpu), budget_s=600)
    names = [row["input"] for row in first["others"]]
    assert "training.moe_imbalance" in names
    assert "cluster.alltoall_efficiency" not in names
    assert not any(name.startswith("index_scoring") for name in names)
