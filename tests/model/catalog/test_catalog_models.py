from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hyscale_model import catalog
from hyscale_model.families import anatomy, count_parameters
from hyscale_model.scenario.convert import model_adapter
from hyscale_model.scenario.models import DeepseekV4, Gpt, Model, Qwen4, SparseLatentModel

MODELS = catalog.names("models")


def fields(name: str) -> dict[str, Any]:
    entry = catalog.entry("models", name)
    base = fields(entry.extends) if entry.extends else {}
    return {**base, **entry.values}


def model(name: str) -> Model:
    return model_adapter().validate_python({**fields(name), "name": name})


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_of_the_schema(name: str) -> None:
    assert model(name).name == name
    assert "tie_word_embeddings" in fields(name)


def test_the_models_the_tool_is_for_are_there() -> None:
    assert set(MODELS) >= {
        *("glm-5", "glm-5.1", "glm-5.2", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro"),
        *("qwen3.8-flash-next", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-8b"),
        *("llama-3-8b", "llama-3-70b", "llama-3-405b", "gpt-22b", "gpt-175b", "gpt-530b", "gpt-1t"),
    }


@pytest.mark.parametrize(
    ("name", "windows", "csa", "hca"), [("deepseek-v4-flash", 2, 21, 20), ("deepseek-v4-pro", 0, 30, 31)]
)
def test_compression_is_given_for_every_layer_but_not_for_multi_token_prediction(
    name: str, windows: int, csa: int, hca: int
) -> None:
    v4 = model(name)
    assert isinstance(v4, DeepseekV4)
    assert len(v4.compress_ratios) == v4.num_hidden_layers
    expected = {ratio: number for ratio, number in {0: windows, 4: csa, 128: hca}.items() if number}
    assert Counter(v4.compress_ratios) == expected
    assert v4.compress_ratios[-1] == 4


def test_glm_5_2_shares_indexers() -> None:
    shared, own = model("glm-5.2"), model("glm-5.1")
    assert isinstance(shared, SparseLatentModel)
    assert isinstance(own, SparseLatentModel)
    assert (shared.index_topk_freq, shared.index_skip_topk_offset) == (4, 3)
    assert (own.index_topk_freq, own.index_skip_topk_offset) == (1, 0)


def test_the_n_gram_table_has_51_billion_values() -> None:
    qwen = model("qwen3.8-flash-next")
    assert isinstance(qwen, Qwen4)
    assert qwen.ple is not None
    assert qwen.ple.rows * qwen.ple.row_width == pytest.approx(51.2e9, rel=1e-3)
    heads = qwen.ple.heads_per_ngram * (qwen.ple.ngram_size - 1)
    assert heads * qwen.ple.row_width == qwen.ple.embed_dim


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("gpt-")])
def test_gpt_is_four_times_as_wide_inside(name: str) -> None:
    gpt = model(name)
    assert isinstance(gpt, Gpt)
    assert gpt.intermediate_size == 4 * gpt.hidden_size
    assert gpt.hidden_size % gpt.num_attention_heads == 0


@pytest.mark.parametrize("name", [name for name in MODELS if "published_parameters" in fields(name)])
def test_parameters_are_those_that_were_published(name: str) -> None:
    built = model(name)
    counted = count_parameters(anatomy(built))
    # Published sizes are rounded: 1.6T is 1.573T.
    assert counted.total == pytest.approx(built.published_parameters, rel=0.02)
    if built.published_active_parameters:
        # Some count the embedding and the output head as active, some neither.
        outside = 2 * counted.embedding
        assert counted.active - outside <= 1.02 * built.published_active_parameters
        assert counted.active >= 0.98 * built.published_active_parameters
