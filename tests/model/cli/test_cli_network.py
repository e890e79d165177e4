import json

import pytest

SCENARIO = """
schema_version: 1
name: six layers on one node
model: {extends: glm-5.1, num_hidden_layers: 6}
cluster: {gpu: h200, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {pp: 2, cp: 4, ep: 4}
workload: {sequence_length: 65536, global_batch_size: 4}
training: {}
systems: [megatron, hyscale]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "six.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_json_has_links_collectives_and_a_bottleneck(run, file):
    result = run("network", file, "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert list(data["systems"]) == ["megatron", "hyscale"]
    found = data["systems"]["hyscale"]
    assert {"cp", "ep", "pp"} <= set(found["groups"])
    assert found["bottleneck"]["kind"] == "nvlink"
    assert {link["kind"] for link in found["links"]} == {"nvlink"}


def test_tables_and_a_picture(run, file, tmp_path):
    page = tmp_path / "network.html"
    result = run("network", file, "--system", "megatron", "--group", "cp", "--html", page)
    assert result.code == 0
    assert "cp.index_keys, forward" in result.out
    assert "moe.dispatch" not in result.out
    assert "Busiest link" in result.out
    assert "NVSwitch" in page.read_text(encoding="utf-8")


def test_a_group_that_sends_nothing_is_bad_input(run, file):
    result = run("network", file, "--group", "tp")
    assert result.code == 2
    assert "Expected: cp" in result.err
