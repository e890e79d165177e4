"""Bytes of selection and of gathered keys in one attention layer and micro-batch, from shapes."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, equals, maximum, minimum, where
from hyscale_model.families.anatomy import Attention
from hyscale_model.layers.attention import gathered_bytes
from hyscale_model.layers.selection import (
    Selector,
    candidate_bytes,
    kept_table_bytes,
    radix_bytes,
    score_table_bytes,
    topk_output_bytes,
)
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, OWN_BACKEND, Sizes
from hyscale_model.memory.launches import between_launches
from hyscale_model.scenario.schema import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionBytes:
    """Bytes of one attention layer and micro-batch on one GPU, beside its activations.

    Attributes:
        indices: the kept selection; ``loss``: gradients of the kept scores.
        table: score table; ``topk_outputs``: values and indices as torch.topk gives them.
        kept_table: all scores of the layer.
        candidates: buffers of HyTopK or of a radix top-k.
        gathered: keys and values of the sequence, with index keys.
        index_keys: the part of it that the index loss alone reads in the backward.
        gradients: gradients of what was gathered, BF16, and FP32 sums of the larger part.
    """

    indices: Number = 0.0
    loss: Number = 0.0
    table: Number = 0.0
    topk_outputs: Number = 0.0
    kept_table: Number = 0.0
    candidates: Number = 0.0
    gathered: Number = 0.0
    index_keys: Number = 0.0
    gradients: Number = 0.0


def selection_bytes(case: Scenario, sizes: Sizes, attention: Attention) -> SelectionBytes:
    """Count the bytes; see ``SelectionBytes``. Only gathered keys exist where nothing is selected."""
    index, core = attention.index, attention.core
    keys, index_keys = gathered_bytes(case, sizes, attention)
    trains_index = equals(case.training.index_loss, "sparse") if index else 0.0
    values: Number = sizes.held_tokens * core.gathered_values
    indexed: Number = trains_index * sizes.held_tokens * index.head_dim / index.ratio if index else 0.0
    # One after the other: sums of the first are rounded and gone before those of the second.
    rounded = BF16_BYTES * values
    if index and case.systems[0].backend == OWN_BACKEND:
        # While sums grow two launches' buffers are there, those of the last one when sums are rounded.
        together = case.systems[0].sparse_attention == "query_pairs"
        growing, last = between_launches(sizes, core, case.layout.tp, together)
        rounded = maximum(growing, rounded + last)
    gradients = rounded + BF16_BYTES * indexed + FP32_BYTES * maximum(values, indexed)
    if index is None:
        # Dense attention reads its own keys where no rank has others.
        alone = core.form == "dense" and core.ratio == 1
        exists = where(case.layout.cp > 1, 1.0, 0.0) if alone else 1.0
        gathers = exists * equals(case.layout.cp_kind, "allgather") if alone else 1.0
        return SelectionBytes(gathered=gathers * keys, gradients=gathers * gradients)
    selector = Selector.of(case, index, sizes)
    kept = sizes.queries * minimum(index.topk, selector.rows.keys)
    hytopk = case.systems[0].selection == "hytopk"
    return SelectionBytes(
        indices=INT32_BYTES * kept,
        loss=FP32_BYTES * kept * trains_index,
        table=0.0 if hytopk else score_table_bytes(selector),
        topk_outputs=0.0 if hytopk else topk_output_bytes(selector),
        kept_table=kept_table_bytes(selector),
        candidates=candidate_bytes(selector) if hytopk else radix_bytes(selector),
        gathered=keys + index_keys,
        index_keys=index_keys,
        gradients=gradients,
    )
