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


def in_common(selected: torch.Tensor) -> torch.Tensor:
    """Share of keys that queries 2 i and 2 i + 1 both selected, a tensor that waits for nothing.

    Args:
        selected: int32 ``[n, k]`` without repetitions, -1 for none.
    """
    both = selected[: len(selected) // 2 * 2].view(-1, 2 * selected.shape[1]).sort(dim=1).values
    alike = (both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)
    return 2 * alike.sum() / (both >= 0).sum()
