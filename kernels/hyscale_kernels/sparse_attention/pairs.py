"""Pairs of queries that share a pass over their keys in the backward."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from hyscale_kernels.sparse_attention.triton.pairs import pairs_kernel

# Keys of both queries, in those of one, at which the additions saved are about the products with keys of the other.
MOST = 1.25


class QueryPairs(NamedTuple):
    """One list of keys for queries 2 i and 2 i + 1, where they share enough of them.

    Attributes:
        lists: int32 ``[n, groups or 1, capacity]``; a key of both stands in one place, and -1 stands for a key that
            only the other has. Of queries by themselves, their indices.
        counts: int32 ``[n, groups or 1]``, length of a list.
        paired: int32 ``[ceil(n / 2), groups or 1]``, whether the two share a list.
    """

    lists: torch.Tensor
    counts: torch.Tensor
    paired: torch.Tensor

    @property
    def share(self) -> torch.Tensor:
        """Share of the queries that are in pairs, and not one at a time: FP32, a tensor that waits for nothing."""
        n, lists = self.counts.shape
        return 2 * self.paired.sum() / max(1, n * lists)


def query_pairs(indices: torch.Tensor, most: float = MOST) -> QueryPairs:
    """Put the keys of two adjacent queries into one list, on the device and without waiting for it.

    Serves every attention of these indices: of several layers, and again when they are computed anew.

    Args:
        indices: int32 ``[n, k]`` or ``[n, groups, k]`` as of ``sparse_attention``. Queries whose keys do not ascend,
            with -1 at the end alone, stay by themselves.
        most: keys of both queries, in k, up to which they are a pair; 1 to 2.

    Raises:
        ValueError: indices of another type or shape, or another ``most``.
    """
    if indices.dtype != torch.int32 or indices.ndim not in (2, 3):
        raise ValueError(f"indices must be int32 (n, k) or (n, groups, k), are {indices.dtype} {tuple(indices.shape)}")
    if not 1 <= most <= 2:
        raise ValueError(f"most must be 1 to 2, is {most}")
    indices = (indices[:, None] if indices.ndim == 2 else indices).contiguous()
    n, lists, k = indices.shape
    capacity = int(most * k)
    pairs = triton.cdiv(n, 2)
    found = QueryPairs(
        indices.new_empty(n, lists, capacity), indices.new_empty(n, lists), indices.new_zeros(pairs, lists)
    )
    if n and k:
        pairs_kernel[(pairs, lists)](
            indices,
            *found,
            n,
            k,
            capacity,
            LISTS=lists,
            SLOTS=triton.next_power_of_2(k),
            STEPS=k.bit_length(),
            num_warps=8,
        )
    else:
        found.counts.fill_(k)
    return found
