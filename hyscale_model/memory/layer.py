"""Bytes of one layer and one micro-batch on one GPU, from shapes."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, equals, minimum
from hyscale_model.families.anatomy import Anatomy, Attention, FeedForward
from hyscale_model.layers.attention import gathered_bytes
from hyscale_model.layers.selection import (
    Selector,
    candidate_bytes,
    kept_table_bytes,
    score_table_bytes,
    topk_output_bytes,
)
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBytes:
    """Bytes of one attention layer and micro-batch on one GPU.

    Attributes:
        activations: of the attention blocks between their forward and backward.
        indices: the kept selection; ``loss``: gradients of the kept scores.
        table: score table; ``topk_outputs``: values and indices as torch.topk gives them.
        kept_table: all scores of the layer.
        candidates: HyTopK's buffers; ``gathered``: keys and values of the sequence, with index keys.
        gradients: gradients of what was gathered, FP32 and their BF16 copy.
    """

    activations: Number
    indices: Number
    loss: Number
    table: Number
    topk_outputs: Number
    kept_table: Number
    candidates: Number
    gathered: Number
    gradients: Number


def attention_bytes(case: Scenario, sizes: Sizes, attention: Attention, hidden: int) -> AttentionBytes:
    """Count the bytes; see ``AttentionBytes``."""
    index, core = attention.index, attention.core
    keys, index_keys = gathered_bytes(sizes, attention)
    trains_index = equals(case.training.index_loss, "sparse") if index else 0.0
    values: Number = sizes.held_tokens * core.gathered_values
    if index:
        values = values + trains_index * sizes.held_tokens * index.head_dim / index.ratio
    activations = BF16_BYTES * sizes.tokens * _token_values(case, attention, hidden)
    gradients = (FP32_BYTES + BF16_BYTES) * values
    if index is None:
        return AttentionBytes(
            activations=activations,
            indices=0.0,
            loss=0.0,
            table=0.0,
            topk_outputs=0.0,
            kept_table=0.0,
            candidates=0.0,
            gathered=keys,
            gradients=gradients,
        )
    selector = Selector.of(case, index, sizes)
    kept = sizes.queries * minimum(index.topk, selector.rows.keys)
    hytopk = case.systems[0].selection == "hytopk"
    return AttentionBytes(
        activations=activations,
        indices=INT32_BYTES * kept,
        loss=FP32_BYTES * kept * trains_index,
        table=0.0 if hytopk else score_table_bytes(selector),
        topk_outputs=0.0 if hytopk else topk_output_bytes(selector),
        kept_table=kept_table_bytes(selector),
        candidates=candidate_bytes(selector) if hytopk else 0.0,
        gathered=keys + index_keys,
        gradients=gradients,
    )


def _token_values(case: Scenario, attention: Attention, hidden: int) -> Number:
    """Values of a token: normalised and plain input, what projections give, core output, index queries."""
    tp = case.layout.tp
    values: Number = 2 * hidden
    for each in (*attention.before, *attention.after[:-1]):
        values = values + each.groups * each.outputs / (tp if each.split in ("outputs", "groups") else 1)
    values = values + attention.core.heads / tp * attention.core.value_width + attention.passed_values / 2 / tp
    if attention.index:
        values = values + attention.index.heads * attention.index.head_dim
    return values


def feed_forward_bytes(case: Scenario, sizes: Sizes, ffn: FeedForward, hidden: int) -> Number:
    """Activations of a feed-forward: a copy as sent and as received, up and gate, their product."""
    if ffn.kind == "dense_ffn":
        return BF16_BYTES * sizes.tokens * (2 * hidden + ffn.matrices * ffn.intermediate / case.layout.tp)
    copies = sizes.queries * ffn.chosen * case.layout.etp * case.training.moe_imbalance
    return BF16_BYTES * copies * (2 * hidden + ffn.matrices * ffn.intermediate / case.layout.etp)


def kept_bytes(sizes: Sizes, body: Anatomy) -> Number:
    """The input of a layer, all its residual streams, that full recomputation starts from."""
    return BF16_BYTES * sizes.queries * body.hidden * body.streams


def logits_bytes(case: Scenario, sizes: Sizes, body: Anatomy) -> Number:
    """BF16 and FP32 logits."""
    return (BF16_BYTES + FP32_BYTES) * sizes.tokens * body.vocabulary / case.layout.tp
