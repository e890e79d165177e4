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

from hyscale_model.arrays import Number, equals, minimum, where
from hyscale_model.families.anatomy import Anatomy
from hyscale_model.layers.kept import shard_tokens
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario

CUBLAS_WORKSPACE_BYTES = 32 * 2**20
# DeepEP: channels of 20 SMs, ranks that share NVLink, tokens that a channel's queue holds (up to a number of ranks over
# NVLink, over adapters), and bytes beside the hidden vector: 128 expert numbers, weights and scales, source.
DEEPEP_CHANNELS, DEEPEP_PEERS = 10, 8
DEEPEP_QUEUE = ((8, 256), (64, 288), (96, 480), (128, 560))
DEEPEP_LONGEST_QUEUE, DEEPEP_ADAPTER_QUEUE = 720, 128
DEEPEP_BESIDE = 128 * (8 + 4 + 4)
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


def deepep_bytes(case: Scenario, body: Anatomy) -> Number:
    """Queues of DeepEP on a GPU, outside the allocator; 0 with another dispatcher.

    Over NVLink channels x min(ranks, 8) x queue x token, over adapters channels x nodes x 128 x token in both
    directions (get_nvl_buffer_size_hint and get_rdma_buffer_size_hint in csrc/config.hpp, queues of get_dispatch_config
    in deep_ep/buffer.py, deepseek-ai/DeepEP).
    """
    used = equals(case.systems[0].dispatcher, "deepep") * any(ffn.experts for ffn in body.feed_forwards)
    ranks: Number = case.layout.ep
    queue: Number = DEEPEP_LONGEST_QUEUE
    for most, tokens in reversed(DEEPEP_QUEUE):
        queue = where(ranks <= most, tokens, queue)
    token = BF16_BYTES * body.hidden + DEEPEP_BESIDE
    beside = DEEPEP_CHANNELS * minimum(ranks, DEEPEP_PEERS) * queue * token
    between = 2 * DEEPEP_CHANNELS * ranks / DEEPEP_PEERS * DEEPEP_ADAPTER_QUEUE * token
    return used * where(ranks > 1, beside + where(ranks > DEEPEP_PEERS, between, 0.0), 0.0)


def workspace_bytes(case: Scenario, sizes: Sizes, body: Anatomy, runs: dict[str, np.ndarray]) -> Number:
    """Placeholders, cuBLAS workspaces, and the buffer into which the head gathers its input."""
    gathered = where(case.layout.tp > 1, BF16_BYTES * sizes.tokens * body.hidden, 0.0)
    streams = 1 + GROUPED_STREAMS * any(ffn.experts for ffn in body.feed_forwards)
    head = (runs["head"] > 0) * gathered
    return placeholder_bytes(case, body, runs) + head + streams * CUBLAS_WORKSPACE_BYTES
