"""Exact selection from scores, slow and obvious."""

from __future__ import annotations

import torch


def top_k(scores: torch.Tensor, topk: int) -> torch.Tensor:
    """The ``topk`` highest scores of each row, ties to the lower position.

    Minus infinity and NaN are never selected.

    Args:
        scores: ``[n, L]``.

    Returns:
        int32 ``[n, topk]``, ascending, -1 behind the last.
    """
    chosen = torch.full((scores.shape[0], topk), -1, dtype=torch.int32)
    for row, values in enumerate(scores.cpu()):
        values = values.masked_fill(values.isnan(), float("-inf"))
        best = values.sort(descending=True, stable=True).indices[:topk]
        best = best[values[best] > float("-inf")].sort().values
        chosen[row, : best.numel()] = best.to(torch.int32)
    return chosen.to(scores.device)
