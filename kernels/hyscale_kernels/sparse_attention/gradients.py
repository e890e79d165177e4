"""Launch of the backward."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import triton

from hyscale_kernels.fixed_point import CONVERTED, column_sums
from hyscale_kernels.sparse_attention.attend import FACTOR, FACTOR_TYPE, launches
from hyscale_kernels.sparse_attention.hopper import (
    QUERIES_KEYS,
    TOGETHER_COLUMNS,
    TOGETHER_KEYS,
    TOGETHER_STAGES,
    launch,
    rows,
    together_parts,
    use_gluon,
    use_gluon_together,
)
from hyscale_kernels.sparse_attention.inputs import Attention, widest_part
from hyscale_kernels.sparse_attention.pairs import TOGETHER, QueryPairs
from hyscale_kernels.sparse_attention.tiles import KEPT_LAUNCHES, KEYS, LEFT_BYTES, PAIRS, QUERIES, SLOTS, Tile
from hyscale_kernels.sparse_attention.triton.backward import fixed_keys_kernel, keys_kernel, queries_kernel
from hyscale_kernels.sparse_attention.triton.rows import LOG2E
from hyscale_kernels.sparse_attention.units import Bounds


class Gradients(NamedTuple):
    """Of q, keys and values in their types, and of sinks in FP32; shapes are those of ``Attention``."""

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor | None
    sinks: torch.Tensor | None


class Returned(NamedTuple):
    """What the forward returned, or the gradients of it, contiguous."""

    out: torch.Tensor
    lse: torch.Tensor


class Left(NamedTuple):
    """What programs of ``queries_kernel`` leave, from the task ``first`` on: ``[tasks, slots, heads]`` each."""

    first: int
    shares: torch.Tensor
    slopes: torch.Tensor


class Sums(NamedTuple):
    """Sums of gradients ``[L, groups, columns]``: FP32, or int32 with ``per_one [L, groups]`` units in 1."""

    terms: torch.Tensor
    per_one: torch.Tensor | None

    def rounded(self) -> torch.Tensor:
        """As BF16."""
        found = torch.empty(self.terms.shape, dtype=torch.bfloat16, device=self.terms.device)
        if self.per_one is None:
            return found.copy_(self.terms)
        size = max(1, CONVERTED // max(1, self.terms[:1].numel()))
        one = 1 / self.per_one
        for first in range(0, len(found), size):
            part = slice(first, first + size)
            found[part] = self.terms[part] * one[part, :, None]
        return found


def gradients(
    given: Attention,
    found: Returned,
    grads: Returned,
    deterministic: bool,
    pairs: QueryPairs | None = None,
    impl: str | None = None,
    tile: Tile = QUERIES,
    keys_tile: Tile = KEYS,
    pairs_tile: Tile = PAIRS,
    left_bytes: int = LEFT_BYTES,
    kept_launches: int = KEPT_LAUNCHES,
) -> Gradients:
    """Gradients of what is given.

    ``deterministic``: those of keys and values are added up as whole numbers, whose units are known once every query
    has been seen. What ``kept_launches`` leave is kept until then, and that of others computed twice. ``pairs``: of the
    indices given. ``impl`` as in ``hopper.use_gluon``.

    Raises:
        ValueError: Gluon where it cannot run.
    """
    tile = replace(tile, impl="gluon") if use_gluon(impl, given) else tile.at(given.group_heads)
    n, heads, _ = given.q.shape
    k = given.indices.shape[2]
    device = given.q.device
    dq = torch.empty_like(given.q, dtype=FACTOR_TYPE)
    dsinks = None if given.sinks is None else torch.zeros(n, heads, device=device)
    if not n or not k or not given.keys.shape[0]:
        return Gradients(
            torch.zeros_like(given.q),
            torch.zeros_like(given.keys),
            None if given.values is None else torch.zeros_like(given.values),
            None if dsinks is None else dsinks.sum(0),
        )
    blocks = given.blocks(tile.heads)
    padded = triton.cdiv(k, SLOTS) * SLOTS
    kept = 2 * tile.heads * padded * FACTOR_TYPE.itemsize
    parts = list(launches(n * blocks, kept, left_bytes, blocks if pairs is None else TOGETHER * blocks))

    def left_by(first: int, tasks: int) -> Left:
        shape = (tasks, padded, tile.heads)
        left = Left(first, *(torch.empty(shape, dtype=FACTOR_TYPE, device=device) for _ in range(2)))
        add_to_queries(given, found, grads, left, dq, dsinks, tile)
        return left

    units: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
    kept_ones: deque[Left] = deque()
    if deterministic:
        bounds = Bounds.of(given, grads.out)
        for part in parts:
            left = left_by(*part)
            bounds.add(left, given)
            if len(kept_ones) < kept_launches:
                kept_ones.append(left)
        units = bounds.units()
    kind = torch.int32 if deterministic else torch.float32
    dkeys = Sums(torch.zeros(given.keys.shape, dtype=kind, device=device), units[0])
    dvalues = None
    if given.values is not None:
        dvalues = Sums(torch.zeros(given.values.shape, dtype=kind, device=device), units[1])
    for part in parts:
        left = kept_ones.popleft() if kept_ones else left_by(*part)
        for sums in (dkeys, dvalues):
            if sums is None:
                continue
            add_to_keys(given, grads, left, pairs, sums, dvalues, 1, keys_tile)
            if pairs is not None and use_gluon_together(impl, given):
                add_together(given, grads, left, pairs, sums)
            elif pairs is not None:
                add_to_keys(given, grads, left, pairs, sums, dvalues, TOGETHER, pairs_tile)
    return Gradients(
        dq.to(given.q.dtype),
        dkeys.rounded(),
        None if dvalues is None else dvalues.rounded(),
        None if dsinks is None else column_sums(dsinks) if deterministic else dsinks.sum(0),
    )


def add_to_queries(
    given: Attention,
    found: Returned,
    grads: Returned,
    left: Left,
    dq: torch.Tensor,
    dsinks: torch.Tensor | None,
    tile: Tile,
) -> None:
    """Write what tasks leave, and the gradients of q and terms of those of sinks."""
    tasks, padded, _ = left.shares.shape
    k = given.indices.shape[2]
    scales = {"scale": given.softmax_scale * LOG2E.value, "softmax_scale": given.softmax_scale}
    results = {"shares_ptr": left.shares, "slopes_ptr": left.slopes, "dq_ptr": dq}
    returned = {
        "out_ptr": found.out,
        "lse_ptr": found.lse,
        "grad_out_ptr": grads.out,
        "grad_lse_ptr": grads.lse,
    }
    if tile.impl == "gluon":
        from hyscale_kernels.sparse_attention.gluon.backward import queries_kernel as gluon_kernel

        gluon_kernel[(tasks,)](
            given.q,
            given.keys,
            indices_ptr=given.indices,
            first_task=left.first,
            k=k,
            padded=padded,
            **returned,
            **results,
            **scales,
            **launch(given, QUERIES_KEYS),
            NARROW=rows(QUERIES_KEYS),
        )
        return
    queries_kernel[(tasks,)](
        given.q,
        given.keys,
        given.value_like,
        indices_ptr=given.indices,
        sinks_ptr=given.sinks,
        dsinks_ptr=dsinks,
        first_task=left.first,
        k=k,
        padded=padded,
        **returned,
        **results,
        **scales,
        **given.strides(),
        **given.constants(),
        HEADS=tile.heads,
        KEYS=tile.keys,
        FACTOR=FACTOR,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def add_to_keys(
    given: Attention,
    grads: Returned,
    left: Left,
    pairs: QueryPairs | None,
    sums: Sums,
    dvalues: Sums | None,
    queries: int,
    tile: Tile,
) -> None:
    """Add what tasks left to sums of keys, or to those of values, of queries by themselves or of all in two pairs."""
    tile = tile.at(given.group_heads)
    tasks, padded, heads = left.shares.shape
    blocks = given.blocks(heads)
    programs = triton.cdiv(tasks // blocks, queries) * blocks
    width = sums.terms.shape[2]
    keys = given.indices if pairs is None or queries == 1 else pairs.keys
    lists, most = keys.shape[1:]
    for begin, columns, parts in column_parts(width, tile.columns):
        kernel = keys_kernel if sums.per_one is None else fixed_keys_kernel
        kernel[(programs * parts,)](
            given.q,
            grads.out,
            keys,
            counts_ptr=None if pairs is None else pairs.counts,
            slots_ptr=None if pairs is None or queries == 1 else pairs.slots,
            shares_ptr=left.shares,
            slopes_ptr=left.slopes,
            per_one_ptr=sums.per_one,
            sums_ptr=sums.terms,
            first_task=left.first,
            k=most,
            padded=padded,
            key_stride=lists * most,
            key_group_stride=most if lists > 1 else 0,
            count_stride=lists,
            count_group_stride=1 if lists > 1 else 0,
            GROUPS=given.groups,
            GROUP_HEADS=given.group_heads,
            WIDTH=given.q.shape[2],
            VALUE_WIDTH=given.value_width,
            SUM_WIDTH=width,
            FIRST=begin,
            COLUMNS=columns,
            PARTS=parts,
            SLOPES=sums is not dvalues,
            # The first columns of a key that is its own value have both gradients.
            SHARES=sums is dvalues or (dvalues is None and begin < given.value_width),
            FIXED=sums.per_one is not None,
            QUERIES=queries,
            TOGETHER=TOGETHER,
            HEADS=heads,
            KEYS=tile.keys,
            FACTOR=FACTOR,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )


def add_together(given: Attention, grads: Returned, left: Left, pairs: QueryPairs, sums: Sums) -> None:
    """Add what tasks left to sums of keys, of all queries in two pairs, in Gluon."""
    from hyscale_kernels.sparse_attention.gluon.keys import keys_kernel as gluon_kernel

    tasks, padded, heads = left.shares.shape
    blocks = given.blocks(heads)
    width = sums.terms.shape[2]
    parts, rest = together_parts(given)
    gluon_kernel[(triton.cdiv(tasks // blocks, TOGETHER) * blocks * parts,)](
        given.q,
        grads.out,
        pairs.keys,
        pairs.counts,
        pairs.slots,
        left.shares,
        left.slopes,
        sums.per_one,
        sums.terms,
        first_task=left.first,
        padded=padded,
        key_stride=pairs.keys.shape[2],
        BLOCKS=blocks,
        HEADS=heads,
        WIDTH=width,
        VALUE_WIDTH=given.value_width,
        COLUMNS=TOGETHER_COLUMNS,
        REST=rest,
        PARTS=parts,
        QUERIES=TOGETHER,
        KEYS=TOGETHER_KEYS,
        STAGES=TOGETHER_STAGES,
        LAYOUT=rows(TOGETHER_COLUMNS),
        REST_LAYOUT=rows(rest or TOGETHER_COLUMNS),
        num_warps=4,
    )


def column_parts(width: int, most: int) -> Iterator[tuple[int, int, int]]:
    """First column, columns of a part and equal parts, all within the width unless it is one part alone."""
    wide = widest_part(width)
    columns = min(wide, most)
    yield 0, columns, wide // columns
    if width > wide:
        yield wide, max(16, triton.next_power_of_2(width - wide)), 1
