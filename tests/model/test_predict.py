"""A prediction has the numbers it promises, each with its origin."""

import json
import math
from collections.abc import Mapping

import numpy as np
import pytest
from variants import VARIANTS, variant

from hyscale_model.batch import draw_assumptions
from hyscale_model.predict import predict
from hyscale_model.prediction import MEMORY_KINDS, ORIGINS, TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.summary import interval, quantiles


def leaves(value, path=""):
    """Dotted paths of everything that holds nothing else."""
    prefix = f"{path}." if path else ""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, f"{prefix}{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{prefix}{index}")
    else:
        yield path, value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# What a prediction holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_terms_sum_to_the_step(predicted, name):
    for system in variant(predicted, name)["systems"].values():
        assert sum(system["time_s"].values()) == pytest.approx(system["step_time_s"]["nominal"], rel=1e-9, abs=1e-9)
        assert set(system["time_s"]) == set(system["terms"]) <= set(TERMS)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_time_is_negative(predicted, name):
    for system in variant(predicted, name, draws=16)["systems"].values():
        for path, value in leaves(
            {key: system[key] for key in ("time_s", "terms", "hidden_communication_s", "floor_s")}
        ):
            assert not is_number(value) or value >= 0, path


@pytest.mark.parametrize("name", VARIANTS)
def test_a_prediction_is_plain_finite_json(predicted, name):
    data = variant(predicted, name, draws=16)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    for path, value in leaves(data):
        assert not is_number(value) or math.isfinite(value), path


@pytest.mark.parametrize("name", VARIANTS)
def test_percentiles_are_in_order(predicted, name):
    data = variant(predicted, name, draws=16)

    def walk(node):
        if isinstance(node, Mapping):
            if {"p10", "p50", "p90"} <= set(node):
                assert node["p10"] <= node["p50"] <= node["p90"]
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk({key: data[key] for key in ("systems", "speedup", "speedup_by_term", "ablation", "nearest_feasible")})


def test_a_prediction_has_the_keys_of_its_contract(predicted):
    data = predicted(draws=16)
    assert data["schema_version"] == 1
    assert {"scenario", "origins", "systems", "speedup", "ablation"} <= set(data)
    assert list(data["systems"]) == ["megatron", "megatron-best", "hyscale"]
    for system in data["systems"].values():
        assert set(system["step_time_s"]) == {"nominal", "p10", "p50", "p90"}
        for term in system["terms"].values():
            assert set(term) == {"p10", "p50", "p90", "origin"}
            assert term["origin"] in ORIGINS
        for key in ("hidden_communication_s", "busy_time_s", "selection_share_of_step", "selection_share_of_busy"):
            assert key in system
        assert set(system["tokens_per_s_per_gpu"]) == {"nominal", "p10", "p50", "p90"}
        assert is_number(system["model_flops_utilization"])
        assert is_number(system["gpu_hours_per_billion_tokens"])
        assert system["cost_per_billion_tokens"] is None
        memory = system["memory"]
        assert {"capacity_bytes", "peak_bytes", "peak_stage", "peak_when", "at_peak_bytes", "largest_bytes"} <= set(
            memory
        )
        assert memory["verdict"] in ("fits", "at_risk", "does_not_fit")
        assert set(memory["at_peak_bytes"]) <= set(MEMORY_KINDS)
        for number, stage in enumerate(memory["stages"]):
            assert stage["stage"] == number
            assert {"stage", "peak_bytes", "at_peak_bytes"} <= set(stage)
    assert set(data["speedup"]) == {"megatron-best/megatron", "hyscale/megatron", "hyscale/megatron-best"}
    for row in data["ablation"]:
        assert {"change", "step_time_s", "speedup"} <= set(row)


def test_the_scenario_is_that_of_the_file(predicted):
    scenario = predicted()["scenario"]
    assert scenario["model"]["num_hidden_layers"] == 78
    assert scenario["cluster"]["gpu"]["sms"] == 78
    assert scenario["layout"]["cp"] == 128
    assert scenario["systems"]["hyscale"]["recompute_selection"] == "replay"


# Origins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_every_value_of_the_scenario_has_an_origin(predicted, name):
    data = variant(predicted, name)
    for path, _ in leaves(data["scenario"]):
        assert path in data["origins"], path
    for origin in data["origins"].values():
        assert origin["origin"] in ORIGINS
        assert origin["reason" if origin["origin"] == "assumed" else "source"]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_number_of_a_result_has_an_origin(predicted, name):
    data = variant(predicted, name, draws=16)
    results = ("systems", "speedup", "speedup_by_term", "ablation", "nearest_feasible", "reported")
    for path, value in leaves({key: data[key] for key in results}):
        if not is_number(value):
            continue
        parts = path.split(".")
        ancestors = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        assert ancestors & set(data["origins"]), path


def test_a_result_is_no_more_certain_than_its_terms(predicted):
    data = predicted(draws=16)
    for name, system in data["systems"].items():
        worst = max((term["origin"] for term in system["terms"].values()), key=ORIGINS.index)
        assert data["origins"][f"systems.{name}"]["origin"] == worst


def test_what_is_drawn_is_assumed_and_what_is_set_is_given(predicted):
    assert predicted()["origins"]["cluster.nic_efficiency"]["origin"] == "assumed"
    assert predicted("cluster.nic_efficiency=0.8")["origins"]["cluster.nic_efficiency"]["origin"] == "given"


# Draws -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_prediction(resolve, predicted):
    assert predict(resolve(), draws=16, seed=3).data == predict(resolve(), draws=16, seed=3).data


def test_seeds_and_draws_leave_the_nominal_values_as_they_are(predicted):
    first, other, none = predicted(draws=16, seed=0), predicted(draws=16, seed=1), predicted(draws=0)
    assert first["systems"]["hyscale"]["step_time_s"]["p50"] != other["systems"]["hyscale"]["step_time_s"]["p50"]
    for name in first["systems"]:
        nominal = [{k: v for k, v in data["systems"][name]["time_s"].items() if v} for data in (first, other, none)]
        assert nominal[0] == nominal[1] == pytest.approx(nominal[2], rel=1e-12)
        for key in ("busy_time_s", "critical_stage", "gpu_hours_per_billion_tokens"):
            same = [data["systems"][name][key] for data in (first, other, none)]
            assert same[0] == same[1] == pytest.approx(same[2], rel=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_without_draws_an_interval_is_its_nominal_value(predicted, name):
    for system in variant(predicted, name)["systems"].values():
        for key in ("step_time_s", "selection_share_of_step", "tokens_per_s_per_gpu"):
            assert len(set(system[key].values())) == 1
        for term, values in system["terms"].items():
            assert {values["p10"], values["p50"], values["p90"]} == {system["time_s"][term]}
        assert len(set(system["memory"]["peak_interval_bytes"].values())) == 1


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_quantiles_are_linear_between_draws(count):
    values = np.random.default_rng(count).normal(size=(3, count + 1))
    assert quantiles(values) == pytest.approx(np.quantile(values[:, 1:], [0.1, 0.5, 0.9], axis=-1))
    assert interval(values[:1])["nominal"] == values[0, 0]


def test_the_interval_of_a_ratio_is_that_of_the_ratio_of_draws(resolve, predicted, evaluate):
    scenario, draws = resolve().scenario, Draws(32, 5)
    base, _, target = evaluate(scenario, draw_assumptions(scenario, draws), draws).steps
    ratio = (base.seconds / target.seconds)[0]
    p10, p50, p90 = np.quantile(ratio[1:], [0.1, 0.5, 0.9])
    found = predicted(draws=32, seed=5)["speedup"]["hyscale/megatron"]
    assert found == pytest.approx({"nominal": ratio[0], "p10": p10, "p50": p50, "p90": p90})
    # Shared draws: the ratio is known better than either time.
    spread = np.quantile(base.seconds[0, 1:], 0.9) / np.quantile(base.seconds[0, 1:], 0.1)
    assert p90 / p10 < spread


def test_a_fixed_field_is_no_longer_drawn(predicted):
    fixed = predicted("workload.global_batch_size=4", draws=16)
    assert "workload.global_batch_size" not in {item["path"] for item in fixed["assumptions"]}
    drawn = predicted(draws=16)
    name = "megatron"
    assert fixed["systems"][name]["time_s"] == drawn["systems"][name]["time_s"]
    widths = [
        data["systems"][name]["step_time_s"]["p90"] / data["systems"][name]["step_time_s"]["p10"]
        for data in (fixed, drawn)
    ]
    assert widths[0] < widths[1]
