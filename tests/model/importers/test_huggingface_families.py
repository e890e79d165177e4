"""Each family's configuration becomes a scenario that says the same model, and names what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hyscale_model.errors import InputError
from hyscale_model.importers import read_config
from hyscale_model.importers.complete import complete
from hyscale_model.importers.write import mapping, scenario_text
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.json"))


LAYER_TYPES = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]


def config(name: str, **changes: Any) -> dict[str, Any]:
    path = next(path for path in CONFIGS if path.stem == name)
    return {**json.loads(path.read_text()), **changes}


@pytest.fixture
def imported(tmp_path: Path):
    def read(name: str, **changes: Any):
        path = tmp_path / "config.json"
        values = {key: value for key, value in config(name, **changes).items() if value is not ...}
        path.write_text(json.dumps(values))
        return read_config(path)

    return read


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_round_trip(path: Path, tmp_path: Path) -> None:
    full = complete(read_config(path))
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(scenario_text(full))
    resolved = read_scenario(scenario)
    for section in ("model", "layout", "workload", "training"):
        for name, value in full.values(section).items():
            found = getattr(getattr(resolved.scenario, section), name)
            if isinstance(value, dict):
                value, found = value, {key: getattr(found, key) for key in value}
                found = {key: list(item) if isinstance(item, tuple) else item for key, item in found.items()}
            assert (list(found) if isinstance(found, tuple) else found) == value, name
    selects = hasattr(resolved.scenario.model, "index_topk") or hasattr(resolved.scenario.model, "indexer_budget")
    assert len(resolved.scenario.systems) == (3 if selects else 1)
    assert set(mapping(full)["fields"]) >= {"model.num_hidden_layers", "cluster.nodes"}


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_what_is_left_out_is_named(path: Path) -> None:
    names = {note.name for note in read_config(path).not_expressed}
    predicted = {"mtp_num_hidden_layers", "quantization_config", "vision_config"}
    assert names == {key for key in _keys(json.loads(path.read_text())) if key in predicted}


def _keys(values: dict[str, Any]) -> set[str]:
    return set(values) | (_keys(values["text_config"]) if "text_config" in values else set())


def test_an_unknown_field_is_named(imported) -> None:
    notes = [str(note) for note in imported("llama", engram_rows=7, cross_layer_cache=[1] * 50).not_expressed]
    assert notes == [
        "engram_rows = 7: not expressed",
        "cross_layer_cache = [1, 1, 1, 1, ... 50 entries]: not expressed",
    ]


def test_a_switch_that_is_off_says_nothing(imported) -> None:
    assert not imported("llama", engram_rows=0, mlp_bias=False, sliding_window=None).not_expressed
    assert not imported("llama", use_sliding_window=False, sliding_window=4096).not_expressed
    (note,) = imported("llama", model_type="mistral", sliding_window=4096).not_expressed
    assert note.name == "sliding_window"
    (note,) = imported("qwen3_moe", mlp_only_layers=[0, 1]).not_expressed
    assert note.name == "mlp_only_layers"


def test_gpt2_has_names_and_widths_of_its_own(imported) -> None:
    assert imported("gpt2").values("model") == {
        "name": imported("gpt2").values("model")["name"],
        "model_type": "gpt",
        "vocab_size": 50257,
        "hidden_size": 1600,
        "num_hidden_layers": 48,
        "num_attention_heads": 25,
        "tie_word_embeddings": True,
        "intermediate_size": 6400,
        "max_position_embeddings": 1024,
        "resid_pdrop": 0.1,
    }


@pytest.mark.parametrize(
    ("name", "changes", "field", "value"),
    [
        ("llama", {"model_type": "mistral", "num_key_value_heads": ...}, "num_key_value_heads", 8),
        ("llama", {"num_key_value_heads": ...}, "num_key_value_heads", 64),
        ("llama", {"model_type": "qwen3"}, "head_dim", 128),
        ("qwen3_moe", {"head_dim": ...}, "head_dim", 64),
        ("qwen3_moe", {"model_type": "mixtral", "num_local_experts": 8, "num_experts": ...,
                       "moe_intermediate_size": ..., "intermediate_size": 14336}, "moe_intermediate_size", 14336),
        ("deepseek_v4", {"hc_mult": ...}, "hc_mult", 4),
        ("deepseek_v4", {"compress_ratios": ..., "layer_types": LAYER_TYPES}, "compress_ratios", [0, 4, 128]),
        ("deepseek_v32", {"first_k_dense_replace": ..., "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 59},
         "first_k_dense_replace", 2),
        ("glm_moe_dsa", {"index_skip_topk_offset": ...}, "index_skip_topk_offset", 2),
        ("deepseek_v3", {"model_type": "deepseek_v2"}, "model_type", "deepseek_v3"),
    ],
)  # fmt: skip
def test_what_follows_from_other_fields(imported, name: str, changes: dict[str, Any], field: str, value: Any) -> None:
    assert imported(name, **changes).values("model")[field] == value


def test_the_list_of_indexers_gives_period_and_offset(imported) -> None:
    full = [1, 2, 3, *range(7, 79, 4)]
    kinds = ["full" if layer in full else "shared" for layer in range(1, 79)]
    changes = {"index_topk_freq": ..., "index_skip_topk_offset": ..., "num_nextn_predict_layers": ...}
    found = imported("glm_moe_dsa", indexer_types=kinds, **changes)
    assert (found.values("model")["index_topk_freq"], found.values("model")["index_skip_topk_offset"]) == (4, 3)
    assert not found.not_expressed
    odd = imported("glm_moe_dsa", indexer_types=["full", "shared", "full", "full"] + ["shared"] * 74, **changes)
    assert [note.name for note in odd.not_expressed] == ["indexer_types"]


def test_a_list_of_layers_decides_and_what_contradicts_it_is_named(imported) -> None:
    kinds = ["linear_attention", "linear_attention", "full_attention"] * 16
    text = config("qwen4_exp")["text_config"]
    found = imported("qwen4_exp", text_config={**text, "layer_types": kinds})
    assert found.values("model")["full_attention_interval"] == 3
    assert "full_attention_interval = 4: layer_types says 3, taken" in map(str, found.not_expressed)
    dense = imported("deepseek_v3", mlp_layer_types=["dense"] + ["sparse"] * 60, first_k_dense_replace=3)
    assert dense.values("model")["first_k_dense_replace"] == 1
    assert "first_k_dense_replace = 3: mlp_layer_types says 1, taken" in map(str, dense.not_expressed)


def test_a_list_of_indexers_that_says_the_same_is_no_contradiction(imported) -> None:
    full = [1, 2, 3, *range(7, 79, 4)]
    kinds = ["full" if layer in full else "shared" for layer in range(1, 79)]
    found = imported("glm_moe_dsa", indexer_types=kinds, index_topk_freq=4, index_skip_topk_offset=3)
    assert not [note for note in found.not_expressed if "index" in note.name]
    other = imported("glm_moe_dsa", indexer_types=["full"] * 78, index_topk_freq=4, index_skip_topk_offset=3)
    assert other.values("model")["index_topk_freq"] == 1
    assert "index_topk_freq = 4: indexer_types says 1, taken" in map(str, other.not_expressed)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": 3072, "hidden_size": 4096}')
    with pytest.raises(InputError, match="the key hidden_size is given twice"):
        read_config(path)


def test_a_file_with_a_name_of_its_own_names_the_model(tmp_path: Path) -> None:
    for name, expected in (("mine-7b.json", "mine-7b"), ("config.json", tmp_path.name)):
        (tmp_path / name).write_text(json.dumps(config("llama")))
        assert read_config(tmp_path / name).values("model")["name"] == expected


def test_the_ngram_table_is_that_of_the_model(imported) -> None:
    table = imported("qwen4_exp").values("model")["ple"]
    assert (table["rows"], table["row_width"]) == (320001536, 160)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("qwen3_moe", {"model_type": "qwen3_next"}, "read as qwen4_exp, but linear_num_key_heads"),
        ("deepseek_v3", {"model_type": "deepseek_v2", "q_lora_rank": None}, "q_lora_rank is missing"),
        ("llama", {"model_type": "bert"}, "'bert' is not supported"),
        ("llama", {"hidden_size": ...}, "hidden_size is missing"),
        ("llama", {"hidden_size": ..., "vocab_size": ...}, "vocab_size, hidden_size are missing"),
        ("gpt2", {"n_embd": "x"}, "n_embd is text 'x'"),
    ],
)
def test_what_is_no_family_is_refused(imported, name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        imported(name, **changes)
    message = str(caught.value)
    assert words in message
    assert len(message) < 900


def test_a_scenario_tells_what_its_model_file_does_not_express(tmp_path: Path) -> None:
    quantized = config("glm_moe_dsa") | {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(quantized))
    base = (Path(__file__).parents[1] / "scenario" / "base.yaml").read_text()
    (tmp_path / "s.yaml").write_text(base.replace("model: glm-5.1", "model: {hf_config: config.json}"))
    (note,) = read_scenario(tmp_path / "s.yaml").notes
    assert "quantization_config" in note


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_an_import_can_be_predicted(path: Path) -> None:
    resolved = read_scenario("x.yaml", text=scenario_text(complete(read_config(path))))
    data = predict(resolved, draws=0).data
    assert all(system["step_time_s"]["nominal"] > 0 for system in data["systems"].values())
