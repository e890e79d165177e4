"""Check inputs and reduce the losses of queries."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch

from hyscale_kernels.index_loss.dense import Dense, dense_divergence
from hyscale_kernels.index_loss.sparse import sparse_divergence
from hyscale_kernels.replay.api import refuse_fp8_gradients, replay
from hyscale_kernels.scoring.inputs import Scored

Reduction = Literal["mean", "sum", "none"]
# 256 MiB of FP32.
BLOCK_ELEMENTS = 2**26


def sparse_index_loss(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    teacher: torch.Tensor,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    scale: float = 1.0,
    reduction: Reduction = "mean",
    deterministic: bool = False,
) -> torch.Tensor:
    """KL(teacher || softmax of the indexer's scores) over the selected keys, natural logarithm, in FP32.

    Differentiable in q, keys and weights; the teacher, scales and indices have no gradient.

    Args:
        q, keys, weights, indices, q_scale, key_scale, deterministic: as for ``replay``.
        teacher: ``[n, k]``, attention's probabilities of the selected keys, divided here by their sum. Ignored where an
            index is -1. A query whose teacher is nothing but zeros has a loss of 0 and no gradient.
        scale: what scores are multiplied by in the softmax.
        reduction: ``mean`` over all n queries, ``sum``, or ``none`` for ``[n]``.

    Raises:
        ValueError: an input that does not fit the others, with what would; a teacher that is negative or not finite.
    """
    _check(reduction, scale=scale)
    if teacher.shape != indices.shape or not teacher.dtype.is_floating_point:
        raise ValueError(
            f"teacher must be floating point {tuple(indices.shape)}, is {teacher.dtype} {tuple(teacher.shape)}"
        )
    scores = replay(q, keys, weights, indices, q_scale=q_scale, key_scale=key_scale, deterministic=deterministic)
    return _reduced(sparse_divergence(scores, indices, teacher.detach(), scale), reduction)


def dense_index_loss(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    attention_q: torch.Tensor,
    attention_k: torch.Tensor,
    softmax_scale: float,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    scale: float = 1.0,
    reduction: Reduction = "mean",
    block_elements: int = BLOCK_ELEMENTS,
) -> torch.Tensor:
    """KL(attention || softmax of the indexer's scores) over all visible keys, natural logarithm, in FP32.

    Attention's distribution is the mean of its heads' softmax. Differentiable in q, keys and weights, with the same
    bits every time; attention and scales have no gradient.

    Args:
        q, keys, weights, spans, q_scale, key_scale: as for ``score_table``.
        attention_q: ``[n, attention heads, width]``; attention_k: the same type, ``[L, width]`` if all heads share it,
            or ``[L, groups, width]`` with as many heads to each group.
        softmax_scale: what attention's products are multiplied by; scale: what the indexer's scores are.
        reduction: ``mean`` over all n queries, ``sum``, or ``none`` for ``[n]``. A query that sees nothing has a loss
            of 0.
        block_elements: (query, head, key) triples computed at a time; two tensors of as many FP32 exist at once, and
            nothing larger than them, the inputs and their gradients. More queries at a time read keys less often.

    Raises:
        ValueError: an input that does not fit the others, with what would.
    """
    _check(reduction, scale=scale, softmax_scale=softmax_scale)
    if block_elements < 1:
        raise ValueError(f"block_elements must be at least 1, is {block_elements}")
    refuse_fp8_gradients(q, keys)
    scored = Scored.of(q, keys, weights, spans, q_scale, key_scale)
    by_group = attention_k[:, None] if attention_k.ndim == 2 else attention_k
    _check_attention(attention_q, by_group, q.shape[0], keys.shape[0])
    dense = Dense(
        scored=scored,
        attention_q=attention_q.detach(),
        attention_k=by_group.detach(),
        softmax_scale=softmax_scale,
        scale=scale,
        block_elements=block_elements,
    )
    return _reduced(dense_divergence(q, keys, weights, dense, q_scale), reduction)


def _check_attention(attention_q: torch.Tensor, attention_k: torch.Tensor, n: int, length: int) -> None:
    shapes = f"they are {tuple(attention_q.shape)} and {tuple(attention_k.shape)}"
    fits = attention_q.ndim == attention_k.ndim == 3
    if not fits or attention_q.shape[0] != n or attention_k.shape[0] != length:
        raise ValueError(
            f"attention_q must be ({n}, heads, width) and attention_k ({length}, width) or ({length}, groups, width), "
            + shapes
        )
    if attention_q.shape[2] != attention_k.shape[2]:
        raise ValueError(f"attention_q and attention_k must be equally wide, {shapes}")
    if not attention_q.shape[1] or not attention_k.shape[1] or attention_q.shape[1] % attention_k.shape[1]:
        raise ValueError(f"every group of attention_k must have as many heads, {shapes}")
    if attention_q.dtype != attention_k.dtype or attention_q.dtype not in (
        torch.bfloat16,
        torch.float16,
        torch.float32,
    ):
        raise ValueError(
            "attention_q and attention_k must both be bfloat16, float16 or float32, they are "
            f"{attention_q.dtype} and {attention_k.dtype}"
        )


def _check(reduction: str, **scales: float) -> None:
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be one of {', '.join(get_args(Reduction))}, is {reduction!r}")
    for name, value in scales.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, is {value}")


def _reduced(losses: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    """The mean of no queries is 0."""
    if reduction == "none":
        return losses
    return losses.sum() / max(len(losses), 1) if reduction == "mean" else losses.sum()
