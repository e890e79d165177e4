"""Scores in float64."""

from __future__ import annotations

import torch


def scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """sum over heads of weight * relu(q . key), minus infinity outside a query's span and where the sum is NaN.

    Args:
        q: ``[n, heads, dim]``; keys: ``[L, dim]``; weights: ``[n, heads]`` or None for ones.
        spans: ``[n, 2]``; q_scale: ``[n, heads]`` and key_scale: ``[L]`` of quantised inputs, positive.

    Returns:
        float64 ``[n, L]``.
    """
    q64, keys64 = q.double(), keys.double()
    if q_scale is not None:
        q64 = q64 * q_scale.double()[..., None]
    if key_scale is not None:
        keys64 = keys64 * key_scale.double()[:, None]
    products = torch.relu(torch.einsum("nhd,ld->nhl", q64, keys64))
    weighted = products if weights is None else products * weights.double()[..., None]
    total = weighted.sum(1)
    entries = torch.arange(keys.shape[0], device=keys.device)
    visible = (entries >= spans[:, :1]) & (entries < spans[:, 1:])
    return total.masked_fill(~visible | total.isnan(), float("-inf"))
