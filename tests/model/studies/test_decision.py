"""The decision adds up: techniques multiply to the whole, costs follow from rates, the answer from the interval."""

from itertools import pairwise

import pytest

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.schema import System
from hyscale_model.studies import decision
from hyscale_model.studies.decision import WORK, Operation, decide

NAME = "glm-5.1-1m-512xh20"
TEXT = catalog.path("published", NAME).read_bytes()


def read(*overrides, systems=()):
    return read_scenario(NAME, text=TEXT, overrides=overrides, systems=systems)


@pytest.fixture(scope="module")
def sheet():
    return decide(read("cluster.usd_per_gpu_hour=2"), tokens=1e10, draws=16)


@pytest.fixture(scope="module")
def prediction():
    return predict(read("cluster.usd_per_gpu_hour=2"), draws=16).data


def test_steps_and_speedups_are_those_of_predict(sheet, prediction):
    for name, row in sheet["systems"].items():
        assert row["step_time_s"] == pytest.approx(prediction["systems"][name]["step_time_s"], rel=1e-12)
        assert row["memory"]["verdict"] == prediction["systems"][name]["memory"]["verdict"]
    for pair, value in sheet["speedup"].items():
        assert value == pytest.approx(prediction["speedup"][pair], rel=1e-12)


def test_costs_follow_from_tokens_rate_failures_and_price(sheet, prediction):
    for name, row in sheet["systems"].items():
        rate = prediction["systems"][name]["tokens_per_s_per_gpu"]["nominal"] * sheet["gpus"]
        steady = 1e10 / rate / 3600 * sheet["gpus"]
        failures = steady * 419 / (54 * 24 * 16384)
        hours = steady + failures * (15 + 30) / 60 * sheet["gpus"]
        assert row["failures"] == pytest.approx(failures)
        assert row["gpu_hours"]["nominal"] == pytest.approx(hours)
        assert row["cost_usd"]["nominal"] == pytest.approx(2 * hours)
        assert row["days"]["nominal"] == pytest.approx(hours / sheet["gpus"] / 24)
        assert row["energy_mwh"]["low"] < hours * 400 / 1e6 < row["energy_mwh"]["high"]
        assert sum(row["evidence"].values()) == pytest.approx(1)


def test_without_failures_nothing_is_lost():
    row = decide(read(), tokens=1e10, draws=2, operation=Operation(failures_per_gpu_hour=0))["systems"]["hyscale"]
    assert row["failures"] == row["lost_share"] == 0


def test_shares_of_techniques_sum_to_one_and_any_order_multiplies_to_the_whole(sheet, prediction):
    rows = sheet["techniques"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    whole = sheet["speedup"]["hyscale/megatron"]["nominal"]
    average = 1.0
    for row in rows:
        average *= row["average"]["nominal"]
        assert row["lowest"] <= row["alone"] <= row["highest"]
        assert row["lowest"] <= row["last"] <= row["highest"]
    assert average == pytest.approx(whole)
    # The ablation is one of the orders.
    assert rows[0]["change"] == prediction["ablation"][0]["change"]
    assert rows[0]["alone"] == pytest.approx(prediction["ablation"][0]["gain"]["nominal"])
    assert rows[-1]["last"] == pytest.approx(prediction["ablation"][-1]["gain"]["nominal"])


def test_orders_through_something_impossible_are_left_out():
    sheet = decide(read("systems.megatron.recompute_selection=keep_scores", systems=["megatron", "hyscale"]), draws=2)
    rows = {row["change"]: row for row in sheet["techniques"]}
    # HyTopK has no scores to keep, so that must change first.
    assert rows["selection: hytopk"]["alone"] is None
    assert rows["recompute_selection: replay"]["last"] is None
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)


@pytest.mark.parametrize("worth", [1.0, 1.01, 1.2, 1.5, 3.0])
def test_the_answer_follows_from_the_interval(monkeypatch, sheet, worth):
    monkeypatch.setattr(decision, "WORTH", worth)
    answer = decide(read("cluster.usd_per_gpu_hour=2"), tokens=1e10, draws=16)["answer"]
    assert answer["without_port"] == "megatron-best"
    gain = sheet["speedup"]["hyscale/megatron-best"]
    assert answer["gain"] == gain
    wanted = "port" if gain["p10"] >= worth else "flags" if gain["p90"] < worth else "measure"
    assert answer["answer"] == wanted


def test_without_flags_the_choice_is_to_port_or_to_stay(monkeypatch):
    monkeypatch.setattr(decision, "WORTH", 3.0)
    answer = decide(read(systems=["megatron", "hyscale"]), draws=4)["answer"]
    assert (answer["answer"], answer["without_port"]) == ("stay", "megatron")


def test_every_switch_says_what_it_asks_for():
    assert set(WORK) == set(System.__dataclass_fields__) - {"name"}


def test_what_cannot_be_decided_is_refused():
    with pytest.raises(InputError, match="one system"):
        decide(read(systems=["megatron"]))
    with pytest.raises(InputError, match="about a step"):
        decide(read("scope={layer: dsa}"))
    changes = ("table_topk=radix", "causal_skip=false", "index_storage=host", "backend=cudnn", "dispatcher=deepep")
    with pytest.raises(InputError, match="9 switches differ"):
        decide(read(*(f"systems.hyscale.{change}" for change in changes)), draws=1)


def test_time_only_falls_from_change_to_change_where_each_helps(sheet):
    times = [row["step_time_s"]["nominal"] for row in sheet["systems"].values()]
    assert all(one > other for one, other in pairwise(times))
