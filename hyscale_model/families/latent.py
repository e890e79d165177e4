"""Multi-head latent attention, dense (DeepSeek-V3) and sparse (DeepSeek-V3.2, GLM-5)."""

from __future__ import annotations

from hyscale_model.families.anatomy import Anatomy, Attention, AttentionKind, Core, FeedForward, Index, Projection
from hyscale_model.scenario.models import DeepseekV3, DeepseekV4, LatentModel, SparseLatentModel
from hyscale_model.scenario.stages import selecting_layers


def latent_anatomy(model: DeepseekV3 | SparseLatentModel) -> Anatomy:
    """Latent attention in every layer; the first layers have a dense feed-forward, the others experts."""
    hidden = model.hidden_size
    if isinstance(model, SparseLatentModel):
        own = selecting_layers(model.num_hidden_layers, model.index_topk_freq, model.index_skip_topk_offset)
        kinds: list[AttentionKind] = [
            "dsa" if number in own else "dsa_shared" for number in range(1, model.num_hidden_layers + 1)
        ]
        attentions = [_sparse(model, own=True)] + ([_sparse(model, own=False)] if "dsa_shared" in kinds else [])
    else:
        kinds = ["mla"] * model.num_hidden_layers
        attentions = [_dense(model)]
    dense = FeedForward(kind="dense_ffn", intermediate=model.intermediate_size)
    moe = experts_of(model)
    ffns = ["dense_ffn" if layer < model.first_k_dense_replace else "moe" for layer in range(model.num_hidden_layers)]
    return Anatomy(
        hidden=hidden,
        vocabulary=model.vocab_size,
        layers=tuple(zip(kinds, ffns, strict=True)),
        attentions=tuple(attentions),
        feed_forwards=(dense, moe),
        norm_parameters=2 * hidden,
        embedding=model.vocab_size * hidden,
        head=hidden if model.tie_word_embeddings else (model.vocab_size + 1) * hidden,
        tied=model.tie_word_embeddings,
        # A layer that predicts computes an index of its own (GLM-5.2), and has experts.
        predicted=((attentions[0].kind, "moe"),) * model.num_nextn_predict_layers,
    )


def experts_of(model: DeepseekV3 | SparseLatentModel | DeepseekV4) -> FeedForward:
    """Routed and shared experts of DeepSeek models and their kin; the router has a balancing bias an expert."""
    return FeedForward(
        kind="moe",
        intermediate=model.moe_intermediate_size,
        experts=model.n_routed_experts,
        chosen=model.num_experts_per_tok,
        groups=getattr(model, "n_group", 1),
        open_groups=getattr(model, "topk_group", 1),
        shared_intermediate=model.n_shared_experts * model.moe_intermediate_size,
        router_parameters=(model.hidden_size + 1) * model.n_routed_experts,
    )


def _latent(model: LatentModel) -> int:
    return model.kv_lora_rank + model.qk_rope_head_dim


def _down(model: LatentModel) -> tuple[Projection, ...]:
    key = model.qk_nope_head_dim + model.qk_rope_head_dim
    return (
        Projection(name="q_down", inputs=model.hidden_size, outputs=model.q_lora_rank),
        Projection(name="kv_down", inputs=model.hidden_size, outputs=_latent(model)),
        Projection(name="q_up", inputs=model.q_lora_rank, outputs=model.num_attention_heads * key, split="outputs"),
    )


def _output(model: LatentModel) -> Projection:
    width = model.num_attention_heads * model.v_head_dim
    return Projection(name="output", inputs=width, outputs=model.hidden_size, split="inputs")


def _passed(model: LatentModel) -> int:
    """Norms of the low-rank queries and latents, rotary embedding of the queries: read and written."""
    return 2 * (model.q_lora_rank + _latent(model) + model.num_attention_heads * model.qk_rope_head_dim)


def _assembled(model: DeepseekV3) -> int:
    """Queries and keys put together from their parts with and without position, values cut out: read and written.

    Dense latent attention hands its kernel whole heads (Megatron-LM megatron/core/transformer/
    multi_latent_attention.py: two concatenations and a contiguous copy).
    """
    key = model.qk_nope_head_dim + model.qk_rope_head_dim
    return 2 * model.num_attention_heads * (2 * key + model.v_head_dim)


def _sparse(model: SparseLatentModel, own: bool) -> Attention:
    """Absorbed form: queries and outputs pass into and out of latent space, keys and values are the latent itself."""
    heads, rank = model.num_attention_heads, model.kv_lora_rank
    query = model.index_n_heads * model.index_head_dim
    index = Index(
        heads=model.index_n_heads,
        head_dim=model.index_head_dim,
        topk=model.index_topk,
        ratio=1,
        projections=(
            Projection(name="query", inputs=model.q_lora_rank, outputs=query),
            Projection(name="key", inputs=model.hidden_size, outputs=model.index_head_dim),
            Projection(name="weights", inputs=model.hidden_size, outputs=model.index_n_heads),
        ),
        parameters=2 * model.index_head_dim,
    )
    absorb = Projection(name="q_absorb", inputs=model.qk_nope_head_dim, outputs=rank, groups=heads, split="groups")
    expand = Projection(name="v_absorb", inputs=rank, outputs=model.v_head_dim, groups=heads, split="groups")
    return Attention(
        kind="dsa" if own else "dsa_shared",
        before=(*_down(model), absorb),
        after=(expand, _output(model)),
        core=Core(
            form="sparse",
            heads=heads,
            groups=1,
            key_width=_latent(model),
            value_width=rank,
            gathered_values=_latent(model),
            topk=model.index_topk,
        ),
        index=index if own else None,
        norm_parameters=model.q_lora_rank + rank,
        passed_values=_passed(model),
    )


def _dense(model: DeepseekV3) -> Attention:
    heads = model.num_attention_heads
    widths = model.qk_nope_head_dim + model.v_head_dim
    up = Projection(name="kv_up", inputs=model.kv_lora_rank, outputs=heads * widths, split="outputs")
    return Attention(
        kind="mla",
        before=(*_down(model), up),
        after=(_output(model),),
        core=Core(
            form="dense",
            heads=heads,
            groups=heads,
            key_width=model.qk_nope_head_dim + model.qk_rope_head_dim,
            value_width=model.v_head_dim,
            # Context ranks exchange keys and values as the core reads them, not the latent (Megatron-Core, MLA).
            gathered_values=heads * (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim),
        ),
        norm_parameters=model.q_lora_rank + model.kv_lora_rank,
        passed_values=_passed(model) + _assembled(model),
    )
