"""Check inputs, and scores as a differentiable function."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from hyscale_kernels.replay.gradients import Gradients, gradients, unfilled
from hyscale_kernels.replay.rescore import rescore
from hyscale_kernels.scoring.inputs import FP8, Scored


def replay(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    deterministic: bool = False,
) -> torch.Tensor:
    """Scores of selected keys, with the bits of a score table; differentiable in q, keys and weights.

    Args:
        q: BF16 or FP8 E4M3 ``[n, heads, dim]``; keys: the same type, ``[L, dim]``.
        weights: ``[n, heads]`` of any sign, or None for ones.
        indices: int32 ``[n, k]``, keys of each query; -1 stands for none.
        q_scale: positive ``[n, heads]``; key_scale: positive ``[L]``; scales of quantised inputs, without a gradient.
        deterministic: the gradient of keys has the same bits whatever the order of queries.

    Returns:
        FP32 ``[n, k]``, 0 where an index is -1. Gradients are of the type of their inputs; those of a key that several
        queries selected are added up in FP32 before.

    Raises:
        ValueError: an input that does not fit the others, with what would, or FP8 that requires a gradient.
    """
    refuse_fp8_gradients(q, keys)
    scored = checked(q, keys, weights, indices, q_scale, key_scale)
    return _Replay.apply(q, keys, weights, scored, indices.contiguous(), q_scale, deterministic)


def replay_gradients(
    grad_scores: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    deterministic: bool = False,
) -> Gradients:
    """FP32 gradients of q, keys and weights from those of their scores, for FP8 too.

    Where there are scales, gradients are those of the values that quantised inputs stand for, ``q * q_scale`` and
    ``keys * key_scale``. Weights of None have the gradient of ones.

    Args:
        grad_scores: ``[n, k]``; what it says of an index of -1 is ignored. The others are those of ``replay``.

    Raises:
        ValueError: an input that does not fit the others, with what would.
    """
    scored = checked(q, keys, weights, indices, q_scale, key_scale)
    if grad_scores.shape != indices.shape or not grad_scores.dtype.is_floating_point:
        raise ValueError(
            f"grad_scores must be floating point {tuple(indices.shape)}, is {grad_scores.dtype} "
            f"{tuple(grad_scores.shape)}"
        )
    return dequantised(scored, indices.contiguous(), grad_scores, q.shape[1], q.shape[2], q_scale, deterministic)


def refuse_fp8_gradients(q: torch.Tensor, keys: torch.Tensor) -> None:
    """Raise ValueError if FP8 requires a gradient, which would be rounded to FP8."""
    for name, value in (("q", q), ("keys", keys)):
        if value.dtype == FP8 and value.requires_grad:
            raise ValueError(f"{name} is FP8, which holds no gradients: detach it, and see replay_gradients")


def checked(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    q_scale: torch.Tensor | None,
    key_scale: torch.Tensor | None,
) -> Scored:
    """Inputs ready to launch, outside of what autograd records.

    Raises:
        ValueError: as ``replay``.
    """
    if indices.dtype != torch.int32 or indices.ndim != 2 or indices.shape[0] != q.shape[0]:
        raise ValueError(f"indices must be int32 ({q.shape[0]}, k), are {indices.dtype} {tuple(indices.shape)}")
    if keys.ndim == 2 and indices.numel():
        least, most = torch.aminmax(indices)
        # One look at the device.
        if bool((least < -1) | (most >= keys.shape[0])):
            raise ValueError(f"indices must be -1 or a key, 0 to {keys.shape[0] - 1}")
    with torch.no_grad():
        spans = torch.zeros(q.shape[0], 2, dtype=torch.int32, device=q.device)
        return Scored.of(
            q.detach(), keys.detach(), None if weights is None else weights.detach(), spans, q_scale, key_scale
        )


def dequantised(
    scored: Scored,
    places: torch.Tensor,
    grad_scores: torch.Tensor,
    heads: int,
    dim: int,
    q_scale: torch.Tensor | None,
    deterministic: bool,
) -> Gradients:
    """Gradients of the values that ``heads`` and ``dim`` of prepared inputs stand for."""
    grad_scores = grad_scores.float().contiguous()
    found = unfilled(gradients(scored, places, grad_scores, deterministic), heads, dim)
    if q_scale is None:
        return found
    # The scale was part of the weights.
    scale = q_scale.float()
    return Gradients(found.q / scale[..., None], found.keys, found.weights * scale)


class _Replay(torch.autograd.Function):
    """Rescoring, with gradients of inputs as they are stored."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        scored: Scored,
        indices: torch.Tensor,
        q_scale: torch.Tensor | None,
        deterministic: bool,
    ) -> torch.Tensor:
        scores = torch.empty(indices.shape, device=q.device)
        rescore(scored, indices, scores)
        # Checked and filled up once: the backward need not look at the device again.
        ctx.save_for_backward(scored.q, scored.keys, scored.weights, scored.key_scale, scored.spans, indices, q_scale)
        ctx.dtype, ctx.deterministic, ctx.filled_from = scored.dtype, deterministic, q.shape[1:]
        ctx.dtypes = q.dtype, keys.dtype, None if weights is None else weights.dtype
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, keys, weights, key_scale, spans, indices, q_scale = ctx.saved_tensors
        scored = Scored(q=q, keys=keys, weights=weights, key_scale=key_scale, spans=spans, dtype=ctx.dtype)
        heads, dim = ctx.filled_from
        found = dequantised(scored, indices, grad_scores, heads, dim, q_scale, ctx.deterministic)
        dq = found.q if q_scale is None else found.q * q_scale.float()[..., None]
        dkeys = found.keys if key_scale is None else found.keys * key_scale[:, None]
        wanted = (
            each.to(dtype) if needed else None
            for each, dtype, needed in zip((dq, dkeys, found.weights), ctx.dtypes, ctx.needs_input_grad, strict=False)
        )
        return (*wanted, None, None, None, None)
