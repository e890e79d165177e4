"""Qwen3.8-Flash-Next (arXiv 2608.30320): Gated DeltaNet layers, Qwen sparse attention in every few, an n-gram table.

QSA scores blocks of tokens by the mean of their raw index keys, without head weights, and attends to all tokens of the
selected blocks and to the unfinished block at the end.
"""

from __future__ import annotations

from hyscale_model.families.anatomy import Anatomy, Attention, AttentionKind, Core, FeedForward, Index, Projection
from hyscale_model.scenario.models import Qwen4


def qwen4_anatomy(model: Qwen4) -> Anatomy:
    """Every ``full_attention_interval``-th layer is QSA, the others Gated DeltaNet; all have experts."""
    hidden = model.hidden_size
    kinds: list[AttentionKind] = [
        "qsa" if (layer + 1) % model.full_attention_interval == 0 else "gdn" for layer in range(model.num_hidden_layers)
    ]
    moe = FeedForward(
        kind="moe",
        intermediate=model.moe_intermediate_size,
        experts=model.num_experts,
        chosen=model.num_experts_per_tok,
        shared_intermediate=model.shared_expert_intermediate_size,
        router_parameters=hidden * model.num_experts + (hidden if model.shared_expert_intermediate_size else 0),
    )
    return Anatomy(
        hidden=hidden,
        vocabulary=model.vocab_size,
        layers=tuple((kind, "moe") for kind in kinds),
        attentions=tuple({"qsa": _sparse, "gdn": _linear}[kind](model) for kind in dict.fromkeys(kinds)),
        feed_forwards=(moe,),
        norm_parameters=2 * hidden,
        embedding=model.vocab_size * hidden,
        head=hidden if model.tie_word_embeddings else (model.vocab_size + 1) * hidden,
        tied=model.tie_word_embeddings,
        table=model.ple.rows * model.ple.row_width if model.ple else 0,
        streams=model.hc_count,
        predicted=(("qsa", "moe"),) * model.num_nextn_predict_layers,
    )


def _sparse(model: Qwen4) -> Attention:
    hidden, width, heads, groups = (
        model.hidden_size,
        model.head_dim,
        model.num_attention_heads,
        model.num_key_value_heads,
    )
    gate = 2 if model.attn_output_gate else 1
    topk = model.indexer_budget // model.indexer_compress_ratio
    index = Index(
        heads=model.indexer_n_heads,
        head_dim=model.indexer_head_dim,
        topk=topk,
        ratio=model.indexer_compress_ratio,
        projections=(
            Projection(name="query", inputs=hidden, outputs=model.indexer_n_heads * model.indexer_head_dim),
            Projection(name="key", inputs=hidden, outputs=model.indexer_head_dim),
        ),
        parameters=2 * model.indexer_head_dim,
        normed_queries=True,
    )
    return Attention(
        kind="qsa",
        before=(
            Projection(name="q", inputs=hidden, outputs=gate * heads * width, split="outputs"),
            Projection(name="kv", inputs=hidden, outputs=2 * groups * width, split="outputs"),
        ),
        after=(Projection(name="output", inputs=heads * width, outputs=hidden, split="inputs"),),
        core=Core(
            form="sparse",
            heads=heads,
            groups=groups,
            key_width=width,
            value_width=width,
            gathered_values=2 * groups * width,
            topk=topk,
            ratio=model.indexer_compress_ratio,
            entry_tokens=model.indexer_compress_ratio,
            window=model.indexer_compress_ratio - 1,
        ),
        index=index,
        norm_parameters=2 * width,
        # Norms of queries and keys with their rotary embedding, the gate on the output.
        passed_values=2 * (heads + groups) * width + 3 * heads * width * (gate - 1),
        # Keys as they were are counted with what the projections give.
        normed_values=heads * width,
    )


def _linear(model: Qwen4) -> Attention:
    hidden = model.hidden_size
    keys = model.linear_num_key_heads * model.linear_key_head_dim
    values = model.linear_num_value_heads * model.linear_value_head_dim
    mixed = 2 * keys + values
    return Attention(
        kind="gdn",
        before=(
            Projection(name="qkv", inputs=hidden, outputs=mixed, split="outputs"),
            Projection(name="gate", inputs=hidden, outputs=values, split="outputs"),
            Projection(name="decay", inputs=hidden, outputs=2 * model.linear_num_value_heads, split="outputs"),
        ),
        after=(Projection(name="output", inputs=values, outputs=hidden, split="inputs"),),
        core=Core(
            form="linear",
            heads=model.linear_num_value_heads,
            groups=model.linear_num_key_heads,
            key_width=model.linear_key_head_dim,
            value_width=model.linear_value_head_dim,
            gathered_values=0,
        ),
        norm_parameters=mixed * model.linear_conv_kernel_dim
        + 2 * model.linear_num_value_heads
        + model.linear_value_head_dim,
        # Convolution over queries, keys and values, norm and gate of the output.
        passed_values=2 * mixed + 3 * values,
    )
