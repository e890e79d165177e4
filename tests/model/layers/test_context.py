"""Exchange of context ranks by ring and all-to-all, counted by hand."""

import pytest

from hyscale_model.batch import case_of
from hyscale_model.errors import InputError
from hyscale_model.families import anatomy
from hyscale_model.layers.attention import core_block
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.operation import Transfer
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario import read_scenario

TEXT = """
schema_version: 1
name: a Llama over four context ranks
model: {extends: llama-3-70b, num_hidden_layers: 2}
cluster: {gpu: h100, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {tp: 2, cp: 4}
workload: {sequence_length: 32768, global_batch_size: 1}
training: {recompute: none}
systems: [megatron]
"""
TOKENS, LENGTH = 8192, 32768


def transfers(kind):
    """(forward, backward) transfers of the core of one layer."""
    scenario = read_scenario("scenario.yaml", text=TEXT, overrides=[f"layout.cp_kind={kind}"]).scenario
    case = case_of(scenario, scenario.systems[0])
    (attention,) = anatomy(case.model).attentions
    block = core_block(case, Sizes.of(case), attention, lambda name: 1.0, Memo())
    return [[task for task in tasks if isinstance(task.work, Transfer)] for tasks in (block.forward, block.backward)]


def payloads(tasks):
    return [task.work.payload_bytes for task in tasks]


def test_gathered_keys_are_those_of_the_tensor_ranks_heads():
    """4 of 8 key-value heads of 128, keys and values, BF16."""
    forward, backward = transfers("allgather")
    assert payloads(forward) == payloads(backward) == [2 * LENGTH * 2 * 4 * 128]
    assert [task.work.kind for task in (*forward, *backward)] == ["all_gather", "reduce_scatter"]


def test_a_ring_moves_keys_and_then_keys_with_their_gradients_beside_attention():
    forward, backward = transfers("ring")
    assert payloads(forward) == [2 * LENGTH * 2 * 4 * 128]
    assert payloads(backward) == [2 * 2 * LENGTH * 2 * 4 * 128]
    assert not any(task.blocking for task in (*forward, *backward))


def test_all_to_all_trades_tokens_for_heads_and_back():
    """32 query heads, 4 key and 4 value heads of 128 in, 32 heads out; gradients the other way round."""
    forward, backward = transfers("alltoall")
    assert payloads(forward) == [2 * TOKENS * 40 * 128, 2 * TOKENS * 32 * 128]
    assert payloads(backward) == payloads(forward)[::-1]
    assert all(task.blocking and task.work.kind == "all_to_all" for task in (*forward, *backward))


def test_sparse_attention_gathers_and_does_nothing_else():
    text = TEXT.replace("model: {extends: llama-3-70b, num_hidden_layers: 2}", "model: glm-5.1")
    text = text.replace("tp: 2, cp: 4", "tp: 1, cp: 8, ep: 8, cp_kind: ring").replace(
        "global_batch_size: 1", "global_batch_size: 1"
    )
    with pytest.raises(InputError) as refused:
        read_scenario("scenario.yaml", text=text)
    assert refused.value.field == "layout.cp_kind"


def test_too_few_heads_to_trade_are_refused():
    text = TEXT.replace("tp: 2, cp: 4", "tp: 8, cp: 16, cp_kind: alltoall").replace("nodes: 1", "nodes: 16")
    with pytest.raises(InputError) as refused:
        read_scenario("scenario.yaml", text=text)
    assert refused.value.field == "layout.cp"
