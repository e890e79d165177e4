"""Divergence of scores from a teacher over selected keys."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

# Entries that are computed at a time; each passes through a dozen tensors.
CHUNK = 2**22


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
    losses, grads = torch.empty(n, device=scores.device), torch.empty_like(scores)
    wrong = torch.zeros((), dtype=torch.bool, device=scores.device)
    size = max(1, CHUNK // max(topk, 1))
    for first in range(0, n, size):
        rows = slice(first, first + size)
        some = indices[rows] >= 0
        shares = teacher[rows].float().where(some, 0.0)
        # NaN is not within these bounds either.
        wrong |= ~((shares >= 0) & (shares < torch.inf)).all()
        total = shares.sum(-1, keepdim=True)
        shares = shares / total
        student = torch.log_softmax((scale * scores[rows]).masked_fill(~some, -torch.inf), dim=-1)
        terms = (shares * (shares.log() - student)).where(shares > 0, 0.0)
        losses[rows] = terms.sum(-1).where(total[:, 0] > 0, 0.0)
        grads[rows] = (scale * (student.exp() - shares)).where(some & (total > 0), 0.0)
    if bool(wrong):
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
