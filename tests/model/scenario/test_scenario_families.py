"""Messages speak of the family a model is of, and its sizes must fit together as that family needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.fields import families
from hyscale_model.scenario.models import layer_kinds

CONFIGS = Path(__file__).parents[1] / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))


@pytest.fixture
def read(tmp_path: Path, base_text: str):
    """Reads the base scenario with the model of a configuration, on a layout without experts where it has none."""

    def _read(name: str, *overrides: str, tail: str = ""):
        text = base_text.replace("model: glm-5.1", f"model: {{hf_config: {CONFIGS / name}.json}}")
        if name in ("llama", "gpt2"):
            text = text.replace("ep: 128", "ep: 1")
        if name == "gpt2":
            text = text.replace("cp: 128", "cp: 4").replace("batch_size: 4", "batch_size: 128")
        path = tmp_path / "scenario.yaml"
        path.write_text(f"{text}\n{tail}\n")
        return read_scenario(path, overrides=overrides)

    return _read


@pytest.mark.parametrize("name", NAMES)
def test_each_family_is_read(read, name: str) -> None:
    assert read(name).scenario.model.model_type in families()


# model, overrides, field, words of the problem, words of the remedy
REFUSED = [
    ("llama", ["layout.ep=2"], "layout.ep", "has no experts", "1"),
    ("gpt2", ["layout.etp=2"], "layout.etp", "has no experts", "1"),
    ("gpt2", ["layout.tp=4"], "layout.tp", "25 attention heads", "divisor of 25"),
    ("llama", ["layout.tp=8", "layout.cp=16", "model.num_attention_heads=60"], "model.num_key_value_heads", "60", "60"),
    ("llama", ["layout.tp=8", "layout.cp=16", "model.num_attention_heads=48", "model.num_key_value_heads=6"],
     "layout.tp", "neither divides the 6 key-value heads", "multiple of 6"),
    ("qwen3_moe", ["model.num_experts=96"], "layout.ep", "96 routed experts", "divisor of 96"),
    ("qwen3_moe", ["model.num_experts_per_tok=200"], "model.num_experts_per_tok", "200 experts a token", "128"),
    ("qwen4_exp", ["layout.tp=8", "layout.cp=16", "model.linear_num_key_heads=12"], "layout.tp", "12 key heads", "12"),
    ("qwen4_exp", ["model.full_attention_interval=49"], "model.full_attention_interval", "49 layers", "at most 48"),
    ("qwen4_exp", ["model.indexer_budget=2097152"], "model.indexer_budget", "2097152 selected keys", "1048576"),
    ("qwen4_exp", ["model.indexer_budget=2046"], "model.indexer_budget", "no whole number", "multiple of"),
    ("qwen4_exp", ["model.ple.layer_ids=[49]"], "model.ple", "layer 49", "at most 48"),
    ("deepseek_v4", ["model.num_hidden_layers=40"], "model.compress_ratios", "44 compression ratios for 40", "41 with"),
    ("deepseek_v4", ["model.num_hidden_layers=2", "model.compress_ratios=[4, 96]", "layout.pp=1", "layout.vpp=1",
                     "layout.schedule=1f1b"], "model.compress_ratios", "ratio 96 of layer 1", "4 or 128"),
    ("deepseek_v4", ["model.index_topk=262145"], "model.index_topk", "1048576 / 4 = 262144", "at most 262144"),
    ("deepseek_v4", ["layout.tp=8", "layout.cp=16", "model.o_groups=12"], "layout.tp", "12 groups", "divisor of 12"),
    ("deepseek_v3", ["model.first_k_dense_replace=62"], "model.first_k_dense_replace", "62 dense layers", "at most 61"),
    ("glm_moe_dsa", ["layout.stage_layers=[10,10,10,10,10,10,9,9]"], "layout.stage_layers",
     "virtual stage 2 begins on layer 21", "[10, "),
    ("glm_moe_dsa", ["layout.stage_layers=[20,20,20,18]"], "layout.stage_layers", "virtual stage 2 begins", "[10, "),
    ("glm_moe_dsa", ["layout.vpp=6"], "layout.vpp", "24 stages cannot each begin on one of the 21", "at most 21"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "overrides", "field", "problem", "expected"), REFUSED)
def test_sizes_that_do_not_fit(read, name: str, overrides: list[str], field: str, problem: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read(name, *overrides)
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert expected in (caught.value.expected or "")
    assert len(str(caught.value)) < 900


def test_the_split_of_the_message_works(read) -> None:
    with pytest.raises(InputError) as caught:
        read("glm_moe_dsa", "layout.stage_layers=[10,10,10,10,10,10,9,9]")
    assert caught.value.expected is not None
    split = json.loads(caught.value.expected.partition(": ")[2])
    assert read("glm_moe_dsa", f"layout.stage_layers={split}").scenario.layout.stage_layers == tuple(split)


def test_the_entry_of_a_prediction_layer_is_no_layer(read) -> None:
    model = read("deepseek_v4").scenario.model
    assert len(model.compress_ratios) == 44
    assert len(model.layer_ratios) == 43


KINDS = {
    "glm_moe_dsa": {"dsa"}, "deepseek_v32": {"dsa"}, "deepseek_v3": {"mla"}, "deepseek_v4": {"swa", "csa", "hca"},
    "qwen4_exp": {"qsa", "gdn"}, "qwen3_moe": {"gqa"}, "llama": {"gqa"}, "gpt2": {"mha"},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_names_a_layer_the_model_has(read, name: str) -> None:
    model = read(name).scenario.model
    assert set(layer_kinds(model)) == KINDS[name]
    for kind in KINDS[name]:
        assert read(name, tail=f"scope: {{layer: {kind}}}").scenario.scope.layer == kind
    with pytest.raises(InputError) as caught:
        read(name, tail="scope: {layer: nothing}")
    assert (caught.value.field, caught.value.line) == ("scope.layer", 11)
    assert all(kind in (caught.value.expected or "") for kind in KINDS[name])


# model, new text after the scenario, overrides, field, words of what is expected, words that are not
MESSAGES = [
    ("llama", "", ["model.index_topk=5"], "model.index_topk", "num_hidden_layers", "index_topk (one"),
    ("llama", "sweep: {model.index_topk: [5]}", [], "sweep.model.index_topk", "num_key_value_heads", "n_routed"),
    ("qwen4_exp", "sweep: {model.num_expert: [5]}", [], "sweep.model.num_expert", "model.num_experts", "index_topk"),
    ("gpt2", "assumptions: [{path: model.hc_mult, choices: [1], reason: r}]", [], "assumptions.0.path", "one of", "hc"),
    ("llama", "scope: {layr: csa}", [], "scope.layr", "layer", "pydantic"),
    ("llama", "scope: {layer: gqa, include: [attention, loss]}", [], "scope.include.1", "ffn", "step"),
    ("llama", "scope: {layer: gqa, include: []}", [], "scope.include", "not empty", "step"),
    ("llama", "scope: [step]", [], "scope", "step or a mapping with layer, include", "literal"),
    ("llama", "", ["model.head_dim=x"], "model.head_dim", "whole number", "llama"),
]


@pytest.mark.parametrize(("name", "tail", "overrides", "field", "expected", "absent"), MESSAGES)
def test_messages_speak_of_the_field(
    read, name: str, tail: str, overrides: list[str], field: str, expected: str, absent: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(name, *overrides, tail=tail)
    assert caught.value.field == field
    assert expected in (caught.value.expected or "")
    assert absent not in (caught.value.expected or "")
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize(
    ("model", "field", "problem", "expected"),
    [
        ("{name: x}", "model.model_type", "model_type is missing", "qwen4_exp"),
        ("{modeltype: llama}", "model.model_type", "unknown key 'modeltype'", "llama"),
        ("{model_type: bert}", "model.model_type", "no family text 'bert'", "gpt"),
        ("{model_type: [1]}", "model.model_type", "no family", "gpt"),
        ("{model_type: lama}", "model.model_type", "no family", "llama (one of"),
        ("{extends: glm-5.1, num_experts: 4}", "model.num_experts", "unknown key", "n_routed_experts"),
        ("{extends: glm-5.1, num_hidden_layers: 4000}", "model.num_hidden_layers", "4000", "at most 2000"),
    ],
)
def test_the_family_is_named(base_text: str, model: str, field: str, problem: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_scenario("x.yaml", text=base_text.replace("model: glm-5.1", f"model: {model}"))
    assert (caught.value.field, caught.value.line) == (field, 4)
    assert problem in caught.value.problem
    assert expected in (caught.value.expected or "")
    assert len(str(caught.value)) < 900


def test_fields_of_a_catalogue_model_may_change(base_text: str) -> None:
    model = "{extends: glm-5.1, num_hidden_layers: 40}"
    scenario = read_scenario("x.yaml", text=base_text.replace("model: glm-5.1", f"model: {model}")).scenario
    assert (scenario.model.num_hidden_layers, scenario.model.model_type) == (40, "glm_moe_dsa")
