"""Bytes of the output head, and buffers that frameworks hold from the first step on.

With T tokens, hidden h, vocabulary V, tp tensor ranks:

    unfused, native cross-entropy   BF16 logits beside FP32 probabilities in the forward, FP32 beside BF16 gradients in
                                    the backward: 6 T V / tp at once, of which 4 T V / tp are kept in between
    te cross-entropy                gradients take the place of the BF16 logits: 2 T V / tp
    final norm                      2 h n in, 2 h n out
    backward of the head            the gradient of its input, 2 h T

Weight gradients are added to the FP32 buffer inside the product, and PyTorch is handed a placeholder of the weight's
shape instead; Transformer Engine keeps one placeholder of each shape (``get_dummy_wgrad``). cuBLAS workspaces are 32
MiB on Hopper and later, and as many again for each stream of grouped products. Sources: Megatron-LM
tensor_parallel/{layers,cross_entropy}.py and fusions/fused_cross_entropy.py, Transformer Engine module/base.py and
cpp_extensions/gemm.py, snapshots of 2026-08-22; in-place gradients as in its triton cross-entropy up to version 2.9.
"""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number, where
from hyscale_model.families.anatomy import Anatomy
from hyscale_model.layers.kept import shard_tokens
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario

CUBLAS_WORKSPACE_BYTES = 32 * 2**20
GROUPED_STREAMS = 4


def logits_bytes(case: Scenario, sizes: Sizes, body: Anatomy) -> Number:
    """Logits and their gradients at the fullest moment of the head, those of multi-token prediction included."""
    values = sizes.tokens * body.vocabulary / case.layout.tp
    if case.training.cross_entropy_fusion == "te":
        return BF16_BYTES * values * (1 + body.predicted_layers)
    # Losses of further tokens come first and wait for their backward with FP32 probabilities.
    return values * (BF16_BYTES + FP32_BYTES + FP32_BYTES * body.predicted_layers)


def head_activations(case: Scenario, sizes: Sizes, body: Anatomy) -> Number:
    """Input and output of the final norm, and the gradient of the head's input."""
    shard = shard_tokens(case, sizes)
    return BF16_BYTES * body.hidden * (2 * shard * (1 + body.predicted_layers) + sizes.tokens)


def placeholder_bytes(case: Scenario, body: Anatomy, runs: dict[str, np.ndarray]) -> Number:
    """Placeholders of weight gradients on each rank, one a distinct shape; ``runs``: blocks by name and rank."""
    tp, hidden, etp = case.layout.tp, body.hidden, case.layout.etp
    total: Number = (runs["head"] > 0) * (hidden * body.vocabulary / tp)
    for attention in body.attentions:
        split = sum(each.inputs * each.outputs for each in attention.projections if each.split in ("outputs", "inputs"))
        whole = sum(each.inputs * each.outputs for each in attention.projections if each.split == "none")
        total = total + (runs[f"{attention.kind}.core"] > 0) * (split / tp + whole)
    for ffn in body.feed_forwards:
        width = ffn.shared_intermediate / tp + ffn.intermediate / (etp if ffn.kind == "moe" else tp)
        total = total + (runs[ffn.kind] > 0) * (ffn.matrices * hidden * width)
    return BF16_BYTES * total


def workspace_bytes(case: Scenario, sizes: Sizes, body: Anatomy, runs: dict[str, np.ndarray]) -> Number:
    """Placeholders, cuBLAS workspaces, and the buffer into which the head gathers its input."""
    gathered = where(case.layout.tp > 1, BF16_BYTES * sizes.tokens * body.hidden, 0.0)
    streams = 1 + GROUPED_STREAMS * any(ffn.experts for ffn in body.feed_forwards)
    head = (runs["head"] > 0) * gathered
    return placeholder_bytes(case, body, runs) + head + streams * CUBLAS_WORKSPACE_BYTES
