from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hyscale_model.scenario import load, loads, scenario_json_schema

SHIPPED = sorted((Path(__file__).parents[3] / "scenarios").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = scenario_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_shipped_scenarios_follow_it(validator: Any, path: Path) -> None:
    validator.validate(load(path).data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model: glm-5.1", "model: {extends: glm-5.1, num_hidden_layers: 40}"),
        ("model: glm-5.1", "model: {hf_config: config.json}"),
        ("512xh20", "{gpu: {extends: h20-96, sms: 70}, nodes: 64, gpus_per_node: 8, nic_gbit_per_gpu: 400}"),
        ("512xh20", "{extends: 512xh20, nodes: 32}"),
        ("megatron-best", "{name: mine, extends: hyscale, table_rows: all, layout: {cp: 64}}"),
        ("schema_version", "assumptions: [{path: a.b, choices: {bf16: 1, fp8: 1}, reason: r}]\nschema_version"),
        ("schema_version", "assumptions: [{path: a.b, choices: [1, 2], reason: r}]\nschema_version"),
        ("schema_version", "sweep: {layout.pp: [1, 2]}\nschema_version"),
    ],
)
def test_what_files_may_say(validator: Any, base_text: str, old: str, new: str) -> None:
    validator.validate(loads(base_text.replace(old, new, 1), "f").data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model: glm-5.1", "model: glm-9"),
        ("model: glm-5.1", "model: {num_hidden_layers: 40}"),
        ("model: glm-5.1", "model: {extends: glm-5.1, layers: 40}"),
        ("pp: 4", "pp: 0"),
        ("pp: 4", "pp: many"),
        ("index_balance: true", "index_balance: 1"),
        ("schedule: interleaved", "schedule: zb"),
        ("[megatron", "[hyscal"),
        ("schema_version: 1", "schema_version: 2"),
        ("schema_version: 1", ""),
        ("schema_version", "bogus: 1\nschema_version"),
    ],
)
def test_what_files_may_not_say(validator: Any, base_text: str, old: str, new: str) -> None:
    assert not validator.is_valid(loads(base_text.replace(old, new, 1), "f").data)
