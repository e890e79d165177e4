"""The search finds what trying every layout by hand would find."""

from dataclasses import replace
from itertools import product

import pytest

from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.search import search
from hyscale_model.studies.space import candidates, describe, divisors

SMALL = """
schema_version: 1
name: small
model: {extends: glm-5.1, num_hidden_layers: 6, n_routed_experts: 16}
cluster: {gpu: h200, nodes: 2, gpus_per_node: 4, nic_gbit_per_gpu: 400}
layout: {tp: 1, pp: 2, cp: 4, ep: 4}
workload: {sequence_length: 65536, global_batch_size: 4}
training: {recompute: full}
systems: [megatron, hyscale]
assumptions:
  - {path: workload.global_batch_size, choices: [4, 8], reason: not known}
  - {path: cluster.nic_efficiency, range: [0.7, 0.9], reason: not known}
"""


def read(*overrides, text=SMALL, systems=()):
    return read_scenario("small", text=text, overrides=overrides, systems=systems)


FIXED = ("workload.global_batch_size=4",)


def by_hand(system, draws):
    """Step time of every layout that can run and fits, by one prediction each."""
    found = {}
    numbers = divisors(8)
    for tp, pp, cp, ep, micro, vpp in product(divisors(4), numbers, numbers, numbers, (1, 2, 4), range(1, 7)):
        for recompute, storage in product(("full", "none", "selective"), ("device", "host")):
            settings = {
                "layout.tp": tp,
                "layout.pp": pp,
                "layout.cp": cp,
                "layout.ep": ep,
                "layout.vpp": vpp,
                "layout.schedule": "interleaved" if vpp > 1 else "1f1b",
                "workload.micro_batch_size": micro,
                "training.recompute": recompute,
                f"systems.{system}.index_storage": storage,
            }
            if 8 % (tp * pp * cp) or 4 % (8 // (tp * pp * cp)) or pp * vpp > 6:
                continue
            try:
                resolved = read(*FIXED, *(f"{path}={value}" for path, value in settings.items()), systems=[system])
                data = predict(resolved, draws=draws).data["systems"][system]
            except InputError:
                continue
            if data["memory"]["verdict"] == "fits":
                key = tuple(describe(resolved.scenario).items())
                found[key] = data["step_time_s"]["nominal"]
    return found


@pytest.mark.slow
def test_the_first_is_the_best_of_all_by_hand():
    system, draws = "hyscale", 8
    wanted = by_hand(system, draws)
    assert len(wanted) > 50
    data = search(read(systems=[system]), top=10, draws=draws)
    top = data["systems"][system]["top"]
    best = sorted(wanted.values())
    for row, seconds in zip(top, best, strict=False):
        assert row["step_time_s"]["nominal"] == pytest.approx(seconds, rel=1e-9)
        assert wanted[tuple(row["layout"].items())] == pytest.approx(row["step_time_s"]["nominal"], rel=1e-9)


@pytest.fixture(scope="module")
def found():
    return search(read(), top=5, draws=8)


def test_layouts_are_in_order_and_fit(found):
    for system in found["systems"].values():
        times = [row["step_time_s"]["nominal"] for row in system["top"]]
        assert len(times) == 5
        assert times == sorted(times)
        capacity = read().scenario.cluster.gpu.memory_bytes
        assert all(row["peak_bytes"]["p90"] <= capacity for row in system["top"])


def test_no_layout_of_the_front_is_beaten_in_time_and_memory(found):
    for system in found["systems"].values():
        front = system["pareto"]
        assert [row["step_time_s"] for row in front] == sorted(row["step_time_s"] for row in front)
        assert [row["peak_bytes"] for row in front] == sorted((row["peak_bytes"] for row in front), reverse=True)
        # Points of a batch are added up in another order than one alone.
        assert front[0]["step_time_s"] <= system["top"][0]["step_time_s"]["nominal"] * (1 + 1e-12)


def test_ratios_are_those_of_predictions_of_the_same_layouts(found):
    for row in found["like_for_like"]:
        layout = row["layout"]
        settings = [f"layout.{name}={layout[name]}" for name in ("tp", "pp", "vpp", "cp", "ep")]
        settings.append(f"layout.schedule={'interleaved' if layout['vpp'] > 1 else '1f1b'}")
        settings += [
            f"training.recompute={layout['recompute']}",
            f"workload.micro_batch_size={layout['micro_batch_size']}",
        ]
        data = predict(read(*FIXED, *settings), draws=8).data
        assert row["speedup"]["hyscale/megatron"]["nominal"] == pytest.approx(
            data["speedup"]["hyscale/megatron"]["nominal"], rel=1e-9
        )
    best = {name: system["top"][0]["step_time_s"]["nominal"] for name, system in found["systems"].items()}
    assert found["each_at_its_best"]["speedup"]["hyscale/megatron"]["nominal"] == pytest.approx(
        best["megatron"] / best["hyscale"], rel=1e-12
    )


def test_reasons_name_terms_that_change(found):
    for system in found["systems"].values():
        for row in system["top"]:
            if row["layout"] == system["own"]["layout"]:
                assert row["changes"] == {}
                assert row["because"] == []
            else:
                change = row["step_time_s"]["nominal"] - system["own"]["step_time_s"]["nominal"]
                assert row["changes"]
                assert not row["because"] or abs(change) > 0


@pytest.mark.slow
def test_a_field_that_a_system_sets_stays():
    data = search(read("systems.hyscale.layout.pp=2"), top=3, draws=2)
    assert {row["layout"]["pp"] for row in data["systems"]["hyscale"]["top"]} == {2}
    scenario = read().scenario
    own = replace(scenario.systems[1], layout={"cp": 8}, training={"recompute": "full"})
    for each in candidates(scenario, [own]):
        assert set(each.values["layout.cp"].tolist()) == {8}
        assert each.scenario.training.recompute == "full"


@pytest.mark.slow
def test_another_number_of_nodes():
    assert search(read(), nodes=1, top=1, draws=2)["gpus"] == 4


def test_nothing_that_fits_and_scopes_of_a_layer_are_refused():
    with pytest.raises(InputError, match=r"none of .* layouts fits 20 GiB"):
        search(read("cluster.gpu.memory_bytes=21474836480"), draws=2)
    with pytest.raises(InputError, match="searched for a step"):
        search(read("scope={layer: dsa}"), draws=2)


@pytest.mark.parametrize("schedule", ["zero_bubble", "dualpipe"])
def test_a_schedule_of_a_system_comes_with_what_it_needs(schedule):
    own = f"systems: [{{name: mine, extends: hyscale, layout: {{schedule: {schedule}}}}}]"
    text = SMALL.replace("systems: [megatron, hyscale]", own)
    scenario = read("workload.global_batch_size=16", text=text).scenario
    found = list(candidates(scenario, scenario.systems))
    assert found
    for each in found:
        pp, tp = each.scenario.layout.pp, each.scenario.layout.tp
        assert each.scenario.layout.schedule == schedule
        assert pp > 1
        assert (each.values["layout.vpp"] == 1).all()
        if schedule == "dualpipe":
            ranks = 8 // (tp * pp * each.values["layout.cp"])
            micro_batches = 16 // (ranks * each.values["workload.micro_batch_size"])
            assert pp % 2 == 0
            assert (micro_batches % 2 == 0).all()
            assert (micro_batches >= 2 * pp).all()


def test_terms_beyond_what_a_profile_measured_are_those_that_a_prediction_marks():
    resolved = read(*FIXED, "profile=h200-sxm", systems=["hyscale"])
    own = search(resolved, top=1, draws=2)["systems"]["hyscale"]["own"]
    system = predict(resolved, draws=2).data["systems"]["hyscale"]
    assert own["extrapolated"] == system["extrapolated"]
    # On the GPU of the profile nothing else is transferred; a part that is published or assumed goes before.
    transferred = {term for term, row in system["terms"].items() if row["origin"] == "transferred"}
    assert transferred
    assert transferred <= set(own["extrapolated"])


def test_systems_that_are_searched_together_find_what_each_finds_alone(found):
    alone = search(read(systems=["hyscale"]), top=5, draws=8)["systems"]["hyscale"]
    together = found["systems"]["hyscale"]
    assert together["searched"] == alone["searched"]
    assert [row["layout"] for row in together["pareto"]] == [row["layout"] for row in alone["pareto"]]
    for row, other in zip(together["top"], alone["top"], strict=True):
        assert row["layout"] == other["layout"]
        assert row["step_time_s"] == pytest.approx(other["step_time_s"], rel=1e-12)
        assert row["peak_bytes"] == pytest.approx(other["peak_bytes"], rel=1e-12)
