"""Bytes of one layer and one micro-batch on one GPU, from shapes."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, equals, minimum
from hyscale_model.layers.attention import gathered_bytes
from hyscale_model.layers.selection import candidate_bytes, kept_table_bytes, score_table_bytes, topk_output_bytes
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes of one layer and micro-batch on one GPU.

    Attributes:
        kept: input that full recomputation starts from.
        attention: activations of the attention block between its forward and backward.
        experts: tokens at this rank's experts, with their intermediate activations.
        indices: the kept selection; ``loss``: gradients of the kept scores.
        table: score table; ``topk_outputs``: values and indices as torch.topk gives them.
        kept_table: all scores of the layer.
        candidates: HyTopK's buffers; ``gathered``: keys and latents of the sequence.
        gradients: gradients of the gathered latents and index keys, FP32 and their BF16 copy.
        logits: BF16 and FP32 logits.
    """

    kept: Number
    attention: Number
    experts: Number
    indices: Number
    loss: Number
    table: Number
    topk_outputs: Number
    kept_table: Number
    candidates: Number
    gathered: Number
    gradients: Number
    logits: Number


def layer_bytes(case: Scenario, sizes: Sizes) -> LayerBytes:
    """Count the bytes; see ``LayerBytes``."""
    model, layout, system = case.model, case.layout, case.systems[0]
    heads = model.num_attention_heads / layout.tp
    latent = model.kv_lora_rank + model.qk_rope_head_dim
    key = model.qk_nope_head_dim + model.qk_rope_head_dim
    # Normalised input, low-rank queries and latents before and after their norms, queries in head and in latent
    # space, attention output in latent and in head space, index queries.
    per_token = (
        2 * model.hidden_size
        + 2 * (model.q_lora_rank + latent)
        + heads * (key + latent + model.kv_lora_rank + model.v_head_dim)
        + model.index_n_heads * model.index_head_dim
    )
    copies = sizes.queries * model.num_experts_per_tok * layout.etp * case.training.moe_imbalance
    # A copy as sent and as received, gate and up, their product.
    expert_values = 2 * model.hidden_size + 3 * model.moe_intermediate_size / layout.etp
    with_index = model.index_head_dim * equals(case.training.index_loss, "sparse")
    kept = sizes.queries * minimum(model.index_topk, sizes.keys)
    hytopk = system.selection == "hytopk"
    return LayerBytes(
        kept=BF16_BYTES * sizes.queries * model.hidden_size,
        attention=BF16_BYTES * sizes.tokens * per_token,
        experts=BF16_BYTES * copies * expert_values,
        indices=INT32_BYTES * kept,
        loss=FP32_BYTES * kept * equals(case.training.index_loss, "sparse"),
        table=0.0 if hytopk else score_table_bytes(case, sizes),
        topk_outputs=0.0 if hytopk else topk_output_bytes(case, sizes),
        kept_table=kept_table_bytes(sizes),
        candidates=candidate_bytes(case, sizes) if hytopk else 0.0,
        gathered=gathered_bytes(case, sizes),
        gradients=(FP32_BYTES + BF16_BYTES) * sizes.held_keys * (latent + with_index),
        logits=(BF16_BYTES + FP32_BYTES) * sizes.tokens * model.vocab_size / layout.tp,
    )
