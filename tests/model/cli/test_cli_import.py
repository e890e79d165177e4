import json
from pathlib import Path

import pytest

CONFIGS = Path(__file__).parents[1] / "configs"
ARGUMENTS = ("--num-layers", "12", "--hidden-size", "768", "--num-attention-heads", "12", "--seq-length", "1024")


def test_a_configuration_becomes_a_scenario(run, tmp_path):
    from hyscale_model.scenario import read_scenario

    output = tmp_path / "scenario.yaml"
    result = run("import", CONFIGS / "glm_moe_dsa.json", "--output", output)
    assert result.code == 0
    assert result.out == ""
    assert "hyscale predict" in result.err
    text = output.read_text()
    assert "num_nextn_predict_layers: 1" in text
    assert "index_topk: 2048  # index_topk" in text
    assert "(not stated)" in text
    assert read_scenario(output).scenario.model.index_topk_freq == 4


def test_arguments_on_the_command_line(run, tmp_path):
    output = tmp_path / "scenario.yaml"
    assert run("import", *ARGUMENTS, "--output", output).code == 0
    assert "model_type: gpt" in output.read_text()
    output.unlink()
    assert run("import", "--output", output, " ".join(ARGUMENTS)).code == 0


def test_json_is_the_mapping_with_origins(run):
    result = run("import", *ARGUMENTS, "--delay-wgrad-compute", "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert data["fields"]["model.hidden_size"] == {"value": 768, "origin": "--hidden-size", "stated": True}
    assert data["fields"]["layout.tp"]["stated"] is False
    assert data["systems"] == ["megatron"]
    assert [note["name"] for note in data["not_expressed"]] == ["--delay-wgrad-compute"]


def test_an_existing_file_is_kept(run, tmp_path):
    output = tmp_path / "scenario.yaml"
    output.write_text("mine")
    result = run("import", *ARGUMENTS, "--output", output)
    assert result.code == 2
    assert "--force" in result.err
    assert output.read_text() == "mine"
    assert run("import", *ARGUMENTS, "--output", output, "--force").code == 0
    assert output.read_text() != "mine"


def test_a_cluster_of_the_catalogue(run, tmp_path):
    output = tmp_path / "scenario.yaml"
    assert run("import", CONFIGS / "llama.json", "--cluster", "512xh20", "--output", output).code == 0
    assert "cluster: " in output.read_text()
    result = run("import", CONFIGS / "llama.json", "--cluster", "512xh2", "--output", output, "--force")
    assert result.code == 2
    assert "512xh20" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.json", "--json"), "no such file"),
        (("nowhere.sh", "--json"), "no such file"),
        (("a", "b", "--json"), "neither a file nor arguments"),
        ((*ARGUMENTS,), "--output scenario.yaml"),
        (("--num-layers", "2", "--json"), "--hidden-size is missing"),
        ((*ARGUMENTS, "--tensor-model-parallel-size", "5", "--json"), "--tensor-model-parallel-size"),
        (("--num-layers '2", "--json"), "closed quotes"),
        ((), "FILE|ARGS"),
    ],
)
def test_bad_input(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = run("import", *arguments)
    assert result.code == 2
    assert words in result.err
    assert len(result.err) < 1500
