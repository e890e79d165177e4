"""A prediction of every family on 32 H100: the truths of any prediction, and what is particular to a family."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hyscale_model.families import anatomy, count_parameters
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.sizes import Sizes
from hyscale_model.prediction import MEMORY_KINDS, SELECTION_TERMS, TERMS
from hyscale_model.scenario.stages import selecting_layers
from hyscale_model.step.pipeline import structures

SYSTEMS = ("megatron", "megatron-best", "hyscale")
PEAK = 989e12
# Terms in which a layer appears by its kind.
OWN_TERMS = {
    "linear_attention": ("qwen4_exp",),
    "hyper_connections": ("qwen4_exp", "deepseek_v4"),
}


def numbers(value):
    """Every number in a JSON value."""
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def times(data, system="megatron"):
    return data["systems"][system]["time_s"]


def total(data, system="megatron"):
    return data["systems"][system]["step_time_s"]["nominal"]


@pytest.fixture(params=[1, 2], ids=["one stage", "two stages"])
def depth(request):
    return request.param


# Of every prediction -----------------------------------------------------------------------------------------


def test_terms_sum_to_the_step(predicted_model, model, depth):
    data = predicted_model(model, pp=depth)
    assert list(data["systems"]) == list(SYSTEMS)
    for system in data["systems"].values():
        assert sum(system["time_s"].values()) == pytest.approx(system["step_time_s"]["nominal"], rel=1e-9)
        assert set(system["time_s"]) == set(system["terms"]) <= set(TERMS)
        assert all(value > 0 for value in system["time_s"].values())
        assert 0 < system["model_flops_utilization"] < 1


def test_a_prediction_is_plain_finite_json(predicted_model, model):
    data = predicted_model(model, draws=8)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert all(math.isfinite(value) for value in numbers(data))


def test_intervals_hold_no_negative_time(predicted_model, model):
    for system in predicted_model(model, draws=8)["systems"].values():
        for row in system["terms"].values():
            assert 0 <= row["p10"] <= row["p50"] <= row["p90"]
        step = system["step_time_s"]
        assert 0 < step["p10"] <= step["p50"] <= step["p90"]


def test_no_term_is_faster_than_its_floor(predicted_model, model):
    for system in predicted_model(model)["systems"].values():
        for term, floor in system["floor_s"].items():
            assert system["time_s"][term] >= floor * (1 - 1e-12), term


def test_kinds_of_memory_sum_to_the_peak(predicted_model, model, depth):
    for system in predicted_model(model, pp=depth)["systems"].values():
        memory = system["memory"]
        assert len(memory["stages"]) == depth
        for stage in memory["stages"]:
            assert sum(stage["at_peak_bytes"].values()) == pytest.approx(stage["peak_bytes"], rel=1e-12)
            assert set(stage["at_peak_bytes"]) <= set(MEMORY_KINDS)
            assert all(size > 0 for size in stage["at_peak_bytes"].values())
        assert memory["peak_bytes"] == max(stage["peak_bytes"] for stage in memory["stages"])
        assert sum(memory["at_peak_bytes"].values()) == pytest.approx(memory["peak_bytes"], rel=1e-12)
        assert memory["at_peak_bytes"] == memory["stages"][memory["peak_stage"]]["at_peak_bytes"]


def counted(model, depth=1):
    """Parameters spread over expert ranks (experts and the n-gram table), and all others."""
    body = anatomy(model)
    experts = sum(
        body.feed_forward(ffn).experts * body.feed_forward(ffn).expert_parameters(body.hidden) for _, ffn in body.layers
    )
    whole = count_parameters(body)
    # The last stage multiplies by a copy of a tied embedding.
    copy = body.vocabulary * body.hidden if body.tied and depth > 1 else 0
    return experts + whole.table, whole.total - experts + copy


def of_stages(data, kind):
    return sum(stage["at_peak_bytes"][kind] for stage in data["systems"]["megatron"]["memory"]["stages"])


def test_weights_of_all_stages_are_the_model(predicted_model, model, depth):
    """Everything once, experts and n-gram tables over four ranks."""
    experts, others = counted(model, depth)
    held = of_stages(predicted_model(model, pp=depth), "parameters")
    assert held == pytest.approx(2 * (others + experts / 4), rel=1e-12)


def test_a_distributed_optimizer_holds_every_state_once(predicted_model, model, depth):
    """Over the GPUs of a stage."""
    states = of_stages(predicted_model(model, pp=depth), "optimizer") * 32 / depth
    assert states == pytest.approx(3 * 4 * sum(counted(model, depth)), rel=1e-12)


@pytest.mark.parametrize("system", SYSTEMS)
def test_longer_sequences_take_longer_and_more_memory(predicted_model, model, system):
    lengths = (32768, 65536, 131072, 262144)
    found = [predicted_model(model, f"workload.sequence_length={length}") for length in lengths]
    steps = np.array([total(data, system) for data in found])
    peaks = [data["systems"][system]["memory"]["peak_bytes"] for data in found]
    assert np.all(steps[1:] > steps[:-1])
    # Scores grow with the square, everything else with the length at most.
    assert np.all(steps[1:] < 4.05 * steps[:-1])
    assert peaks == sorted(set(peaks))


@pytest.mark.parametrize("field", ["cluster.gpu.bf16_flops", "cluster.gpu.hbm_bytes_per_s", "cluster.nic_gbit_per_gpu"])
def test_faster_hardware_is_never_slower(predicted_model, resolve_model, model, field):
    value = resolve_model(model).scenario.cluster
    for part in field.split(".")[1:]:
        value = getattr(value, part)
    slow, fast = (predicted_model(model, f"{field}={value * factor:.0f}") for factor in (1, 2))
    for system in SYSTEMS:
        assert total(fast, system) <= total(slow, system) == pytest.approx(total(predicted_model(model), system))


def test_hyscale_is_never_slower(predicted_model, model):
    data = predicted_model(model)
    # Equal steps are summed in another order.
    assert data["speedup"]["hyscale/megatron"]["nominal"] >= 1 - 1e-12
    assert times(data, "hyscale").get("selection_recompute", 0.0) <= times(data).get("selection_recompute", 0.0)


@pytest.mark.parametrize(("term", "types"), OWN_TERMS.items())
def test_terms_of_a_family_are_there_and_nowhere_else(predicted_model, model, term, types):
    assert (term in times(predicted_model(model))) == (model.model_type in types)


def test_without_recomputation_nothing_is_done_again(predicted_model, model):
    data = predicted_model(model, "training.recompute=none")
    for system in SYSTEMS:
        assert not {"selection_recompute", "sparse_attention_recompute"} & set(times(data, system))
        assert total(data, system) < total(predicted_model(model), system)


# Without an indexer ------------------------------------------------------------------------------------------


def test_nothing_is_selected_without_an_indexer(predicted_model, model_without_index, depth):
    data = predicted_model(model_without_index, pp=depth)
    for system in data["systems"].values():
        assert not {*SELECTION_TERMS, "index_loss", "index_projections"} & set(system["time_s"])
        assert system["selection_share_of_step"]["nominal"] == 0
        assert system["hytopk"] is None
        assert not {"score_table", "candidates", "selection_indices"} & set(system["memory"]["largest_bytes"])
        assert "dense_attention" in system["time_s"]


def test_systems_are_the_same_without_an_indexer(predicted_model, model_without_index, depth):
    data = predicted_model(model_without_index, pp=depth, draws=8)
    base = data["systems"]["megatron"]
    for name in SYSTEMS[1:]:
        other = data["systems"][name]
        assert other["time_s"] == pytest.approx(base["time_s"], rel=1e-12)
        assert other["step_time_s"] == pytest.approx(base["step_time_s"], rel=1e-12)
        assert other["memory"] == base["memory"]
        assert data["speedup"][f"{name}/megatron"] == pytest.approx(dict.fromkeys(("nominal", "p10", "p50", "p90"), 1))


# Shared indices ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_sharing_an_index_takes_21_of_78_selections(predicted_model, models, system):
    own, shared = (predicted_model(models[name], pp=1)["systems"][system] for name in ("glm-5.1", "glm-5.2"))
    assert shared["step_time_s"]["nominal"] < own["step_time_s"]["nominal"]
    terms = ("selection_forward", "index_projections", "index_loss", "selection_recompute")
    for term in terms if system != "megatron-best" else terms[:-1]:
        assert shared["time_s"][term] == pytest.approx(21 / 78 * own["time_s"][term], rel=1e-9), term
    for term in ("sparse_attention_forward", "sparse_attention_backward", "projections", "moe", "dense_ffn"):
        assert shared["time_s"][term] == pytest.approx(own["time_s"][term], rel=1e-9), term
    # Fewer index keys are gathered; layers that select nothing have nothing to hide their gather behind.
    gathers = [
        each["time_s"]["cp_communication_exposed"] + each["hidden_communication_s"].get("cp", 0.0)
        for each in (own, shared)
    ]
    assert gathers[1] < gathers[0]


@pytest.mark.parametrize("system", SYSTEMS)
def test_sharing_an_index_over_two_stages_selects_where_the_stage_does(predicted_model, models, system):
    """38 layers hold 11 that select (1, 2, 3, 7, ..., 35), 40 hold 10 (39, 43, ..., 75)."""
    own = predicted_model(models["glm-5.1"], "layout.stage_layers=[38, 40]")["systems"][system]
    shared = predicted_model(models["glm-5.2"])["systems"][system]
    selecting = (11, 10)[shared["critical_stage"]]
    layers = (38, 40)[own["critical_stage"]]
    ratio = shared["time_s"]["selection_forward"] / own["time_s"]["selection_forward"]
    assert ratio == pytest.approx(selecting / layers, rel=1e-9)
    assert shared["step_time_s"]["nominal"] < own["step_time_s"]["nominal"]


@pytest.mark.parametrize(("stages", "vpp"), [(2, 1), (4, 1), (2, 2)])
def test_stages_begin_on_a_layer_that_selects_where_none_are_given(resolve_model, models, stages, vpp):
    """39 + 39 layers would begin the second stage on layer 40, which shares the index of layer 39."""
    scenario = resolve_model(models["glm-5.2"]).scenario
    case = replace(scenario, layout=replace(scenario.layout, pp=stages, vpp=vpp, stage_layers=None))
    (structure,) = structures(case, Sizes.of(case), (1, 1))
    names = block_names(anatomy(case.model))
    own, shared = (structure.counts[:, names.index(f"{kind}.core")] for kind in ("dsa", "dsa_shared"))
    selecting, begin = selecting_layers(78, 4, 3), 1
    for layers in (own + shared).astype(int):
        assert begin in selecting
        begin += layers
    assert begin == 79
    assert own.sum() == 21


def test_less_sharing_costs_more(predicted_model, models):
    steps = []
    for frequency in (4, 3, 2, 1):
        shared = replace(models["glm-5.2"], name="variant", index_topk_freq=frequency)
        steps.append(total(predicted_model(shared, pp=1)))
    assert steps == sorted(set(steps))
    assert steps[-1] == pytest.approx(total(predicted_model(models["glm-5.1"], pp=1)), rel=1e-12)


# Hyper-connections -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro", "qwen3.8-flash-next"])
def test_hyper_connections_only_add(predicted_model, models, name, depth):
    field = "hc_count" if name.startswith("qwen") else "hc_mult"
    plain = predicted_model(replace(models[name], **{field: 1}), pp=depth)
    found = predicted_model(models[name], pp=depth)
    for system in SYSTEMS:
        without, with_streams = times(plain, system), times(found, system)
        assert "hyper_connections" not in without
        assert with_streams["hyper_connections"] > 0
        assert total(found, system) > total(plain, system)
        # Streams are sent between stages, and a longer stage makes a longer bubble.
        more = {"hyper_connections", "pp_communication_exposed", "pp_bubble"}
        for term, seconds in without.items():
            if term in more:
                assert with_streams.get(term, 0.0) >= seconds - 1e-9 * total(plain, system)
            elif plain["systems"][system]["critical_stage"] == found["systems"][system]["critical_stage"]:
                assert with_streams[term] == pytest.approx(seconds, rel=1e-9), term
        peaks = [each["systems"][system]["memory"]["peak_bytes"] for each in (plain, found)]
        assert peaks[0] < peaks[1]


def test_hyper_connections_move_streams_twice_a_layer(predicted_model, models):
    """Per token and block 4 h values are read and h written before it, 4 h and h read and 4 h written after it."""
    system = predicted_model(models["deepseek-v4-flash"], pp=1)["systems"]["megatron"]
    moved = 2 * 2 * (65536 / 4) * 4096 * (4 + 1 + 4 + 1 + 4)
    # One stage of 8 replicas runs one micro-batch through 43 layers: forward, recomputation, twice in backward.
    floor = 43 * 4 * moved / 3.35e12
    assert system["floor_s"]["hyper_connections"] == pytest.approx(floor, rel=1e-9)


# Floors by hand: one stage, 32 GPUs of 4 context ranks, so one micro-batch of 16,384 tokens a GPU -----------------

TOKENS, LENGTH = 16384, 65536
# Forward, recomputation, and 2.5 times that in backward.
PASSES = 4.5


def floor(predicted_model, model, term, system="megatron"):
    return predicted_model(model, pp=1)["systems"][system]["floor_s"][term]


@pytest.mark.parametrize(
    ("name", "layers", "widths"),
    [
        ("llama-3-8b", 32, 32 * (128 + 128)),
        ("qwen3-30b-a3b", 48, 32 * (128 + 128)),
        ("gpt-22b", 48, 64 * (96 + 96)),
        ("deepseek-v3", 61, 128 * (192 + 128)),
    ],
)
def test_dense_attention_meets_every_earlier_key(predicted_model, models, name, layers, widths):
    products = layers * PASSES * 2 * TOKENS * (LENGTH + 1) / 2 * widths / PEAK
    assert floor(predicted_model, models[name], "dense_attention") == pytest.approx(products, rel=1e-9)


def test_csa_scores_compressed_keys(predicted_model, models):
    """21 layers, 64 heads of 128, a quarter of the keys; HyTopK adds its samples."""
    entries = LENGTH / 4
    scores = 21 * 2 * TOKENS * ((entries - 1) / 2 + 1 / 4) * 64 * 128 / PEAK
    found = floor(predicted_model, models["deepseek-v4-flash"], "selection_forward", "hyscale")
    samples = 21 * 2 * TOKENS * 4096 * 64 * 128 / PEAK
    assert scores <= found <= 1.05 * (scores + samples)


def test_qsa_scores_blocks_with_four_heads(predicted_model, models):
    """A score table of a quarter of the keys is written once and read once, and binds: 4 heads are few products."""
    system = predicted_model(models["qwen3.8-flash-next"], pp=1)["systems"]["megatron"]
    entries = LENGTH / 4
    products = 12 * 2 * TOKENS * ((entries - 1) / 2 + 1 / 4) * 4 * 128 / PEAK
    table = 12 * 4 * TOKENS * (((entries - 1) / 2 + 1 / 4) + entries) / 3.35e12
    assert products < table <= system["floor_s"]["selection_forward"] <= 2 * table
    assert system["memory"]["per_layer_bytes"]["score_table"] == 8192 * entries * 4


def test_heavily_compressed_and_window_layers_attend_densely(predicted_model, models):
    """V4-Flash: 20 layers of (entries, window) and 2 of the window alone, 64 heads of 512 + 512; bytes bind windows."""
    window = 128 - 128 * 127 / 2 / LENGTH
    entries = (LENGTH / 128 - 1) / 2 + 1 / 128
    products = PASSES * 2 * TOKENS * 64 * 1024 * (20 * (entries + window) + 2 * window) / PEAK
    found = floor(predicted_model, models["deepseek-v4-flash"], "dense_attention")
    assert products <= found <= 2 * products


# What is left out ----------------------------------------------------------------------------------------------


def test_the_n_gram_table_takes_memory(predicted_model, models):
    model = models["qwen3.8-flash-next"]
    bare = replace(model, ple=None)
    peaks = [predicted_model(each)["systems"]["megatron"]["memory"]["peak_bytes"] for each in (bare, model)]
    assert peaks[0] < peaks[1]


def test_the_last_stage_of_a_tied_model_holds_the_embedding_too(predicted_model, models):
    stages = predicted_model(models["gpt-22b"])["systems"]["megatron"]["memory"]["stages"]
    layers = 24 * (12 * 6144**2 + 13 * 6144)
    assert stages[1]["at_peak_bytes"]["parameters"] >= 2 * (layers + 51200 * 6144)


def test_a_shared_selection_is_kept_until_the_first_layer_that_uses_it_is_recomputed(predicted_model, models):
    """Backward recomputes layers 6, 5, 4 before layer 3, whose 2,048 indices a query they read."""
    found = predicted_model(models["glm-5.2"], pp=1)["systems"]["megatron"]["memory"]
    # 19 of 21 selections serve later layers too.
    assert found["largest_bytes"]["selection_indices"] >= 19 * TOKENS * 2048 * 4
