"""Dense attention: grouped-query (Llama, Qwen3) and multi-head (GPT), with dense or expert feed-forwards."""

from __future__ import annotations

from hyscale_model.families.anatomy import Anatomy, Attention, Core, FeedForward, Projection
from hyscale_model.scenario.models import Gpt, Llama, Qwen3Moe


def grouped_anatomy(model: Llama | Qwen3Moe) -> Anatomy:
    """Grouped-query attention; Qwen3 normalises queries and keys of each head."""
    hidden = model.hidden_size
    width = model.head_dim or hidden // model.num_attention_heads
    normed = model.model_type != "llama"
    if isinstance(model, Qwen3Moe):
        ffn = FeedForward(
            kind="moe",
            intermediate=model.moe_intermediate_size,
            experts=model.num_experts,
            chosen=model.num_experts_per_tok,
            router_parameters=hidden * model.num_experts,
        )
    else:
        ffn = FeedForward(kind="dense_ffn", intermediate=model.intermediate_size)
    attention = _attention(
        "gqa", hidden, model.num_attention_heads, model.num_key_value_heads, width, 2 * width if normed else 0
    )
    return Anatomy(
        hidden=hidden,
        vocabulary=model.vocab_size,
        layers=(("gqa", ffn.kind),) * model.num_hidden_layers,
        attentions=(attention,),
        feed_forwards=(ffn,),
        norm_parameters=2 * hidden,
        embedding=model.vocab_size * hidden,
        head=hidden if model.tie_word_embeddings else (model.vocab_size + 1) * hidden,
        tied=model.tie_word_embeddings,
        predicted=(("gqa", ffn.kind),) * model.num_nextn_predict_layers,
    )


def gpt_anatomy(model: Gpt) -> Anatomy:
    """GPT as Megatron-LM trains it: biases everywhere, LayerNorm, learned positions, output tied to the embedding."""
    hidden, heads, dropped = model.hidden_size, model.num_attention_heads, model.resid_pdrop > 0
    return Anatomy(
        hidden=hidden,
        vocabulary=model.vocab_size,
        layers=(("mha", "dense_ffn"),) * model.num_hidden_layers,
        attentions=(_attention("mha", hidden, heads, heads, hidden // heads, 0, biased=True, dropped=dropped),),
        feed_forwards=(
            FeedForward(
                kind="dense_ffn",
                intermediate=model.intermediate_size,
                matrices=2,
                bias=model.intermediate_size + hidden,
            ),
        ),
        norm_parameters=4 * hidden,
        embedding=(model.vocab_size + model.max_position_embeddings) * hidden,
        head=2 * hidden if model.tie_word_embeddings else (model.vocab_size + 2) * hidden,
        tied=model.tie_word_embeddings,
        predicted=(("mha", "dense_ffn"),) * model.num_nextn_predict_layers,
        dropout=dropped,
    )


def _attention(
    kind: str,
    hidden: int,
    heads: int,
    groups: int,
    width: int,
    norms: int,
    biased: bool = False,
    dropped: bool = False,
) -> Attention:
    qkv = (heads + 2 * groups) * width
    return Attention(
        kind=kind,  # type: ignore[arg-type]
        before=(Projection(name="qkv", inputs=hidden, outputs=qkv, split="outputs", bias=qkv if biased else 0),),
        after=(
            Projection(
                name="output", inputs=heads * width, outputs=hidden, split="inputs", bias=hidden if biased else 0
            ),
        ),
        core=Core(
            form="dense",
            heads=heads,
            groups=groups,
            key_width=width,
            value_width=width,
            gathered_values=2 * groups * width,
            dropout=dropped,
        ),
        norm_parameters=norms,
        passed_values=2 * (heads + groups) * width,
        normed_values=(heads + groups) * width if norms else 0,
    )
