"""Rows of a tile in memory, and the heads that a program takes."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def heads_of(task, GROUPS: tl.constexpr, GROUP_HEADS: tl.constexpr, HEADS: tl.constexpr, QUERIES: tl.constexpr = 1):
    """First query, group, rows of (query, head) pairs, heads, and which there are; ``[QUERIES * HEADS]`` but the first.

    Tasks of a query are adjacent, for they read the same keys.
    """
    SHARES: tl.constexpr = (GROUP_HEADS + HEADS - 1) // HEADS
    row = task // (GROUPS * SHARES) * QUERIES
    block = task % (GROUPS * SHARES)
    group = block // SHARES
    lane = tl.arange(0, QUERIES * HEADS)
    within = block % SHARES * HEADS + lane % HEADS
    head = group * GROUP_HEADS + within
    return row, group, (row + lane // HEADS) * (GROUPS * GROUP_HEADS) + head, head, within < GROUP_HEADS


@triton.jit
def columns_of(rows, live, FIRST: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Pointers to columns ``FIRST`` to ``FIRST + SIZE`` of rows, and which are live and within ``WIDTH``."""
    column = FIRST + tl.arange(0, SIZE)
    some = live[:, None]
    if FIRST + SIZE > WIDTH:
        some = some & (column < WIDTH)[None, :]
    return rows[:, None] + column[None, :], some


@triton.jit
def rows_of(rows, live, FIRST: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, FACTOR: tl.constexpr):
    """Columns of rows as factors of a product, 0 beyond their width and where not live."""
    at, some = columns_of(rows, live, FIRST, SIZE, WIDTH)
    return tl.load(at, mask=some, other=0.0).to(FACTOR)


@triton.jit
def store_rows(rows, found, live, FIRST: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Write what ``rows_of`` reads."""
    at, some = columns_of(rows, live, FIRST, SIZE, WIDTH)
    tl.store(at, found.to(rows.dtype.element_ty), mask=some)


@triton.jit
def add_rows(
    rows, terms, live, per_one, FIRST: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, FIXED: tl.constexpr
):
    """Add to what ``rows_of`` reads: FP32, or if ``FIXED`` int32 with ``per_one`` units in 1, for each row."""
    at, some = columns_of(rows, live, FIRST, SIZE, WIDTH)
    if FIXED:
        # A power of two, so that only the conversion loses anything.
        terms = tl.floor(terms * per_one[:, None] + 0.5).to(tl.int32)
    tl.atomic_add(at, terms, mask=some, sem="relaxed")
