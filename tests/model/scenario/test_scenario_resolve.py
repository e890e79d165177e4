from __future__ import annotations

from pathlib import Path

import pytest

from hyscale_model.errors import InputError
from hyscale_model.prediction import ORIGINS
from hyscale_model.scenario import Resolved, leaves, read_scenario

SHIPPED = sorted((Path(__file__).parents[3] / "scenarios").glob("*.yaml"))


def read(text: str, *overrides: str, systems: tuple[str, ...] = ()) -> Resolved:
    return read_scenario("x.yaml", text=text, overrides=overrides, systems=systems)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_shipped_scenarios_resolve(path: Path) -> None:
    resolved = read_scenario(path)
    assert set(resolved.origins) == {name for name, _ in leaves(resolved.scenario)}


def test_names_become_what_they_stand_for(base: Path) -> None:
    scenario = read_scenario(base).scenario
    assert scenario.model.name == "glm-5.1"
    assert scenario.cluster.gpu.name == "h20-96"
    assert scenario.cluster.nodes * scenario.cluster.gpus_per_node == 512
    assert [system.name for system in scenario.systems] == ["megatron", "megatron-best", "hyscale"]
    best = scenario.systems[1]
    assert (best.table_topk, best.recompute_selection, best.selection) == ("radix", "skip", "score_table")


EXTRAS = """
assumptions:
  - {path: training.index_precision, choices: {bf16: 0.5, fp8: 0.5}, reason: unknown}
  - {path: layout.stage_layers, choices: [[20, 20, 20, 18], [18, 20, 20, 20]], reason: unknown}
sweep: {workload.sequence_length: [131072, 262144]}
zip: {layout.cp: [64, 128], layout.ep: [64, 128]}
reported: [{metric: speedup.hyscale/megatron, value: 2.07, source: somewhere}]
"""


@pytest.mark.parametrize("extra", ["", EXTRAS])
def test_every_value_has_an_origin(base_text: str, extra: str) -> None:
    inline = "[megatron, {name: mine, extends: hyscale, layout: {cp: 64, ep: 64}}]"
    text = base_text.replace("[megatron, megatron-best, hyscale]", inline) + extra
    resolved = read(text.replace("global_batch_size: 4", "global_batch_size: 16"), "layout.zero=0")
    assert set(resolved.origins) == {path for path, _ in leaves(resolved.scenario)}
    for path, origin in resolved.origins.items():
        assert origin.origin in ORIGINS
        assert origin.detail, path


def test_origins_name_their_place(base_text: str) -> None:
    found = read(base_text, "layout.zero=0", "systems.hyscale.table_rows=all").origins
    assert found["layout.pp"].as_json() == {"origin": "given", "source": "x.yaml:6"}
    assert found["layout.zero"].as_json() == {"origin": "given", "source": "--set"}
    assert found["systems.hyscale.table_rows"].as_json() == {"origin": "given", "source": "--set"}
    assert found["systems.hyscale.selection"].as_json() == {"origin": "published", "source": "arXiv 2610.32057"}
    # Where the catalogue names a source for one field, it goes before that of the entry.
    assert "nvidia-smi" in found["cluster.gpu.memory_bytes"].detail
    assert found["cluster.nic_efficiency"].origin == "assumed"
    assert "nccl" in found["cluster.nic_efficiency"].detail


def test_a_drawn_field_is_assumed(base_text: str) -> None:
    found = read(base_text + EXTRAS).origins
    assert found["training.index_precision"].as_json() == {"origin": "assumed", "reason": "unknown"}


def test_choices_as_mapping_become_choices_and_weights(base_text: str) -> None:
    text = "\nassumptions:\n  - {path: layout.index_balance, choices: {true: 0.7, false: 0.3}, reason: r}\n"
    (assumption,) = read(base_text + text).scenario.assumptions
    assert assumption.choices == (True, False)
    assert assumption.weights == (0.7, 0.3)


def test_choices_are_of_the_type_of_the_field(base_text: str) -> None:
    text = "\nassumptions:\n  - {path: workload.global_batch_size, choices: [4.0, 8e0], reason: r}\n"
    (assumption,) = read(base_text + text).scenario.assumptions
    assert [type(choice) for choice in assumption.choices or ()] == [int, int]


def test_a_swept_field_is_no_longer_drawn(base_text: str) -> None:
    text = "\nassumptions:\n  - {path: cluster.nic_efficiency, range: [0.7, 0.9], reason: r}\n"
    assert len(read(base_text + text).scenario.assumptions) == 1
    swept = read(base_text + text + "sweep: {cluster.nic_efficiency: [0.7, 0.8]}\n").scenario
    assert swept.assumptions == ()
    assert dict(swept.sweep) == {"cluster.nic_efficiency": (0.7, 0.8)}


def test_what_set_fixes_is_neither_drawn_nor_swept(base_text: str) -> None:
    text = EXTRAS.replace("workload.sequence_length", "cluster.nic_efficiency").replace("262144", "0.5")
    text = text.replace("131072", "0.4")
    scenario = read(
        base_text + text, "training.index_precision=fp8", "cluster.nic_efficiency=0.9", "layout.cp=128"
    ).scenario
    assert [assumption.path for assumption in scenario.assumptions] == ["layout.stage_layers"]
    assert dict(scenario.sweep) == {}
    assert list(scenario.zip) == ["layout.ep"]
    assert scenario.training.index_precision == "fp8"


def test_set_reaches_into_catalogue_names(base_text: str) -> None:
    scenario = read(
        base_text,
        "model.num_hidden_layers=40",
        "cluster.gpu=h200",
        "cluster.gpu.sms=100",
        "cluster.nic_gbit_per_gpu=200",
        "layout.stage_layers=[10, 10, 10, 10]",
        "systems.hyscale.table_rows=all",
    ).scenario
    assert scenario.model.num_hidden_layers == 40
    assert scenario.model.hidden_size == 6144
    assert (scenario.cluster.gpu.name, scenario.cluster.gpu.sms) == ("h200", 100)
    assert (scenario.cluster.nodes, scenario.cluster.nic_gbit_per_gpu) == (64, 200)
    assert scenario.layout.stage_layers == (10, 10, 10, 10)
    assert [system.table_rows for system in scenario.systems] == [8192, 8192, "all"]


def test_systems_are_filtered_ordered_and_added(base_text: str) -> None:
    only = base_text.replace("[megatron, megatron-best, hyscale]", "[hyscale, {name: mine, extends: megatron}]")
    names = [system.name for system in read(only, systems=("mine", "megatron", "mine")).scenario.systems]
    assert names == ["mine", "megatron"]
    with pytest.raises(InputError) as caught:
        read(only, systems=("hyscal",))
    assert caught.value.file == "--system"
    assert "hyscale" in (caught.value.expected or "")


def test_inline_entries_build_on_the_catalogue(base_text: str) -> None:
    text = base_text.replace("model: glm-5.1", "model: {extends: glm-5.1, num_hidden_layers: 40}")
    text = text.replace("cluster: 512xh20", "cluster: {extends: 512xh20, gpu: {memory_bytes: 9e10}, nodes: 128}")
    resolved = read(text.replace("global_batch_size: 4", "global_batch_size: 8"))
    scenario = resolved.scenario
    assert scenario.model.num_hidden_layers == 40
    assert (scenario.cluster.nodes, scenario.cluster.gpu.name, scenario.cluster.gpu.memory_bytes) == (
        128,
        "h20-96",
        9e10,
    )
    assert resolved.origins["cluster.gpu.memory_bytes"].detail == "x.yaml:5"
    assert resolved.origins["cluster.gpu.sms"].origin == "published"


def test_a_scenario_extends_another(base: Path, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(base.read_text())
    (tmp_path / "sub").mkdir()
    child = tmp_path / "sub" / "child.yaml"
    child.write_text("extends: ../base.yaml\nlayout: {zero: 0}\nmodel: {index_topk: 1024}\nsystems: [hyscale]\n")
    resolved = read_scenario(child)
    assert (resolved.scenario.layout.zero, resolved.scenario.layout.pp) == (0, 4)
    assert (resolved.scenario.model.index_topk, resolved.scenario.model.hidden_size) == (1024, 6144)
    assert [system.name for system in resolved.scenario.systems] == ["hyscale"]
    assert resolved.origins["layout.zero"].detail == f"{child}:2"
    assert resolved.origins["layout.pp"].detail.endswith("base.yaml:6")


def test_extending_scenarios_must_exist_and_not_form_a_cycle(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("name: a\nextends: second.yaml\n")
    second.write_text("extends: ./first.yaml\n")
    for path in (first, second):
        with pytest.raises(InputError, match="extend each other"):
            read_scenario(path)
    second.write_text("extends: nowhere.yaml\n")
    with pytest.raises(InputError) as caught:
        read_scenario(first)
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(second), 1, "extends")
    second.write_text("a: [\n")
    with pytest.raises(InputError) as caught:
        read_scenario(first)
    assert caught.value.file == str(second)


@pytest.mark.parametrize("line", ["extends: other.yaml", "model: {hf_config: config.json}"])
def test_text_cannot_refer_to_files(base_text: str, line: str) -> None:
    text = base_text.replace("model: glm-5.1", line) if "model" in line else f"{base_text}\n{line}\n"
    with pytest.raises(InputError, match="cannot refer to other files"):
        read(text)
