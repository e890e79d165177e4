"""Which kinds of layers stand where, and what one token at the end of a million meets in them."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.families import anatomy, count_parameters, keys_at, token_flops
from hyscale_model.families.tokens import attended
from hyscale_model.scenario.stages import selecting_layers

LENGTH = 1048576


def numbers(body, *kinds):
    """0-based numbers of the layers of some kinds."""
    return [number for number, (kind, _) in enumerate(body.layers) if kind in kinds]


# Kinds of layers ---------------------------------------------------------------------------------------------


def test_glm_5_1_selects_in_every_layer(bodies):
    assert numbers(bodies["glm-5.1"], "dsa") == list(range(78))


def test_glm_5_2_selects_in_the_published_layers(bodies):
    published = [1, 2, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63, 67, 71, 75]
    body = bodies["glm-5.2"]
    assert [number + 1 for number in numbers(body, "dsa")] == published
    assert len(numbers(body, "dsa_shared")) == 57


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("frequency", [1, 2, 3, 4])
def test_the_layers_that_select_are_those_that_the_layout_is_checked_with(models, frequency, offset):
    body = anatomy(replace(models["glm-5.1"], index_topk_freq=frequency, index_skip_topk_offset=offset))
    assert tuple(number + 1 for number in numbers(body, "dsa")) == selecting_layers(78, frequency, offset)
    # The first layer has nothing to reuse.
    assert numbers(body, "dsa")[0] == 0


def test_v4_flash_alternates_after_two_windows(bodies):
    body = bodies["deepseek-v4-flash"]
    assert numbers(body, "swa") == [0, 1]
    assert numbers(body, "csa") == list(range(2, 43, 2))
    assert numbers(body, "hca") == list(range(3, 42, 2))


def test_v4_pro_begins_with_heavy_compression(bodies):
    body = bodies["deepseek-v4-pro"]
    assert numbers(body, "csa") == list(range(2, 61, 2))
    assert numbers(body, "hca") == [0, *range(1, 60, 2)]
    assert len(numbers(body, "csa")) == 30
    assert len(numbers(body, "hca")) == 31
    assert not numbers(body, "swa")


def test_the_ratio_of_the_prediction_layer_is_no_layer(models):
    model = models["deepseek-v4-flash"]
    without = replace(model, compress_ratios=model.compress_ratios[:-1])
    assert asdict(anatomy(without)) == asdict(anatomy(model))


def test_qwen_3_8_selects_in_every_fourth_layer(bodies):
    body = bodies["qwen3.8-flash-next"]
    assert numbers(body, "qsa") == list(range(3, 48, 4))
    assert len(numbers(body, "gdn")) == 36


@pytest.mark.parametrize("name", ["glm-5.1", "glm-5.2", "deepseek-v3", "deepseek-v3.2"])
def test_the_first_three_layers_are_dense(bodies, name):
    assert [number for number, (_, ffn) in enumerate(bodies[name].layers) if ffn == "dense_ffn"] == [0, 1, 2]


# The last token of a million ---------------------------------------------------------------------------------

# Of one layer of a kind at position 1,048,576: keys scored, keys attended.
KEYS = {
    ("glm-5.1", "dsa"): (1048576, 2048),
    ("glm-5.2", "dsa"): (1048576, 2048),
    ("glm-5.2", "dsa_shared"): (0, 2048),
    ("deepseek-v3.2", "dsa"): (1048576, 2048),
    ("deepseek-v4-flash", "swa"): (0, 128),
    ("deepseek-v4-flash", "csa"): (262144, 512 + 128),
    ("deepseek-v4-flash", "hca"): (0, 8192 + 128),
    ("deepseek-v4-pro", "csa"): (262144, 1024 + 128),
    ("deepseek-v4-pro", "hca"): (0, 8192 + 128),
    ("qwen3.8-flash-next", "qsa"): (262144, 2048 + 3),
    ("qwen3.8-flash-next", "gdn"): (0, 0),
    ("deepseek-v3", "mla"): (0, 1048576),
    ("llama-3-8b", "gqa"): (0, 1048576),
    ("gpt-22b", "mha"): (0, 1048576),
}


@pytest.mark.parametrize(("name", "kind"), KEYS)
def test_keys_that_the_last_token_scores_and_attends_to(bodies, name, kind):
    body = bodies[name]
    scored, met = KEYS[name, kind]
    attention = body.attention(kind)
    assert (LENGTH // attention.index.ratio if attention.index else 0) == scored
    assert attended(attention.core, LENGTH) == met
    one_layer = replace(body, layers=((kind, body.layers[-1][1]),))
    assert keys_at(one_layer, LENGTH) == {"scored": scored, "attended": met}


# name -> (rounded active parameters, layers x index heads x width x scored keys, FLOP a key x keys, total in GFLOP)
LAST_TOKEN = {
    "glm-5.1": (40e9, 78 * 32 * 128 * LENGTH, 78 * 64 * (2 * 512 + 64) * 2048, 772),
    "glm-5.2": (40e9, 21 * 32 * 128 * LENGTH, 78 * 64 * (2 * 512 + 64) * 2048, 283),
    "deepseek-v3.2": (37e9, 61 * 64 * 128 * LENGTH, 61 * 128 * (2 * 512 + 64) * 2048, 1157),
    "deepseek-v4-flash": (
        13e9,
        21 * 64 * 128 * LENGTH // 4,
        64 * 2 * 512 * (21 * 640 + 20 * 8320 + 2 * 128),
        140,
    ),
    "deepseek-v4-pro": (49e9, 30 * 64 * 128 * LENGTH // 4, 128 * 2 * 512 * (30 * 1152 + 31 * 8320), 304),
}


@pytest.mark.parametrize("name", LAST_TOKEN)
def test_flops_of_the_last_token_of_a_million(bodies, name):
    active, scores, attention, total = LAST_TOKEN[name]
    flops = token_flops(bodies[name], LENGTH, active)
    assert flops.weights == 2 * active
    assert flops.scores == 2 * scores
    assert flops.attention == 2 * attention
    assert flops.total == flops.weights + flops.scores + flops.attention
    assert round(flops.total / 1e9) == total


def test_ratios_of_the_last_token_are_the_stated_ones(bodies):
    """V4-Pro 26 % and V4-Flash 12 % of V3.2; sharing one index over four layers saves 2.73 times."""
    total = {name: token_flops(bodies[name], LENGTH, row[0]).total for name, row in LAST_TOKEN.items()}
    assert total["deepseek-v4-pro"] / total["deepseek-v3.2"] == pytest.approx(0.26, abs=0.005)
    assert total["deepseek-v4-flash"] / total["deepseek-v3.2"] == pytest.approx(0.12, abs=0.005)
    assert total["glm-5.1"] / total["glm-5.2"] == pytest.approx(2.73, abs=0.005)


def test_a_gated_delta_rule_costs_every_token_the_same(bodies):
    """State read, state update and products inside a chunk: 6 FLOP a value of the state, 48 heads of 128 x 128."""
    body = bodies["qwen3.8-flash-next"]
    linear = replace(body, layers=tuple(layer for layer in body.layers if layer[0] == "gdn"))
    for position in (1, 1000, LENGTH):
        assert token_flops(linear, position).attention == 36 * 6 * 48 * 128 * 128
        assert token_flops(linear, position).scores == 0


def test_a_qsa_layer_equals_dense_attention_up_to_its_budget(bodies):
    """Up to 2,051 tokens every block is selected and the unfinished one attended to."""
    core = bodies["qwen3.8-flash-next"].attention("qsa").core
    for position in (1, 3, 2047, 2048, 2051):
        assert position <= attended(core, position) <= position + 3


@given(position=st.integers(1, 2_000_000))
def test_no_token_meets_more_keys_than_there_are(bodies, position):
    for name, body in bodies.items():
        for each in body.attentions:
            # Compressed entries stand beside the raw tokens of the window, and QSA's tail beside its blocks.
            assert 0 <= attended(each.core, position) <= position + max(each.core.window, 0), name
            if each.core.form == "sparse":
                assert attended(each.core, position) <= each.core.topk * each.core.entry_tokens + each.core.window


def test_a_later_token_never_costs_less(bodies):
    for body in bodies.values():
        totals = [token_flops(body, position).total for position in (1, 100, 2048, 4096, 131072, LENGTH)]
        assert totals == sorted(totals)


def test_weights_without_a_given_number_are_those_counted(bodies):
    for body in bodies.values():
        counted = count_parameters(body)
        # The embedding is looked up; the head is multiplied by, tied to it or not.
        head = body.vocabulary * body.hidden if body.tied else 0
        assert token_flops(body, 1).weights == 2 * (counted.active - counted.embedding + head)


def test_a_tied_head_is_multiplied_like_any_other(models):
    tied, untied = (
        token_flops(anatomy(replace(models["gpt-22b"], tie_word_embeddings=tie)), 2048).weights for tie in (True, False)
    )
    assert tied == pytest.approx(untied, rel=1e-6)


def test_keys_grow_by_one_entry_at_a_time(bodies):
    for body in bodies.values():
        for each in body.attentions:
            met = np.array([attended(each.core, position) for position in range(1, 6000)])
            assert np.all(np.diff(met) >= 0)
            assert np.all(np.diff(met) <= each.core.entry_tokens + 1)
