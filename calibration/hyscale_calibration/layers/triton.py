"""Passes over memory that training frameworks fuse: rotary positions, and pooling of tokens to entries."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def turn_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    rows,
    heads,
    stride,
    head_stride,
    SIGN: tl.constexpr,
    HALF: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Turn ``2 HALF`` columns of rows, each of a token and a head: (a, b) to (a cos - b sin, b cos + a sin)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, HALF)
    within = (row < rows)[:, None] & (column < HALF)[None, :]
    token, head = row // heads, row % heads
    places = (token.to(tl.int64) * stride + head * head_stride)[:, None] + column[None, :]
    angles = token[:, None] * HALF + column[None, :]
    cos = tl.load(cos_ptr + angles, mask=within).to(tl.float32)
    sin = SIGN * tl.load(sin_ptr + angles, mask=within).to(tl.float32)
    a = tl.load(x_ptr + places, mask=within).to(tl.float32)
    b = tl.load(x_ptr + places + HALF, mask=within).to(tl.float32)
    tl.store(x_ptr + places, (a * cos - b * sin).to(x_ptr.dtype.element_ty), mask=within)
    tl.store(x_ptr + places + HALF, (b * cos + a * sin).to(x_ptr.dtype.element_ty), mask=within)


@triton.jit
def pool_kernel(
    x_ptr,
    bias_ptr,
    first_ptr,
    out_ptr,
    dx_ptr,
    width,
    BACKWARD: tl.constexpr,
    RATIO: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One entry: keys of its tokens and of those before them, weighted by a softmax of their gates.

    ``x [tokens, 4, width]`` has keys of two series, then their gates. Forward writes ``out [entries, width]``; backward
    reads the gradient there and writes that of x, of which every place belongs to one entry.
    """
    entry = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, 2 * RATIO)
    before = row >= RATIO
    token = entry * RATIO + row % RATIO - tl.where(before, RATIO, 0)
    some = (before == 0) | (tl.load(first_ptr + entry) == 0)
    within = some[:, None] & (column < width)[None, :]
    places = (token.to(tl.int64) * 4 * width + tl.where(before, width, 0))[:, None] + column[None, :]
    keys = tl.load(x_ptr + places, mask=within, other=0.0).to(tl.float32)
    gates = tl.load(x_ptr + places + 2 * width, mask=within, other=0.0).to(tl.float32)
    gates += tl.load(bias_ptr + row[:, None] * width + column[None, :], mask=within, other=0.0).to(tl.float32)
    gates = tl.where(some[:, None], gates, float("-inf"))
    shares = tl.exp(gates - tl.max(gates, 0)[None, :])
    shares = shares / tl.sum(shares, 0)[None, :]
    pooled = tl.sum(shares * keys, 0)
    result = out_ptr + entry.to(tl.int64) * width + column
    if BACKWARD:
        grad = tl.load(result, mask=column < width, other=0.0).to(tl.float32)
        dkeys = shares * grad[None, :]
        kind = dx_ptr.dtype.element_ty
        tl.store(dx_ptr + places, dkeys.to(kind), mask=within)
        tl.store(dx_ptr + places + 2 * width, (dkeys * (keys - pooled[None, :])).to(kind), mask=within)
    else:
        tl.store(result, pooled.to(out_ptr.dtype.element_ty), mask=column < width)
