from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.importers import model_fields
from hyscale_model.scenario import read_scenario


@pytest.fixture
def config(tmp_path: Path) -> Path:
    values = {**catalog.entry("models", "glm-5.1").values, "torch_dtype": "bfloat16", "rope_scaling": {"factor": 1}}
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**values, "index_topk": 1024}))
    return folder / "config.json"


def test_fields_come_from_the_file(config: Path, base: Path) -> None:
    scenario = config.parents[1] / "scenario.yaml"
    text = base.read_text()
    scenario.write_text(text.replace("model: glm-5.1", "model: {hf_config: my-model/config.json, v_head_dim: 128}"))
    resolved = read_scenario(scenario)
    model = resolved.scenario.model
    assert (model.name, model.index_topk, model.v_head_dim) == ("my-model", 1024, 128)
    assert resolved.origins["model.index_topk"].detail == str(config)
    assert resolved.origins["model.v_head_dim"].detail == f"{scenario}:4"
    assert model_fields(config.parent) == model_fields(config)


@pytest.mark.parametrize(
    ("content", "problem", "expected"),
    [
        ('{"model_type": "bert"}', "'bert' is not supported", "glm_moe_dsa"),
        ("{}", "no model_type", "glm_moe_dsa"),
        ('{"model_type": [1]}', "not supported", "glm_moe_dsa"),
        ('{"model_type": "glm_moe_dsa"}', "index_topk are missing", "every field"),
        ("[1]", "a list", "JSON object"),
        ("{", "not JSON", "JSON object"),
        ("[" * 100_000, "not JSON", "JSON object"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON", "JSON object"),
    ],
)
def test_other_files_are_refused(config: Path, base: Path, content: str, problem: str, expected: str) -> None:
    config.write_text(content)
    with pytest.raises(InputError) as caught:
        model_fields(config)
    assert caught.value.file == str(config)
    scenario = config.parent / "scenario.yaml"
    scenario.write_text(base.read_text().replace("model: glm-5.1", "model: {hf_config: config.json}"))
    with pytest.raises(InputError) as caught:
        read_scenario(scenario)
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(scenario), 4, "model.hf_config")
    assert problem in caught.value.problem
    assert expected in (caught.value.expected or "")
    assert "more)" not in caught.value.problem


def test_a_wrong_value_names_its_field(config: Path, base: Path) -> None:
    config.write_text(config.read_text().replace('"index_topk": 1024', '"index_topk": NaN'))
    scenario = config.parent / "scenario.yaml"
    scenario.write_text(base.read_text().replace("model: glm-5.1", "model: {hf_config: config.json}"))
    with pytest.raises(InputError) as caught:
        read_scenario(scenario)
    assert (caught.value.file, caught.value.field) == (str(config), "model.index_topk")
