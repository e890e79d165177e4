"""Adjacent queries that share a pass over their keys in the backward."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from hyscale_kernels.sparse_attention.triton.pairs import merge_kernel, slots_kernel

# Two pairs: additions to a key are half those of one, where neighbours share most keys; see README.md.
TOGETHER = 4
# Keys of all of them, in those of one, at which products with keys of the others cost about what additions saved.
MOST = 2.0


class QueryPairs(NamedTuple):
    """One list of keys for queries 4 i to 4 i + 3, two pairs, where they share enough of them.

    Attributes:
        keys: int32 ``[ceil(n / 4), groups or 1, capacity]``, ascending, each key that any of them has once.
        counts: int32 ``[ceil(n / 4), groups or 1]``, length of a list; -1 of queries that stay by themselves.
        slots: int32 ``[n, groups or 1, capacity]``, where a query has each of these keys, -1 where it has not.
    """

    keys: torch.Tensor
    counts: torch.Tensor
    slots: torch.Tensor

    @property
    def share(self) -> torch.Tensor:
        """Share of the queries that are in pairs, and not one at a time: FP32, a tensor that waits for nothing."""
        n, lists, _ = self.slots.shape
        return TOGETHER * (self.counts >= 0).sum() / max(1, n * lists)


def query_pairs(indices: torch.Tensor, most: float = MOST) -> QueryPairs:
    """Put the keys of two adjacent pairs of queries into one list, on the device and without waiting for it.

    Serves every attention of these indices: of several layers, and again when they are computed anew.

    Args:
        indices: int32 ``[n, k]`` or ``[n, groups, k]`` as of ``sparse_attention``. Queries whose keys do not ascend,
            with -1 at the end alone, stay by themselves, and with them the others of their two pairs.
        most: keys of all four, in k, up to which they are together; 1 to 4.

    Raises:
        ValueError: indices of another type or shape, or another ``most``.
    """
    if indices.dtype != torch.int32 or indices.ndim not in (2, 3):
        raise ValueError(f"indices must be int32 (n, k) or (n, groups, k), are {indices.dtype} {tuple(indices.shape)}")
    if not 1 <= most <= TOGETHER:
        raise ValueError(f"most must be 1 to {TOGETHER}, is {most}")
    indices = (indices[:, None] if indices.ndim == 2 else indices).contiguous()
    n, lists, k = indices.shape
    capacity = int(most * k)
    of_pairs = _merged(indices, None, min(2 * k, capacity))
    of_both = _merged(of_pairs.keys, of_pairs.counts, capacity)
    slots = indices.new_full((n, lists, capacity), -1)
    if n and k:
        slots_kernel[(n, lists)](
            indices,
            of_both.counts,
            of_pairs.at,
            of_both.at,
            slots,
            k,
            of_pairs.keys.shape[2],
            capacity,
            LISTS=lists,
            SLOTS=triton.next_power_of_2(k),
            num_warps=8,
        )
    return QueryPairs(of_both.keys, of_both.counts, slots)


class _Merged(NamedTuple):
    """Lists of two rows each, how long they are, -1 where there is none, and where each key of a row went."""

    keys: torch.Tensor
    counts: torch.Tensor
    at: torch.Tensor


def _merged(lists: torch.Tensor, counts: torch.Tensor | None, capacity: int) -> _Merged:
    rows, groups, width = lists.shape
    pairs = triton.cdiv(rows, 2)
    found = _Merged(
        lists.new_empty(pairs, groups, capacity), lists.new_full((pairs, groups), -1), torch.empty_like(lists)
    )
    if rows and width:
        merge_kernel[(pairs, groups)](
            lists,
            counts,
            *found,
            rows,
            width,
            capacity,
            LISTS=groups,
            SLOTS=triton.next_power_of_2(width),
            STEPS=width.bit_length(),
            num_warps=8,
        )
    return found
