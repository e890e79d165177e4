"""DeepSeek-V4 (arXiv 2606.19348): compressed sparse attention, heavily compressed attention, sliding windows.

Keys and values are one shared vector a token. CSA pools two series of keys over blocks of ``ratio`` tokens and selects
entries with an indexer of its own, compressed likewise; HCA pools one series over larger blocks and attends to all of
them; every layer also attends to a window of raw tokens. The output is projected in groups.
"""

from __future__ import annotations

from hyscale_model.families.anatomy import Anatomy, Attention, Core, Index, Projection
from hyscale_model.families.latent import experts_of
from hyscale_model.scenario.models import DeepseekV4, compressed_kind


def v4_anatomy(model: DeepseekV4) -> Anatomy:
    """Layers by their compression ratio; all have experts."""
    hidden = model.hidden_size
    ratios = model.layer_ratios
    # The layers that predict further tokens attend to their window only.
    predicted = (0,) * model.num_nextn_predict_layers
    attentions = [_attention(model, ratio) for ratio in dict.fromkeys((*ratios, *predicted))]
    moe = experts_of(model)
    return Anatomy(
        hidden=hidden,
        vocabulary=model.vocab_size,
        layers=tuple((compressed_kind(ratio), "moe") for ratio in ratios),
        attentions=tuple(attentions),
        feed_forwards=(moe,),
        norm_parameters=2 * hidden,
        embedding=model.vocab_size * hidden,
        head=hidden if model.tie_word_embeddings else (model.vocab_size + 1) * hidden,
        tied=model.tie_word_embeddings,
        predicted=tuple((compressed_kind(ratio), "moe") for ratio in predicted),
        streams=model.hc_mult,
    )


def _attention(model: DeepseekV4, ratio: int) -> Attention:
    hidden, width, heads = model.hidden_size, model.head_dim, model.num_attention_heads
    kind = compressed_kind(ratio)
    before = [
        Projection(name="q_down", inputs=hidden, outputs=model.q_lora_rank),
        Projection(name="q_up", inputs=model.q_lora_rank, outputs=heads * width, split="outputs"),
        Projection(name="kv", inputs=hidden, outputs=width),
    ]
    series = {"swa": 0, "csa": 2, "hca": 1}[kind]
    if series:
        before.append(Projection(name="compressor", inputs=hidden, outputs=2 * series * width))
    after = (
        Projection(
            name="output_groups",
            inputs=heads * width // model.o_groups,
            outputs=model.o_lora_rank,
            groups=model.o_groups,
            split="groups",
        ),
        Projection(name="output", inputs=model.o_groups * model.o_lora_rank, outputs=hidden, split="inputs"),
    )
    core = Core(
        form="dense" if kind == "hca" else "sparse",
        heads=heads,
        groups=1,
        key_width=width,
        value_width=width,
        gathered_values=width / ratio if ratio else 0,
        topk=model.index_topk if kind == "csa" else 0,
        ratio=ratio or 1,
        window=model.sliding_window,
    )
    gate_bias = ratio * 2 * series // 2 * width if series else 0
    return Attention(
        kind=kind,
        before=tuple(before),
        after=after,
        core=core,
        index=_index(model, ratio) if kind == "csa" else None,
        norm_parameters=model.q_lora_rank + width + heads + gate_bias,
        # Norm of the low-rank queries and keys, rotary embedding of 64 values a head, pooling of the series.
        passed_values=2 * (model.q_lora_rank + width + 64 * heads) + 4 * series * width,
    )


def _index(model: DeepseekV4, ratio: int) -> Index:
    width = model.index_head_dim
    return Index(
        heads=model.index_n_heads,
        head_dim=width,
        topk=model.index_topk,
        ratio=ratio,
        projections=(
            Projection(name="query", inputs=model.q_lora_rank, outputs=model.index_n_heads * width),
            Projection(name="key", inputs=model.hidden_size, outputs=4 * width),
            Projection(name="weights", inputs=model.hidden_size, outputs=model.index_n_heads),
        ),
        parameters=width + ratio * 2 * width,
    )
