"""Each wrong scenario gives one message with its line, its field and what would be right."""

from __future__ import annotations

import re

import pytest

from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario

SYSTEMS = "[megatron, megatron-best, hyscale]"
GPUS = "nodes: 64, gpus_per_node: 8, nic_gbit_per_gpu: 400"
REASON = ", reason: r}"

# what to replace ("" appends), by what, line, field, expected words
CASES = [
    ("pp: 4", "ppp: 4", 6, "layout.ppp", "pp (one of tp"),
    ("pp: 4", "pp: many", 6, "layout.pp", "whole number at least 1"),
    ("pp: 4", "pp: 0", 6, "layout.pp", "at least 1"),
    ("pp: 4", "pp: 1.5", 6, "layout.pp", "whole number"),
    ("pp: 4", "pp: true", 6, "layout.pp", "whole number"),
    ("pp: 4", "pp: [4]", 6, "layout.pp", "whole number"),
    ("zero: 1", "zero: 4", 6, "layout.zero", "at most 3"),
    ("schedule: interleaved", "schedule: interleave", 6, "layout.schedule", "nearest is interleaved"),
    ("index_balance: true", "index_balance: yes", 6, "layout.index_balance", "true or false"),
    ("index_balance: true", "index_balance: 1", 6, "layout.index_balance", "true or false"),
    ("moe_imbalance: 1.0", "moe_imbalance: 0.5", 8, "training.moe_imbalance", "a number at least 1"),
    ("1048576", "1_048_576", 7, "workload.sequence_length", "whole number"),
    ("schema_version: 1\n", "", 2, "schema_version", "1"),
    ("schema_version: 1", "schema_version: true", 2, "schema_version", "1"),
    ("schema_version: 1", "schema_version: 2", 2, "schema_version", "1"),
    ("global_batch_size: 4, ", "", 7, "workload.global_batch_size", "whole number"),
    ("model: glm-5.1", "model: glm5", 4, "model", "glm-5.1"),
    ("model: glm-5.1", "model: [1]", 4, "model", "name from the catalogue or a mapping"),
    ("model: glm-5.1", "model: {extends: glm5}", 4, "model.extends", "glm-5.1"),
    ("model: glm-5.1", "model: {extends: glm-5.1, hf_config: x}", 4, "model", "either"),
    ("model: glm-5.1", "model: {extends: glm-5.1, index_top: 1}", 4, "model.index_top", "index_topk"),
    ("model: glm-5.1", "model: {name: x}", 4, "model.model_type", "glm_moe_dsa"),
    ("model: glm-5.1", "", 2, "model", "name from the catalogue ("),
    ("cluster: 512xh20", f"cluster: {{gpu: h20, {GPUS}}}", 5, "cluster.gpu", "h20-141, h20-96"),
    ("cluster: 512xh20", f"cluster: {{gpu: {{extends: h20-96, sms: x}}, {GPUS}}}", 5, "cluster.gpu.sms", "whole"),
    ("cluster: 512xh20", "cluster: {gpu: h20-96, nodes: 64, gpus_per_node: 8}", 5, "cluster.nic_gbit_per_gpu", "above"),
    (SYSTEMS, "[]", 9, "systems", "not empty"),
    (SYSTEMS, "megatron", 9, "systems", "a list"),
    (SYSTEMS, "[megatron, hyscal]", 9, "systems.hyscal", "hyscale (one of"),
    (SYSTEMS, "\n  - megatron\n  - megatron", 11, "systems.megatron", "of its own"),
    (SYSTEMS, "[{name: mine, extends: megatron, table_rows: al}]", 9, "systems.mine.table_rows", "or all"),
    (SYSTEMS, "[{name: mine, extends: nothing}]", 9, "systems.mine.extends", "megatron"),
    (SYSTEMS, "[{name: mine, causal_skp: true}]", 9, "systems.mine.causal_skp", "causal_skip"),
    (SYSTEMS, "[{name: hyscale, table_rows: all}]", 9, "systems.hyscale.name", "extends: hyscale"),
    (SYSTEMS, "[{extends: hyscale}]", 9, "systems.0.name", "name"),
    (SYSTEMS, "[5]", 9, "systems.0", "name from the catalogue"),
    (SYSTEMS, "[{name: mine, extends: hyscale, layout: {cpp: 3}}]", 9, "systems.mine.layout.cpp", "pp (one of"),
    (SYSTEMS, "[{name: mine, extends: hyscale, layout: {cp: x}}]", 9, "systems.mine.layout.cp", "whole number"),
    (SYSTEMS, "[{name: mine, extends: hyscale, training: 5}]", 9, "systems.mine.training", "mapping"),
    ("workload:", "workloads:", 7, "workloads", "workload (one of"),
    ("", "bogus: 1", 11, "bogus", "one of schema_version"),
    ("", "scope: stepp", 11, "scope", "step"),
    ("", "reported: [{metric: a, value: 1}]", 11, "reported.0.source", "text"),
    ("", "reported: [{metric: a, value: 1, source: s, relation: below}]", 11, "reported.0.relation", "at_most"),
    ("", "sweep: {workload.sequence_len: [1]}", 11, "sweep.workload.sequence_len", "workload.sequence_length"),
    ("", "sweep: {workload.sequence_length: 5}", 11, "sweep.workload.sequence_length", "list"),
    ("", "sweep: {workload.sequence_length: []}", 11, "sweep.workload.sequence_length", "list"),
    ("", "sweep: {workload.sequence_length: [a]}", 11, "sweep.workload.sequence_length", "whole number"),
    ("", "sweep: {cluster.gpu: [h2000]}", 11, "sweep.cluster.gpu", "h200 (one of"),
    ("", "sweep: {layout.pp.x: [1]}", 11, "sweep.layout.pp.x", "layout.pp"),
    ("", "sweep: {systems.hyscal.backend: [cudnn]}", 11, "sweep.systems.hyscal.backend", "systems.hyscale"),
    ("", "sweep: [1]", 11, "sweep", "mapping"),
    ("", "zip: {layout.cp: [1, 2], layout.ep: [1]}", 11, "zip.layout.ep", "equal length"),
    ("", "zip: {layout.cp: [1]}\nsweep: {layout.cp: [1]}", 11, "zip.layout.cp", "one of them"),
]  # fmt: skip

ASSUMPTIONS = [
    ("{path: training.precision, choices: {bf16: 1, fp9: 1}" + REASON, 12, ".choices", "bf16 or fp8"),
    ("{path: cluster.nic_efficiency, range: [0.9, 0.7]" + REASON, 12, ".range", "lower end first"),
    ("{path: cluster.nic_efficiency, range: [0.7, 1.7]" + REASON, 12, ".range", "at most 1"),
    ("{path: cluster.nic_efficiency, range: [0.7]" + REASON, 12, ".range", "two numbers"),
    ("{path: cluster.nic_efficiency, range: [a, b]" + REASON, 12, ".range", "two numbers"),
    ("{path: cluster.nic_efficienc, range: [0.7, 0.9]" + REASON, 12, ".path", "cluster.nic_efficiency"),
    ("{path: clusters.nodes, choices: [64]" + REASON, 12, ".path", "cluster"),
    ("{path: layout, choices: [64]" + REASON, 12, ".path", "one of its fields"),
    ("{path: layout.pp, range: [1, 2]" + REASON, 12, ".range", "choices instead"),
    ("{path: training.precision, range: [1, 2]" + REASON, 12, ".range", "choices instead"),
    ("{path: layout.pp" + REASON, 12, "", "either choices or range"),
    ("{path: cluster.nic_efficiency, choices: [1], range: [0, 1]" + REASON, 12, "", "either choices or range"),
    ("{path: cluster.nic_efficiency, choices: {0.5: -1}" + REASON, 12, ".weights", "above 0"),
    ("{path: cluster.nic_efficiency, choices: [0.5], weights: [1, 2]" + REASON, 12, ".weights", "list of 1"),
    ("{path: cluster.nic_efficiency, choices: []" + REASON, 12, ".choices", "at least one"),
    ("{choices: [1]" + REASON, 12, ".path", "text"),
    ("{path: cluster.nic_efficiency, range: [0.7, 0.9]}", 12, ".reason", "text"),
    ("{path: cluster.nic_efficiency, range: [0.7, 0.9], reason: ' '}", 12, ".reason", "why"),
    ("{path: cluster.nic_efficiency, rnge: [0.7, 0.9]" + REASON, 12, "", "choices or range"),
    ("{path: workload.global_batch_size, choices: [4, 6]" + REASON, 12, ".choices", "a multiple of 4"),
]  # fmt: skip

OVERRIDES = [
    ("layout.pp", None, "path=value"),
    ("=3", None, "path=value"),
    ("layout.p=3", "layout.p", "layout."),
    ("layot.pp=3", "layot.pp", "layout"),
    ("layout.pp.x=3", "layout.pp.x", "layout.pp"),
    ("layout=3", "layout", "mapping"),
    ("layout.pp=[", "layout.pp", "bracket"),
    ("layout.pp=.nan", "layout.pp", "finite"),
    ("layout.pp=x", "layout.pp", "whole number"),
    ("layout.pp=3", "layout.pp", "divides 512"),
    ("systems.hyscal.backend=cudnn", "systems.hyscal.backend", "systems.hyscale"),
    ("systems.hyscale.backnd=cudnn", "systems.hyscale.backnd", "backend"),
    ("model.extends=glm-9", "model.extends", "glm-5.1"),
    ("model=glm-9", "model", "glm-5.1"),
]


def refusal(text: str, *overrides: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_scenario("x.yaml", text=text, overrides=overrides)
    message = str(caught.value)
    assert not re.search(r"pydantic|https?:|Input should|validator|Traceback|Node\(", message)
    assert len(message) < 900
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "expected"), CASES, ids=[case[1] or "removed" for case in CASES]
)
def test_one_message_with_place_and_remedy(
    base_text: str, old: str, new: str, line: int, field: str, expected: str
) -> None:
    text = re.sub(rf"(?<![a-z]){re.escape(old)}", lambda _: new, base_text) if old else f"{base_text}\n{new}\n"
    assert text != base_text
    error = refusal(text)
    assert (error.file, error.line, error.field) == ("x.yaml", line, field)
    assert expected in (error.expected or "")
    assert "more)" not in error.problem or "name: x" in new or not old


@pytest.mark.parametrize(("item", "line", "field", "expected"), ASSUMPTIONS, ids=[case[0] for case in ASSUMPTIONS])
def test_assumptions(base_text: str, item: str, line: int, field: str, expected: str) -> None:
    error = refusal(f"{base_text}\nassumptions:\n  - {item}\n")
    assert (error.file, error.line, error.field) == ("x.yaml", line, f"assumptions.0{field}")
    assert expected in (error.expected or "")


def test_one_assumption_for_each_field(base_text: str) -> None:
    item = "  - {path: cluster.nic_efficiency, range: [0.7, 0.9], reason: r}\n"
    error = refusal(f"{base_text}\nassumptions:\n{item}{item}")
    assert (error.line, error.field) == (13, "assumptions.1.path")
    assert "line 12" in error.problem


@pytest.mark.parametrize(("override", "field", "expected"), OVERRIDES)
def test_overrides(base_text: str, override: str, field: str | None, expected: str) -> None:
    error = refusal(base_text, override)
    assert (error.file, error.line, error.field) == ("--set", None, field)
    assert expected in (error.expected or "")


def test_the_first_by_line_is_reported_and_the_rest_counted(base_text: str) -> None:
    text = base_text.replace("pp: 4", "pp: x").replace("precision: bf16", "precision: fp4") + "\nbogus: 1\n"
    error = refusal(text)
    assert error.line == 6
    assert "more)" in error.problem


def test_an_impossible_choice_is_named(base_text: str) -> None:
    item = "{path: workload.global_batch_size, choices: [4, 6], reason: r}"
    assert "choice 6 of workload.global_batch_size" in refusal(f"{base_text}\nassumptions: [{item}]\n").problem
