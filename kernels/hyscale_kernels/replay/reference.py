"""Scores of selected keys and their gradients in float64."""

from __future__ import annotations

import torch

from hyscale_kernels.replay.gradients import Gradients


def replay(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """sum over heads of weight * relu(q . key) for the keys ``indices [n, k]``, 0 where an index is -1.

    Args:
        q: ``[n, heads, dim]``; keys: ``[L, dim]``; weights: ``[n, heads]`` or None for ones.
        q_scale: ``[n, heads]`` and key_scale: ``[L]`` of quantised inputs, positive.

    Returns:
        float64 ``[n, k]``, differentiable in q, keys and weights.
    """
    q64, keys64 = q.double(), keys.double()
    if q_scale is not None:
        q64 = q64 * q_scale.double()[..., None]
    if key_scale is not None:
        keys64 = keys64 * key_scale.double()[:, None]
    rows = []
    for t in range(q.shape[0]):
        some = indices[t] >= 0
        products = torch.relu(q64[t] @ keys64[indices[t][some].long()].T)
        scores = products.sum(0) if weights is None else weights[t].double() @ products
        rows.append(scores.new_zeros(indices.shape[1]).masked_scatter(some, scores))
    return torch.stack(rows) if rows else q64.new_zeros(indices.shape)


def gradients(
    grad_scores: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> Gradients:
    """Gradients of the values that inputs stand for by autograd: float64, the shapes of ``replay``'s inputs."""
    q64, keys64 = q.detach().double(), keys.detach().double()
    if q_scale is not None:
        q64 = q64 * q_scale.double()[..., None]
    if key_scale is not None:
        keys64 = keys64 * key_scale.double()[:, None]
    weights64 = q64.new_ones(q.shape[:2]) if weights is None else weights.detach().double()
    leaves = [each.requires_grad_() for each in (q64, keys64, weights64)]
    with torch.enable_grad():
        scores = replay(q64, keys64, weights64, indices)
        found = torch.autograd.grad(scores, leaves, grad_scores.double(), allow_unused=True, materialize_grads=True)
    return Gradients(*found)
