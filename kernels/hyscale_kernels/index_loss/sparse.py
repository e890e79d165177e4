"""Divergence of scores from a teacher over selected keys."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch.autograd.function import once_differentiable

from hyscale_kernels.index_loss.triton import divergence_kernel

# The most entries of a row at a time, so that they stay in registers.
MOST_AT_ONCE = 2048


def divergences(
    scores: torch.Tensor, indices: torch.Tensor, teacher: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(teacher || softmax(scale * scores)) of each row, and its gradient with respect to scores.

    Args:
        scores: FP32 ``[n, k]``; teacher: ``[n, k]``; both ignored where ``indices [n, k]`` are negative.

    Returns:
        FP32 ``[n]`` and ``[n, k]``; 0 for rows whose teacher is nothing but zeros.

    Raises:
        ValueError: a teacher that is negative or not finite.
    """
    n, topk = scores.shape
    losses, grads = torch.zeros(n, device=scores.device), torch.empty_like(scores)
    if not scores.numel():
        return losses, grads
    wrong = torch.empty(n, dtype=torch.int32, device=scores.device)
    divergence_kernel[(n,)](
        scores.contiguous(),
        indices.contiguous(),
        teacher.contiguous(),
        losses,
        grads,
        wrong,
        topk,
        scale,
        BLOCK=min(triton.next_power_of_2(topk), MOST_AT_ONCE),
        num_warps=4,
    )
    if bool(wrong.any()):
        raise ValueError("teacher must be finite and at least 0 wherever an index is not -1")
    return losses, grads


def sparse_divergence(scores: torch.Tensor, indices: torch.Tensor, teacher: torch.Tensor, scale: float) -> torch.Tensor:
    """The losses of ``divergences``, differentiable in scores."""
    return _Divergence.apply(scores, indices, teacher, scale)


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, indices: torch.Tensor, teacher: torch.Tensor, scale: float
    ) -> torch.Tensor:
        losses, grads = divergences(scores, indices, teacher, scale)
        ctx.save_for_backward(grads)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_losses: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grads,) = ctx.saved_tensors
        return grad_losses[:, None] * grads, None, None, None
