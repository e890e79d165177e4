import json
import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from hyscale_model.batch import draw_assumptions
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.predict import predict
from hyscale_model.prediction import MEMORY_KINDS, ORIGINS, TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.summary import interval, quantiles

POLICIES = ("rerun", "keep_scores", "keep_indices", "replay", "skip")
# Variants of both scenarios: (overrides, which scenario).
VARIANTS = {
    "published": ((), False),
    "without recomputation": (("training.recompute=none",), False),
    "without index loss": (("training.index_loss=none",), False),
    "FP8": (("training.precision=fp8", "training.index_precision=fp8"), False),
    "contiguous": (("layout.cp_order=contiguous",), False),
    "1F1B": (("layout.vpp=1", "layout.schedule=1f1b", "workload.global_batch_size=64"), False),
    "two replicas": (("layout.cp=64", "layout.ep=64", "workload.global_batch_size=8"), False),
    "one node": ((), True),
    "tensor parallel": (("layout.tp=2", "layout.cp=2"), True),
    "one stage": (("layout.pp=1",), True),
}


def variant(predicted, name, draws=0):
    overrides, small = VARIANTS[name]
    return predicted(*overrides, small=small, draws=draws)


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


def test_replay_leaves_little_to_hide_the_repeated_gather_behind(predicted):
    """On a slow network a gather outlasts the replay of k keys, and not the selection among all."""
    slow = "cluster.nic_efficiency=0.1"
    hidden = {
        policy: predicted(slow, f"systems.hyscale.recompute_selection={policy}", systems=("hyscale",))["systems"][
            "hyscale"
        ]
        for policy in ("rerun", "replay", "skip")
    }
    seconds = [hidden[policy]["hidden_communication_s"]["cp"] for policy in ("rerun", "replay", "skip")]
    assert seconds == sorted(set(seconds), reverse=True)
    # Nothing hides more than the computation it runs beside.
    replay = hidden["replay"]
    assert seconds[1] - seconds[2] <= replay["time_s"]["selection_recompute"] * (1 + 1e-9)


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


# Communication -----------------------------------------------------------------------------------------------


def times(predicted, *overrides, system="megatron", small=True):
    return predicted(*overrides, small=small)["systems"][system]["time_s"]


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
@pytest.mark.parametrize(
    ("kind", "alone", "split"),
    [
        ("cp", ("layout.cp=1",), ()),
        ("ep", ("layout.ep=1",), ()),
        ("pp", ("layout.pp=1",), ()),
        ("tp", (), ("layout.tp=2", "layout.cp=2")),
        ("dp", ("layout.cp=1", "layout.ep=1", "cluster.gpus_per_node=2"), ()),
    ],
)
def test_a_dimension_of_one_rank_communicates_nothing(predicted, kind, alone, split, system):
    term = f"{kind}_communication_exposed"
    assert times(predicted, *alone, system=system).get(term, 0.0) == 0
    assert times(predicted, *split, system=system)[term] > 0


def test_one_gpu_only_computes(predicted):
    one = times(predicted, "layout.pp=1", "layout.cp=1", "layout.ep=1", "cluster.gpus_per_node=1", system="hyscale")
    for term, value in one.items():
        if "communication" in term or term in ("pp_bubble", "waiting", "offload"):
            assert value == pytest.approx(0, abs=1e-9), term


def test_one_stage_has_no_bubble(predicted):
    assert "pp_bubble" not in times(predicted, "layout.pp=1")
    assert times(predicted)["pp_bubble"] > 0


# On the published layout the critical rank runs 20 layers with 4 micro-batches, on 8-GPU nodes with 40 GB/s a rail.
RUNS, RAIL, LATENT, INDEX_KEY = 80, 50e9 * 0.8, 1048576 * 576 * 2, 1048576 * 128 * 2


def test_context_parallel_seconds_by_hand(predicted):
    """Latents and index keys are gathered forward and recomputed; their gradients are reduced once."""
    ring = 112 * 2e-6 + 16 * 5e-6
    sent = 3 * (LATENT + INDEX_KEY) * 127 / 128 / (8 * RAIL)
    found = times(predicted, small=False)["cp_communication_exposed"]
    assert found == pytest.approx(RUNS * (sent + 6 * ring), rel=1e-9)


def test_expert_parallel_seconds_by_hand(predicted):
    """Eight copies of a token go out and come back, forward, recomputed and backward; balanced over the ranks."""
    settings = ("training.moe_imbalance=1", "cluster.alltoall_efficiency=0.8")
    one = 8192 * 8 * 6144 * 2 * 120 / 128 / RAIL + 15 * 5e-6 + 2e-6
    assert times(predicted, *settings, small=False)["ep_communication_exposed"] == pytest.approx(RUNS * 6 * one)


def test_pipeline_sends_by_hand(predicted):
    """A rank in the middle sends activations of two chunks on and gradients of two chunks back."""
    one = 8192 * 6144 * 2 / RAIL + 5e-6
    assert times(predicted, small=False)["pp_communication_exposed"] == pytest.approx(4 * 4 * one, rel=1e-9)


def test_the_ends_of_a_pipeline_send_one_way(predicted):
    """Of two stages on a node, one sends four activations and the other four gradients."""
    one = 16384 * 6144 * 2 / (450e9 * 0.75) + 2e-6
    assert times(predicted)["pp_communication_exposed"] == pytest.approx(4 * one, rel=1e-9)


def test_gradient_exchange_and_optimizer_by_hand(predicted):
    layer = 165.02e6 + 9.372e6 + 3 * 6144 * 2048 + 6145 * 256 + 2 * 6144
    ring = 112 * 2e-6 + 16 * 5e-6
    found = times(predicted, small=False)
    sent = 20 * layer * (4 + 2) * 127 / 128 / (8 * RAIL)
    assert found["dp_communication_exposed"] == pytest.approx(sent + 2 * ring, rel=1e-4)
    # Two experts of every layer are on this rank, the rest is sharded over 128.
    held = 20 * (layer / 128 + 2 * 3 * 6144 * 2048)
    moved = held * (2 * 3 * 4 + 4 + 2)
    in_step = load_profile("published").factors["step_over_kernels"].value
    assert found["optimizer"] == pytest.approx(in_step * (moved / (4e12 * 0.8) + 20 * 4e-6), rel=1e-4)


def test_without_zero_gradients_are_reduced_and_gathered_in_their_precision(predicted):
    """A ring all-reduce of FP32 gradients sends 4 + 4 bytes a weight, a distributed optimizer 4 + 2."""
    sharded, whole = (
        times(predicted, f"layout.zero={zero}", small=False)["dp_communication_exposed"] for zero in (1, 0)
    )
    assert whole >= sharded * 8 / 6 * 0.99


def test_replicated_experts_exchange_their_gradients(predicted):
    """With ep = 32 of 128 ranks, four ranks hold the same 8 experts of 20 layers."""
    found = times(predicted, "layout.ep=32", small=False)["dp_communication_exposed"]
    gradients = 20 * 8 * 3 * 6144 * 2048 * 4
    assert found >= gradients * 3 / 4 / 50e9


def test_a_token_reaches_every_rank_that_holds_one_of_its_experts(predicted):
    """Uniform routing of 8 copies over 4 ranks: 4 (1 - (3/4)^8) of them are met, three quarters of those elsewhere."""
    found = times(predicted, "systems.*.dispatcher=deepep")["ep_communication_exposed"]
    met = 4 * (1 - (3 / 4) ** 8) * 3 / 4
    tokens, runs = 65536 / 4, 3 * 6 * 2
    assert found >= runs * tokens * met * 6144 * 2 / 450e9


def test_indices_on_the_host_are_copied_there_and_back(predicted):
    """64 MiB a layer and micro-batch over PCIe each way; what is hidden slows what it runs beside."""
    data = predicted("systems.hyscale.index_storage=host", systems=("hyscale",))["systems"]["hyscale"]
    copied = RUNS * 2 * 8192 * 2048 * 4 / (64e9 * 0.8)
    hidden = data["hidden_communication_s"]["host"]
    contention = load_profile("published").factors["overlap_contention"].value
    assert 0 <= hidden <= copied * (1 + 1e-9)
    assert data["time_s"]["offload"] == pytest.approx(copied - hidden + contention * hidden)


# More and less ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "cluster.nic_gbit_per_gpu",
        "cluster.gpu.nvlink_bytes_per_s",
        "cluster.gpu.hbm_bytes_per_s",
        "cluster.gpu.bf16_flops",
        "cluster.gpu.sms",
        "cluster.gpu.boost_hz",
    ],
)
def test_faster_hardware_is_never_slower(resolve, predicted, path):
    scenario = resolve().scenario
    value = scenario.cluster
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    for system in ("megatron", "hyscale"):
        steps = [
            predicted(f"{path}={value * factor:.0f}")["systems"][system]["step_time_s"]["nominal"]
            for factor in (1, 2, 4)
        ]
        assert steps[0] == pytest.approx(predicted()["systems"][system]["step_time_s"]["nominal"])
        assert steps == sorted(steps, reverse=True)
        # The slowest link of the published layout is the adapter.
        assert steps[-1] < steps[0] or "nvlink" in path


def test_longer_sequences_take_longer(predicted):
    lengths = (131072, 262144, 524288, 1048576, 2097152)
    for system in ("megatron", "megatron-best", "hyscale"):
        steps = [
            predicted(f"workload.sequence_length={length}")["systems"][system]["step_time_s"]["nominal"]
            for length in lengths
        ]
        # Scores grow with the square, everything else with the length.
        for shorter, longer in pairwise(steps):
            assert 1.9 * shorter < longer < 4.05 * shorter


def test_imbalance_is_waited_for(predicted):
    even, uneven = (times(predicted, f"training.moe_imbalance={value}", small=False) for value in (1.0, 1.3))
    assert uneven["waiting"] > even["waiting"]
    assert uneven["moe"] == even["moe"]


def test_unbalanced_order_waits_for_the_last_rank(predicted):
    balanced, contiguous = times(predicted, small=False), times(predicted, "layout.cp_order=contiguous", small=False)
    assert contiguous["waiting"] > balanced["waiting"]
    assert contiguous["selection_forward"] == balanced["selection_forward"]


def test_more_micro_batches_shrink_the_share_of_the_bubble(predicted):
    shares = []
    for size in (4, 8, 16, 64):
        system = predicted(f"workload.global_batch_size={size}")["systems"]["megatron"]
        shares.append(system["time_s"]["pp_bubble"] / system["step_time_s"]["nominal"])
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.1


# Derived figures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_derived_figures_follow_from_the_step(predicted, name):
    data = variant(predicted, name, draws=16)
    scenario = data["scenario"]
    tokens = scenario["workload"]["global_batch_size"] * scenario["workload"]["sequence_length"]
    gpus = scenario["cluster"]["nodes"] * scenario["cluster"]["gpus_per_node"]
    for system in data["systems"].values():
        seconds = system["step_time_s"]["nominal"]
        assert system["tokens_per_s_per_gpu"]["nominal"] == pytest.approx(tokens / seconds / gpus)
        assert system["gpu_hours_per_billion_tokens"] == pytest.approx(gpus * seconds / 3600 / tokens * 1e9)
        selection = sum(system["time_s"].get(f"selection_{phase}", 0.0) for phase in ("forward", "recompute"))
        assert system["selection_share_of_step"]["nominal"] == pytest.approx(selection / seconds)
        assert system["selection_share_of_busy"] == pytest.approx(selection / system["busy_time_s"])
        assert 0 < selection < system["busy_time_s"] < seconds
        assert 0 < system["model_flops_utilization"] < 1


def test_a_price_is_that_of_the_hours(predicted):
    system = predicted("cluster.usd_per_gpu_hour=2.5")["systems"]["hyscale"]
    assert system["cost_per_billion_tokens"] == pytest.approx(2.5 * system["gpu_hours_per_billion_tokens"])


def test_utilization_by_hand(predicted):
    """6 FLOP a weight (4 of the indexer), causal scores once and kept ones twice more, attention three times."""
    indexer = 78 * 9.372e6
    selected = 2048 - 2048 * 2047 / 2 / 1048576
    pair = 78 * 2 * 32 * 128
    a_token = (
        6 * (40.83e9 - indexer) + 4 * indexer + pair * (524288.5 + 2 * selected) + 3 * 78 * 2 * 64 * 1088 * selected
    )
    system = predicted()["systems"]["megatron"]
    by_hand = a_token * 4 * 1048576 / (system["step_time_s"]["nominal"] * 512 * 148e12)
    assert system["model_flops_utilization"] == pytest.approx(by_hand, rel=1e-3)


def test_sizes_of_hytopk_are_shown(predicted):
    data = predicted()["systems"]
    assert data["hyscale"]["hytopk"] == {"samples": 8192, "stride": 128, "rank": 48, "expected_candidates": 6144}
    assert data["megatron"]["hytopk"] is None


# Reported results and refusals -----------------------------------------------------------------------------


def test_reported_values_are_compared_and_never_used(predicted):
    data = predicted(draws=16)
    assert [row["id"] for row in data["reported"]] == [
        "P1",
        "P4",
        "P5 before",
        "P5 after",
        "P5 ratio",
        "P6",
        "P7",
        "P8",
    ]
    changed = predicted(edit=("value: 2.07", "value: 9.99"), draws=16)
    assert changed["systems"] == data["systems"]
    assert changed["speedup"] == data["speedup"]
    assert changed["reported"][0]["reported"] == 9.99
    for row in data["reported"]:
        assert row["error"] == pytest.approx(row["predicted"]["nominal"] / row["reported"] - 1)
    by_id = {row["id"]: row for row in data["reported"]}
    assert by_id["P7"]["error"] == by_id["P8"]["error"] == 0
    assert by_id["P1"]["predicted"] == data["speedup"]["hyscale/megatron"]
    before = data["systems"]["megatron"]
    assert by_id["P5 before"]["predicted"]["nominal"] == before["time_s"]["selection_recompute"]
    assert by_id["P5 before"]["floor"] == before["floor_s"]["selection_recompute"]
    assert by_id["P5 before"]["floor"] <= by_id["P5 before"]["predicted"]["nominal"]


@pytest.mark.parametrize("override", ["workload.sequence_length=524288", "cluster=512xh20-141"])
def test_results_of_another_experiment_are_not_compared(predicted, override):
    data = predicted(override)
    assert data["reported"] == []
    assert override.partition("=")[0] in data["warnings"][-1]


def test_what_the_file_leaves_open_may_be_set(predicted):
    # The batch and the pipeline are assumptions of the scenario, and no report states them.
    assert len(predicted("workload.global_batch_size=8", "layout.vpp=3")["reported"]) == 8


def test_a_metric_of_a_system_left_out_is_a_warning(predicted):
    data = predicted(systems=("megatron",))
    assert [row["id"] for row in data["reported"]] == ["P4", "P5 before", "P7"]
    assert len(data["warnings"]) == 5


def test_a_metric_that_does_not_exist_is_refused(predicted):
    with pytest.raises(InputError) as refused:
        predicted(edit=("metric: speedup.hyscale/megatron", "metric: speedup.hyscale/nothing"))
    assert refused.value.field == "reported.0.metric"


def test_what_cannot_be_priced_is_refused(predicted):
    with pytest.raises(UnpricedError) as refused:
        predicted("systems.hyscale.backend=unfused")
    assert "backend" in refused.value.field


# One model among families ------------------------------------------------------------------------------------


def test_glm_5_1_costs_what_it_did_when_it_was_the_only_model(predicted):
    """Describing layers as data changes no number of the published scenario."""
    nominal = {name: system["step_time_s"]["nominal"] for name, system in predicted()["systems"].items()}
    assert nominal["megatron"] == pytest.approx(172.03, rel=1e-3)
