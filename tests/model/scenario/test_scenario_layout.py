from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.scenario import Scenario, case_for, check_layout, read_scenario

BASE = Path(__file__).parent / "base.yaml"

# overrides, field, words of the problem (the arithmetic), words of the remedy
IMPOSSIBLE = [
    (["layout.pp=3"], "layout.pp", "1 x 3 x 128 = 384 does not divide the 512 GPUs", "512"),
    (["layout.cp=96"], "layout.cp", "1 x 4 x 96 = 384", "512"),
    (["layout.tp=16", "layout.cp=8"], "layout.tp", "more than the 8 GPUs of a node", "at most 8"),
    (["layout.tp=8", "layout.cp=16", "model.num_attention_heads=60"], "layout.tp", "60 attention heads", "divisor"),
    (["layout.ep=256"], "layout.ep", "256 x 1 = 256 does not divide the 128 GPUs", "128"),
    (["layout.etp=2"], "layout.ep", "128 x 2 = 256", "128"),
    (["layout.ep=128", "model.n_routed_experts=192"], "layout.ep", "192 routed experts", "divisor of 192"),
    (["workload.sequence_length=1048704"], "workload.sequence_length", "2 zigzag chunks = 256", "multiple of 256"),
    (["layout.cp=64", "layout.ep=64", "workload.global_batch_size=3"], "workload.global_batch_size", "2 x 1 = 2", "2"),
    (["layout.vpp=1"], "layout.schedule", "vpp = 1", "1f1b"),
    (["layout.schedule=1f1b"], "layout.schedule", "vpp = 2", "interleaved"),
    (["layout.pp=1", "workload.global_batch_size=16"], "layout.vpp", "one pipeline stage", "pp above 1"),
    (["workload.global_batch_size=6"], "workload.global_batch_size", "6 / 1 = 6", "multiple of 4"),
    (["layout.vpp=20"], "layout.vpp", "4 x 20 = 80 stages are more than the 78 layers", "at most 78"),
    (["layout.stage_layers=[20, 20, 19]"], "layout.stage_layers", "3 numbers for 4 stages", "4 numbers"),
    (["layout.stage_layers=[20, 20, 20, 20]"], "layout.stage_layers", "80 layers, the model 78", "sum of 78"),
    (["layout.stage_layers=[20, 20, 19, 19]"], "layout.stage_layers", "2 does not divide the 19", "multiples of 2"),
    (["model.first_k_dense_replace=79"], "model.first_k_dense_replace", "79 dense layers", "at most 78"),
    (["model.num_experts_per_tok=257"], "model.num_experts_per_tok", "257 experts", "at most 256"),
    (["model.index_topk=2097152"], "model.index_topk", "2097152 selected keys", "at most 1048576"),
    (["cluster.gpu.fp8_flops=null", "training.precision=fp8"], "training.precision", "no fp8_flops", "bf16"),
    (["cluster.gpu.fp8_flops=null", "training.index_precision=fp8"], "training.index_precision", "fp8", "bf16"),
]


@pytest.mark.parametrize(("overrides", "field", "problem", "expected"), IMPOSSIBLE)
def test_impossible_layouts_show_the_arithmetic(
    base_text: str, overrides: list[str], field: str, problem: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_scenario("x.yaml", text=base_text, overrides=overrides)
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert expected in (caught.value.expected or "")
    assert caught.value.file in ("--set", "x.yaml")


@pytest.mark.parametrize(
    "overrides",
    [
        ["layout.stage_layers=[20, 20, 20, 18]"],
        ["layout.stage_layers=[10, 10, 10, 10, 10, 10, 9, 9]"],
        ["layout.cp=1", "layout.pp=1", "layout.vpp=1", "layout.schedule=1f1b", "workload.global_batch_size=512",
         "workload.sequence_length=4097"],
        ["layout.tp=8", "layout.cp=16"],
        ["layout.cp_order=contiguous", "workload.sequence_length=1048704"],
    ],
)  # fmt: skip
def test_possible_layouts(base_text: str, overrides: list[str]) -> None:
    read_scenario("x.yaml", text=base_text, overrides=overrides)


def test_a_system_may_bring_its_own_layout(base_text: str) -> None:
    inline = "[megatron, {name: mine, extends: hyscale, layout: {cp: 64.0, ep: 64}, training: {recompute: none}}]"
    text = base_text.replace("[megatron, megatron-best, hyscale]", inline).replace("batch_size: 4", "batch_size: 8")
    scenario = read_scenario("x.yaml", text=text).scenario
    base, mine = (case_for(scenario, system) for system in scenario.systems)
    assert base == scenario
    assert (mine.layout.cp, mine.layout.ep, mine.layout.pp, mine.training.recompute) == (64, 64, 4, "none")
    assert type(mine.layout.cp) is int
    with pytest.raises(InputError) as caught:
        read_scenario("x.yaml", text=text.replace("cp: 64.0", "cp: 48"))
    assert (caught.value.line, caught.value.field) == (9, "systems.mine.layout.cp")
    broken = replace(scenario.systems[1], layout={"cpp": 1})
    with pytest.raises(InputError) as caught:
        case_for(scenario, broken)
    assert caught.value.field == "systems.mine.layout.cpp"


POWERS = st.sampled_from([1, 2, 3, 4, 8, 16, 64, 128])


@given(tp=POWERS, pp=POWERS, cp=POWERS, ep=POWERS, batch=POWERS)
def test_accepted_layouts_use_every_gpu_and_sequence(tp: int, pp: int, cp: int, ep: int, batch: int) -> None:

    scenario: Scenario = read_scenario(BASE).scenario
    layout = replace(scenario.layout, tp=tp, pp=pp, cp=cp, ep=ep, vpp=1, schedule="1f1b")
    scenario = replace(scenario, layout=layout, workload=replace(scenario.workload, global_batch_size=batch))
    try:
        check_layout(scenario, scenario.systems[0])
    except InputError:
        return
    dp, rest = divmod(512, tp * pp * cp)
    assert rest == 0
    assert batch % dp == 0
    assert 1048576 % (cp * tp) == 0
    assert 512 // pp % ep == 0
