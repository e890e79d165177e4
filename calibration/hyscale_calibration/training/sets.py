"""Selections compared as sets, key by key."""

from __future__ import annotations

import torch


def differing(one: torch.Tensor, other: torch.Tensor) -> tuple[int, int]:
    """Queries whose sets differ, and keys that the first has and the second has not.

    Args:
        one, other: int32 ``[n, k]``, in any order, -1 for none.
    """
    one, other = one.sort(dim=1).values, other.sort(dim=1).values
    rows = (one != other).any(1)
    one, other = one[rows], other[rows]
    places = torch.searchsorted(other, one).clamp_(max=other.shape[1] - 1)
    return int(rows.sum()), int((other.gather(1, places) != one).sum())
