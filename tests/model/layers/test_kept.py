"""Tensors kept for backward: published formulas and counts by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.batch import case_of
from hyscale_model.families import anatomy
from hyscale_model.layers.kept import attention_kept, feed_forward_kept, policy_of
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario import read_scenario

GPT = """
schema_version: 1
name: a GPT of two layers
model: {{name: gpt, model_type: gpt, vocab_size: 51200, hidden_size: {hidden}, num_hidden_layers: 2,
        num_attention_heads: {heads}, intermediate_size: {wide}, max_position_embeddings: 4096}}
cluster: {{gpu: a100, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 200}}
layout: {{tp: {tp}, sequence_parallel: {shards}}}
workload: {{sequence_length: {length}, global_batch_size: {batch}, micro_batch_size: {micro}}}
training: {{recompute: none, attention_backend: unfused}}
systems: [megatron]
"""

LATENT = """
schema_version: 1
name: two layers of DeepSeek-V3
model: {extends: deepseek-v3, num_hidden_layers: 2, first_k_dense_replace: 1}
cluster: {gpu: h200, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {ep: 8}
workload: {sequence_length: 4096, global_batch_size: 8}
training: {recompute: selective}
systems: [megatron]
"""


def parts(text, *overrides):
    """Case, sizes and what each block keeps, by kind."""
    scenario = read_scenario("scenario.yaml", text=text, overrides=overrides).scenario
    case = case_of(scenario, scenario.systems[0])
    sizes, body = Sizes.of(case), anatomy(case.model)
    kept = {each.kind: attention_kept(case, sizes, each, body) for each in body.attentions}
    kept |= {each.kind: feed_forward_kept(case, sizes, each, body) for each in body.feed_forwards}
    return case, sizes, kept


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    per_rank=st.integers(1, 4),
    width=st.sampled_from([64, 128]),
    length=st.sampled_from([512, 2048]),
    micro=st.sampled_from([1, 4]),
    shards=st.booleans(),
)
def test_a_gpt_layer_keeps_what_korthikanti_et_al_count(tp, per_rank, width, length, micro, shards):
    """Equations 2 and 4 of arXiv 2205.05198: s b h (10 + 24 / t + 5 a s / (h t)), and 34 / t with shards."""
    heads = tp * per_rank
    hidden = heads * width
    batch = micro * 8 // tp
    text = GPT.format(
        hidden=hidden, heads=heads, wide=4 * hidden, tp=tp, shards=str(shards).lower(), length=length, batch=batch,
        micro=micro,
    )  # fmt: skip
    _, _, kept = parts(text)
    scores = 5 * heads * length / hidden / tp
    factor = 34 / tp + scores if shards else 10 + 24 / tp + scores
    total = kept["mha"].stored + kept["dense_ffn"].stored
    assert total == pytest.approx(length * micro * hidden * factor, rel=1e-12)
    # Recomputing the core leaves no score behind.
    _, _, less = parts(text, "training.recompute=selective")
    assert less["mha"].stored + less["dense_ffn"].stored == pytest.approx(
        length * micro * hidden * (factor - scores), rel=1e-12
    )


def test_latent_attention_keeps_whole_heads_and_both_ends_of_its_norms():
    """4,096 tokens: hidden in and normed, low-rank vectors twice, 128 heads of 192 + 192 + 128 + 128, statistics."""
    _, _, kept = parts(LATENT, "training.recompute=none")
    values = 2 * 7168 + 2 * (1536 + 576) + 128 * (192 + 192 + 128 + 128)
    assert kept["mla"].stored == 4096 * (2 * values + 4 * 128)


def test_experts_keep_each_copy_of_a_token_as_sorted_and_in_between():
    """8 copies of 4,096 tokens: 7,168 as sorted, 2 x 2,048 before and 2,048 behind the activation."""
    _, _, kept = parts(LATENT, "training.recompute=none")
    modules = kept["moe"].modules
    assert modules["moe_act"] == 2 * 4096 * 8 * 2048
    assert modules["shared_experts"] == 2 * 4096 * 3 * 2048
    assert modules["moe"] - 2 * 4096 * 8 * (7168 + 2 * 2048) == 4096 * 256 * (3 * 4 + 1 + 8)


MODULES = ["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]


@given(chosen=st.lists(st.sampled_from(MODULES), unique=True))
def test_every_recomputed_module_takes_away_what_it_keeps_and_no_more(chosen):
    _, _, kept = parts(LATENT, f"training.recompute_modules=[{', '.join(chosen)}]")
    for name in ("mla", "dense_ffn", "moe"):
        gone = set(chosen) & set(kept[name].modules)
        if "moe" in chosen and name == "moe":
            gone |= {"moe_act", "shared_experts"}
        expected = kept[name].whole - sum(kept[name].modules[each] for each in gone)
        assert kept[name].stored == pytest.approx(expected)


def test_the_dense_feed_forward_is_no_part_of_a_mixture():
    case, _, kept = parts(LATENT, "training.recompute_modules=[mlp]")
    moe = next(each for each in anatomy(case.model).feed_forwards if each.kind == "moe")
    assert "mlp" not in policy_of(case, moe)
    assert kept["moe"].stored == kept["moe"].whole
    assert kept["dense_ffn"].stored == kept["dense_ffn"].whole - 2 * 4096 * 3 * 18432


def test_an_exchange_of_heads_leaves_the_output_twice():
    whole, traded = (
        parts(LATENT, "training.recompute=none", "layout.cp=2", "layout.ep=4", f"layout.cp_kind={kind}")[2]["mla"]
        for kind in ("ring", "alltoall")
    )
    assert traded.stored - whole.stored == 2 * 2048 * 128 * 128


def memory(text, *overrides):
    from hyscale_model.predict import predict

    data = predict(read_scenario("scenario.yaml", text=text, overrides=overrides), draws=0).data
    return data["systems"]["megatron"]["memory"]


def test_zero_takes_away_a_kind_at_a_stage():
    text = LATENT.replace(
        "model: {extends: deepseek-v3, num_hidden_layers: 2, first_k_dense_replace: 1}", "model: llama-3-8b"
    )
    text = text.replace("layout: {ep: 8}", "layout: {}")
    stages = [memory(text, f"layout.zero={zero}")["at_peak_bytes"] for zero in (0, 1, 2, 3)]
    for kind, first in (("optimizer", 1), ("gradients", 2), ("parameters", 3)):
        sizes = [stage[kind] for stage in stages]
        assert sizes[first] < sizes[first - 1]
        assert np.allclose(sizes[first:], sizes[first])
        assert np.allclose(sizes[:first], sizes[0])


def test_what_is_handed_out_is_less_than_what_the_gpu_holds():
    found = memory(LATENT)
    assert found["stored_activations_bytes"] < found["peak_allocated_bytes"] < found["peak_bytes"]
    without = found["at_peak_bytes"] | {"framework": 0.0}
    assert found["peak_allocated_bytes"] <= sum(without.values())


def test_a_layer_of_prediction_costs_the_last_stage_its_weights_and_logits():
    text = LATENT.replace("layout: {ep: 8}", "layout: {ep: 4, pp: 2}")
    without, with_it = (memory(text, f"model.num_nextn_predict_layers={number}") for number in (0, 1))
    last = [found["stages"][-1]["at_peak_bytes"] for found in (without, with_it)]
    # One layer with 64 of 256 experts, the projection of 2 h to h, three norms, a copy of the embedding.
    attention = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512
    moe = 64 * 3 * 7168 * 2048 + 3 * 7168 * 2048 + 7169 * 256
    extra = attention + moe + 2 * 7168 + 2 * 7168**2 + 3 * 7168 + 129280 * 7168
    assert last[1]["parameters"] - last[0]["parameters"] == pytest.approx(2 * extra, rel=1e-9)
    assert with_it["stages"][0] == without["stages"][0]


def test_fp8_keeps_inputs_of_products_in_one_byte_and_copies_of_weights():
    _, _, wide = parts(LATENT, "training.recompute=none")
    _, _, narrow = parts(LATENT, "training.recompute=none", "training.precision=fp8")
    # Normed input, normed low-rank vectors; the output of attention once more for the product behind it.
    saved = 4096 * (7168 + 1536 + 576) - 4096 * 128 * 128
    assert wide["mla"].stored - narrow["mla"].stored == saved
    # Each copy of a token as sorted and behind the activation; the shared expert; the normed input.
    assert wide["moe"].stored - narrow["moe"].stored == 4096 * (8 * (7168 + 2048) + 2048 + 7168)
    found = [memory(LATENT, f"training.precision={name}")["at_peak_bytes"]["parameters"] for name in ("bf16", "fp8")]
    assert found[1] > found[0]
    assert found[1] - found[0] < found[0]


def test_moments_in_half_the_bytes_leave_two_thirds_of_the_state():
    wide, narrow = (
        memory(LATENT, f"training.optimizer_state_precision={name}")["at_peak_bytes"]["optimizer"]
        for name in ("fp32", "bf16")
    )
    assert narrow == pytest.approx(wide * 8 / 12)
