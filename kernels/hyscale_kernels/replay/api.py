"""Check inputs, and scores as a differentiable operator."""

from __future__ import annotations

from typing import Any

import torch

from hyscale_kernels.indices import check_indices
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
    return replay_op(q, keys, weights, indices, q_scale, key_scale, deterministic)


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
    if grad_scores.shape != indices.shape or not grad_scores.dtype.is_floating_point:
        raise ValueError(
            f"grad_scores must be floating point {tuple(indices.shape)}, is {grad_scores.dtype} "
            f"{tuple(grad_scores.shape)}"
        )
    return Gradients(*gradients_op(grad_scores, q, keys, weights, indices, q_scale, key_scale, deterministic))


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
    if keys.ndim == 2:
        check_indices(indices, keys.shape[0])
    spans = torch.zeros(q.shape[0], 2, dtype=torch.int32, device=q.device)
    scored, wrong = Scored.prepared(q, keys, weights, spans, q_scale, key_scale)
    # Of the spans nothing can be.
    if q_scale is not None or key_scale is not None:
        scored.check(wrong.tolist())
    return scored


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


@torch.library.custom_op("hyscale::replay", mutates_args=())
def replay_op(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    deterministic: bool = False,
) -> torch.Tensor:
    """``replay`` as an operator of PyTorch."""
    scores = torch.empty(indices.shape, device=q.device)
    rescore(checked(q, keys, weights, indices, q_scale, key_scale), indices.contiguous(), scores)
    return scores


@replay_op.register_fake
def _(
    q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, indices: torch.Tensor, *_: Any
) -> torch.Tensor:
    return q.new_empty(indices.shape, dtype=torch.float32)


@torch.library.custom_op("hyscale::replay_gradients", mutates_args=())
def gradients_op(
    grad_scores: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``replay_gradients`` as an operator of PyTorch."""
    scored = checked(q, keys, weights, indices, q_scale, key_scale)
    found = dequantised(scored, indices.contiguous(), grad_scores, q.shape[1], q.shape[2], q_scale, deterministic)
    return found.q, found.keys, found.weights


@gradients_op.register_fake
def _(
    grad_scores: torch.Tensor, q: torch.Tensor, keys: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(q.new_empty(shape, dtype=torch.float32) for shape in (q.shape, keys.shape, q.shape[:2]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    *tensors, ctx.deterministic = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad_scores: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradients of inputs as they are stored."""
    q, keys, weights, indices, q_scale, key_scale = ctx.saved_tensors
    dq, dkeys, dweights = gradients_op(grad_scores, q, keys, weights, indices, q_scale, key_scale, ctx.deterministic)
    if q_scale is not None:
        dq = dq * q_scale.float()[..., None]
    if key_scale is not None:
        dkeys = dkeys * key_scale.float()[:, None]
    wanted = (
        found.to(given.dtype) if needed else None
        for found, given, needed in zip((dq, dkeys, dweights), (q, keys, weights), ctx.needs_input_grad, strict=False)
    )
    return (*wanted, None, None, None, None)


replay_op.register_autograd(_backward, setup_context=_keep)
