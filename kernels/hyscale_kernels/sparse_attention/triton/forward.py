"""Attention of chosen keys, and what it gave to each of them."""

import triton
import triton.language as tl

from hyscale_kernels.sparse_attention.triton.rows import LN2, LOG2E, heads_of, rows_of, store_rows


@triton.jit(do_not_specialize=["first_task"])
def forward_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    indices_ptr,
    sinks_ptr,
    out_ptr,
    lse_ptr,
    weights_ptr,
    divisors_ptr,
    first_task,
    scale,
    k,
    index_stride,
    index_group_stride,
    key_stride,
    key_group_stride,
    value_stride,
    value_group_stride,
    GROUPS: tl.constexpr,
    GROUP_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    REST: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    VALUE: tl.constexpr,
    SHARED: tl.constexpr,
    SINKS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    FACTOR: tl.constexpr,
):
    """One program attends with ``HEADS`` heads of a query, the columns ``WIDE`` of a key before the columns ``REST``.

    ``out [n, heads, VALUE_WIDTH]`` and ``lse [n, heads]`` are written. ``SHARED``: the first columns of a key are its
    value. ``scale``: of logits to the base 2. ``WEIGHTS``: for ``probabilities_kernel`` also ``weights [programs,
    HEADS, tiles * KEYS]``, which refer to the maximum when a tile was seen, and ``divisors [programs, tiles + 1,
    HEADS]``, the logarithms of those and at the end of what weights are to be divided by.
    """
    program = tl.program_id(0).to(tl.int64)
    row, group, pair, head, live = heads_of(first_task + program, GROUPS, GROUP_HEADS, HEADS)
    tiles = tl.cdiv(k, KEYS)
    q_rows = q_ptr + pair * WIDTH
    q = rows_of(q_rows, live, 0, WIDE, WIDTH, FACTOR)
    if REST:
        q_rest = rows_of(q_rows, live, WIDE, REST, WIDTH, FACTOR)
    places_ptr = indices_ptr + row * index_stride + group * index_group_stride
    highest = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    out = tl.zeros((HEADS, VALUE), tl.float32)
    for start in range(0, k, KEYS):
        slots = start + tl.arange(0, KEYS)
        places = tl.load(places_ptr + slots, mask=slots < k, other=-1)
        some = places >= 0
        at = places.to(tl.int64)
        key_rows = keys_ptr + at * key_stride + group * key_group_stride
        keys = rows_of(key_rows, some, 0, WIDE, WIDTH, FACTOR)
        logits = tl.dot(q, tl.trans(keys))
        if REST:
            logits = tl.dot(q_rest, tl.trans(rows_of(key_rows, some, WIDE, REST, WIDTH, FACTOR)), logits)
        logits = tl.where(some[None, :], logits * scale, float("-inf"))
        highest_so_far = tl.maximum(highest, tl.max(logits, axis=1))
        # Before the first key nothing may be subtracted from minus infinity.
        base = tl.where(highest_so_far == float("-inf"), 0.0, highest_so_far)
        weights = tl.exp2(logits - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, axis=1)
        factor = weights.to(FACTOR)
        if WEIGHTS:
            kept = (program * HEADS + tl.arange(0, HEADS)) * (tiles * KEYS)
            tl.store(weights_ptr + kept[:, None] + slots[None, :], factor)
            divisor = (program * (tiles + 1) + start // KEYS) * HEADS
            tl.store(divisors_ptr + divisor + tl.arange(0, HEADS), base)
        if SHARED:
            values = keys
        else:
            value_rows = values_ptr + at * value_stride + group * value_group_stride
            values = rows_of(value_rows, some, 0, VALUE, VALUE_WIDTH, FACTOR)
        out = tl.dot(factor, values, out * shrink[:, None])
        highest = highest_so_far
    base = tl.where(highest == float("-inf"), 0.0, highest)
    # Of no keys it is minus infinity.
    tl.store(lse_ptr + pair, (base + tl.log2(total)) * LN2, mask=live)
    if SINKS:
        total += tl.exp2(tl.load(sinks_ptr + head, mask=live, other=0.0) * LOG2E - base)
    # NaN is to be seen.
    total = tl.where(total == 0.0, 1.0, total)
    store_rows(out_ptr + pair * VALUE_WIDTH, out / total[:, None], live, 0, VALUE, VALUE_WIDTH)
    if WEIGHTS:
        divisor = (program * (tiles + 1) + tiles) * HEADS
        logarithm = tl.where(live, base + tl.log2(total), float("inf"))
        tl.store(divisors_ptr + divisor + tl.arange(0, HEADS), logarithm)


@triton.jit
def probabilities_kernel(
    weights_ptr, divisors_ptr, probabilities_ptr, k, HEADS: tl.constexpr, KEYS: tl.constexpr, TILES: tl.constexpr
):
    """One program adds the probabilities of ``TILES`` tiles up over heads: ``probabilities [programs, k]``."""
    program = tl.program_id(0).to(tl.int64)
    heads = tl.arange(0, HEADS)
    tiles = tl.cdiv(k, KEYS)
    divisors = divisors_ptr + program * (tiles + 1) * HEADS + heads
    logarithm = tl.load(divisors + tiles * HEADS)
    first = tl.program_id(1) * TILES
    for tile in range(first, tl.minimum(first + TILES, tiles)):
        slots = tile * KEYS + tl.arange(0, KEYS)
        kept = (program * HEADS + heads) * (tiles * KEYS)
        weights = tl.load(weights_ptr + kept[:, None] + slots[None, :]).to(tl.float32)
        shares = tl.exp2(tl.load(divisors + tile * HEADS) - logarithm)
        tl.store(probabilities_ptr + program * k + slots, tl.sum(weights * shares[:, None], axis=0), mask=slots < k)
