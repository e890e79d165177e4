"""Launch of the backward, and the fixed point of deterministic sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton

from hyscale_kernels.fixed_point import CONVERTED, column_sums, in_ones, units_for
from hyscale_kernels.sparse_attention.attend import FACTOR, FACTOR_TYPE, launches
from hyscale_kernels.sparse_attention.inputs import Attention, widest_part
from hyscale_kernels.sparse_attention.tiles import KEYS, LEFT_BYTES, QUERIES, Tile
from hyscale_kernels.sparse_attention.triton.backward import keys_kernel, queries_kernel
from hyscale_kernels.sparse_attention.triton.rows import LOG2E


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
    """What programs of ``queries_kernel`` leave, from the task ``first`` on: ``[tasks, heads, padded k]`` each."""

    first: int
    shares: torch.Tensor
    slopes: torch.Tensor


def gradients(
    given: Attention,
    found: Returned,
    grads: Returned,
    deterministic: bool,
    tile: Tile = QUERIES,
    keys_tile: Tile = KEYS,
    left_bytes: int = LEFT_BYTES,
) -> Gradients:
    """Gradients of what is given; with ``deterministic`` those of keys and values are added up as whole numbers."""
    n, heads, _ = given.q.shape
    k = given.indices.shape[2]
    device = given.q.device
    kind = torch.int64 if deterministic else torch.float32
    dq = torch.empty_like(given.q, dtype=FACTOR_TYPE)
    dkeys = torch.zeros(given.keys.shape, dtype=kind, device=device)
    dvalues = None if given.values is None else torch.zeros(given.values.shape, dtype=kind, device=device)
    dsinks = None if given.sinks is None else torch.zeros(n, heads, device=device)
    if not n or not k or not given.keys.shape[0]:
        return Gradients(
            torch.zeros_like(given.q),
            dkeys.to(given.q.dtype),
            None if dvalues is None else dvalues.to(given.q.dtype),
            None if dsinks is None else dsinks.sum(0),
        )
    units = units_per_one(given, grads) if deterministic else None
    tile, keys_tile = tile.at(given.group_heads), keys_tile.at(given.group_heads)
    padded = triton.cdiv(k, tile.keys) * tile.keys
    kept = 2 * tile.heads * padded * FACTOR_TYPE.itemsize
    for first, tasks in launches(n * given.blocks(tile.heads), kept, left_bytes):
        shape = (tasks, tile.heads, padded)
        left = Left(first, *(torch.empty(shape, dtype=FACTOR_TYPE, device=device) for _ in range(2)))
        queries_kernel[(tasks,)](
            given.q,
            given.keys,
            given.value_like,
            given.indices,
            given.sinks,
            *found,
            *grads,
            left.shares,
            left.slopes,
            dq,
            dsinks,
            first,
            given.softmax_scale * LOG2E.value,
            given.softmax_scale,
            k,
            **given.strides(),
            **given.constants(),
            HEADS=tile.heads,
            KEYS=tile.keys,
            FACTOR=FACTOR,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        add_to_keys(given, grads, left, dkeys, dvalues, units, keys_tile)
    return Gradients(
        dq.to(given.q.dtype),
        _rounded(dkeys, None if units is None else units[:1]),
        None if dvalues is None else _rounded(dvalues, None if units is None else units[1:]),
        None if dsinks is None else column_sums(dsinks) if deterministic else dsinks.sum(0),
    )


def add_to_keys(
    given: Attention,
    grads: Returned,
    left: Left,
    dkeys: torch.Tensor,
    dvalues: torch.Tensor | None,
    units: torch.Tensor | None,
    tile: Tile,
) -> None:
    """Add what tasks left to the sums of keys and values, of which there are ``units [2]`` in 1 if they are int64."""
    for sums in (dkeys, dvalues):
        if sums is None:
            continue
        for begin, columns, parts in column_parts(sums.shape[2], tile.columns):
            # The first columns of a key that is its own value have both gradients.
            shares = sums is dvalues or (dvalues is None and begin < given.value_width)
            keys_kernel[(left.shares.shape[0] * parts,)](
                given.q,
                grads.out,
                given.indices,
                left.shares,
                left.slopes,
                None if units is None else units[int(sums is dvalues) :],
                sums,
                left.first,
                given.indices.shape[2],
                left.shares.shape[2],
                **given.index_strides(),
                GROUPS=given.groups,
                GROUP_HEADS=given.group_heads,
                WIDTH=given.q.shape[2],
                VALUE_WIDTH=given.value_width,
                SUM_WIDTH=sums.shape[2],
                FIRST=begin,
                COLUMNS=columns,
                PARTS=parts,
                SLOPES=sums is dkeys,
                SHARES=shares,
                FIXED=units is not None,
                HEADS=tile.heads,
                KEYS=tile.keys,
                FACTOR=FACTOR,
                num_warps=tile.warps,
                num_stages=tile.stages,
            )


def column_parts(width: int, most: int) -> Iterator[tuple[int, int, int]]:
    """First column, columns of a part and equal parts, all within the width unless it is one part alone."""
    wide = widest_part(width)
    columns = min(wide, most)
    yield 0, columns, wide // columns
    if width > wide:
        yield wide, max(16, triton.next_power_of_2(width - wide)), 1


def units_per_one(given: Attention, grads: Returned) -> torch.Tensor:
    """Units in 1 for gradients of keys and of values, which none can overflow: FP32 ``[2]``, powers of two.

    The bounds are reached if all selections were of one key. With V the norm of the longest value that is selected:

        keys:   sum_{t, h} |softmax_scale| (2 |dout(t, h)| V + |dlse(t, h)|) max_d |q(t, h, d)|
        values: sum_{t, h} max_d |dout(t, h, d)|

    and their sum where a key is its own value. NaN where they are not finite.
    """
    longest = _longest(given)
    n, heads, width = given.q.shape
    of_keys, of_values = (torch.empty(n, dtype=torch.float64, device=given.q.device) for _ in range(2))
    size = max(1, CONVERTED // (heads * max(width, given.value_width)))
    for first in range(0, n, size):
        rows = slice(first, first + size)
        # The squares of FP32 may be infinite.
        slopes = grads.out[rows].double()
        widths = given.q[rows].abs().amax(-1).double()
        most = 2 * slopes.norm(dim=-1) * longest + grads.lse[rows].abs().double()
        of_keys[rows] = (abs(given.softmax_scale) * most * widths).sum(-1)
        of_values[rows] = slopes.abs().amax(-1).sum(-1)
    if given.values is None:
        of_keys += of_values
    return torch.cat([units_for(of_keys), units_for(of_values)])


def _longest(given: Attention) -> torch.Tensor:
    """Norm of the longest value that some query selected, in any group; others may be anything."""
    values = given.value_like[..., : given.value_width]
    # The last one stands for -1.
    selected = torch.zeros(values.shape[0] + 1, dtype=torch.bool, device=values.device)
    for part in given.indices.flatten().split(CONVERTED):
        selected[part.long()] = True
    size = max(1, CONVERTED // (values.shape[1] * values.shape[2]))
    norms = torch.cat([part.double().norm(dim=-1).amax(-1) for part in values.split(size)])
    return norms.where(selected[:-1], 0.0).amax()


def _rounded(sums: torch.Tensor, per_one: torch.Tensor | None) -> torch.Tensor:
    if per_one is None:
        return sums.bfloat16()
    return in_ones(sums.flatten(1), per_one, torch.bfloat16).view(sums.shape)
