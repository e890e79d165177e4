import json

import pytest

SCENARIO = """
schema_version: 1
name: small
model: {extends: glm-5.1, num_hidden_layers: 6, n_routed_experts: 16}
cluster: {gpu: h200, nodes: 2, gpus_per_node: 4, nic_gbit_per_gpu: 400}
layout: {tp: 1, pp: 2, cp: 4, ep: 4}
workload: {sequence_length: 65536, global_batch_size: 4}
training: {recompute: full}
systems: [megatron, hyscale]
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


def test_people_see_the_best_their_own_and_the_ratios(run, small):
    systems = [part for name in ("megatron", "megatron-best", "hyscale") for part in ("--system", name)]
    result = run("search", small, "--top", 2, "--draws", 4, "--workers", 1, *systems)
    assert result.code == 0
    text = " ".join(result.out.split())
    assert text.count("yours") == 6
    assert "as fast as yours" in text
    *_, ratios = result.out.partition("worth to each other")
    assert all(word in ratios for word in ("each in its own", "in the best layout", "megatron-best"))
    assert "…" not in ratios


@pytest.mark.slow
def test_json_is_all_that_stdout_holds_and_a_file_gets_the_same(run, small, tmp_path):
    path = tmp_path / "best.json"
    result = run("search", small, "--top", 1, "--draws", 2, "--workers", 1, "--json", "--output", path)
    assert json.loads(result.out) == json.loads(path.read_text())
    assert result.err == f"wrote {path}\n"


@pytest.mark.slow
def test_processes_find_what_one_finds(run, small):
    one, two = (run("search", small, "--top", 3, "--draws", 2, "--workers", n, "--json").out for n in (1, 2))
    assert json.loads(one) == json.loads(two)


@pytest.mark.slow
def test_other_numbers_of_gpus(run, small):
    result = run("search", small, "--gpus", 4, "--top", 1, "--draws", 2, "--workers", 1)
    assert result.code == 0
    assert "on 4 GPUs" in result.out
    assert "Your own layout is not possible" in result.out
    result = run("search", small, "--gpus", 6)
    assert result.code == 2
    assert "6 GPUs are no whole nodes of 4. Expected: a multiple of 4" in result.err
