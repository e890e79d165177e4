"""Gradients of attention of chosen keys: first of queries, then of keys and values, and what bounds the latter."""

import triton
import triton.language as tl

from hyscale_kernels.sparse_attention.triton.rows import LOG2E, add_rows, heads_of, rows_of, store_rows


@triton.jit(do_not_specialize=["first_task"])
def queries_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    indices_ptr,
    sinks_ptr,
    out_ptr,
    lse_ptr,
    grad_out_ptr,
    grad_lse_ptr,
    shares_ptr,
    slopes_ptr,
    dq_ptr,
    dsinks_ptr,
    first_task,
    scale,
    softmax_scale,
    k,
    padded,
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
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    FACTOR: tl.constexpr,
):
    """One program brings the gradients of ``HEADS`` heads of a query back to its logits, and from there to q.

    ``dq [n, heads, WIDTH]`` and ``dsinks [n, heads]``, the terms of sums over n, are written, and for ``keys_kernel``
    the probabilities, ``shares``, and the gradients of products, ``slopes``, ``[programs, padded, HEADS]`` each. Other
    arguments are those of ``forward_kernel``.
    """
    program = tl.program_id(0).to(tl.int64)
    row, group, pair, head, live = heads_of(first_task + program, GROUPS, GROUP_HEADS, HEADS)
    grad_out = rows_of(grad_out_ptr + pair * VALUE_WIDTH, live, 0, VALUE, VALUE_WIDTH, FACTOR)
    out = rows_of(out_ptr + pair * VALUE_WIDTH, live, 0, VALUE, VALUE_WIDTH, FACTOR)
    mean = tl.sum(out.to(tl.float32) * grad_out.to(tl.float32), axis=1)
    lse = tl.load(lse_ptr + pair, mask=live, other=float("-inf")) * LOG2E
    # Of no keys nothing is subtracted from.
    base = tl.where(lse == float("-inf"), 0.0, lse)
    if SINKS:
        sink = tl.load(sinks_ptr + head, mask=live, other=float("-inf")) * LOG2E
        most = tl.maximum(base, sink)
        logarithm = most + tl.log2(tl.exp2(base - most) + tl.exp2(sink - most))
        tl.store(dsinks_ptr + pair, -tl.exp2(sink - logarithm) * mean, mask=live)
        # What a sink leaves to keys. The logarithm that is returned is without it.
        left = tl.exp2(base - logarithm)
        mean *= left
    mean -= tl.load(grad_lse_ptr + pair, mask=live, other=0.0)
    q_rows = q_ptr + pair * WIDTH
    q = rows_of(q_rows, live, 0, WIDE, WIDTH, FACTOR)
    dq = tl.zeros((HEADS, WIDE), tl.float32)
    if REST:
        q_rest = rows_of(q_rows, live, WIDE, REST, WIDTH, FACTOR)
        dq_rest = tl.zeros((HEADS, REST), tl.float32)
    places_ptr = indices_ptr + row * index_stride + group * index_group_stride
    for start in range(0, k, KEYS):
        slots = start + tl.arange(0, KEYS)
        places = tl.load(places_ptr + slots, mask=slots < k, other=-1)
        some = places >= 0
        at = places.to(tl.int64)
        key_rows = keys_ptr + at * key_stride + group * key_group_stride
        keys = rows_of(key_rows, some, 0, WIDE, WIDTH, FACTOR)
        logits = tl.dot(q, tl.trans(keys))
        if REST:
            keys_rest = rows_of(key_rows, some, WIDE, REST, WIDTH, FACTOR)
            logits = tl.dot(q_rest, tl.trans(keys_rest), logits)
        if SHARED:
            values = keys
        else:
            value_rows = values_ptr + at * value_stride + group * value_group_stride
            values = rows_of(value_rows, some, 0, VALUE, VALUE_WIDTH, FACTOR)
        slopes = tl.dot(grad_out, tl.trans(values))
        shares = tl.exp2(tl.where(some[None, :], logits * scale - base[:, None], float("-inf")))
        if SINKS:
            slopes *= left[:, None]
        slopes = (shares * (slopes - mean[:, None]) * softmax_scale).to(FACTOR)
        if SINKS:
            shares *= left[:, None]
        kept = (program * padded + slots)[None, :] * HEADS + tl.arange(0, HEADS)[:, None]
        tl.store(shares_ptr + kept, shares.to(FACTOR))
        tl.store(slopes_ptr + kept, slopes)
        dq = tl.dot(slopes, keys, dq)
        if REST:
            dq_rest = tl.dot(slopes, keys_rest, dq_rest)
    store_rows(dq_ptr + pair * WIDTH, dq, live, 0, WIDE, WIDTH)
    if REST:
        store_rows(dq_ptr + pair * WIDTH, dq_rest, live, WIDE, REST, WIDTH)


@triton.jit(do_not_specialize=["first_task"])
def keys_kernel(
    q_ptr,
    grad_out_ptr,
    keys_ptr,
    counts_ptr,
    slots_ptr,
    shares_ptr,
    slopes_ptr,
    per_one_ptr,
    sums_ptr,
    first_task,
    k,
    padded,
    key_stride,
    key_group_stride,
    count_stride,
    count_group_stride,
    GROUPS: tl.constexpr,
    GROUP_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    SUM_WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTS: tl.constexpr,
    SLOPES: tl.constexpr,
    SHARES: tl.constexpr,
    FIXED: tl.constexpr,
    QUERIES: tl.constexpr,
    TOGETHER: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    FACTOR: tl.constexpr,
):
    """One program adds what ``QUERIES`` adjacent queries give to ``COLUMNS`` columns of the gradients of their keys.

    ``PARTS`` adjacent programs share the columns of the queries out, from ``FIRST`` on.

    ``sums [L, GROUPS, SUM_WIDTH]`` are FP32, or if ``FIXED`` int32 with ``per_one [L, GROUPS]`` units in 1. ``SLOPES``:
    slopes times q are added, to keys; ``SHARES``: shares times gradients of the output, to values. Both have a row for
    each slot of a query. ``keys``: the indices of a query, or one list of ``TOGETHER`` queries and then with ``slots``,
    where each of them has these keys. ``counts``: of lists of ``TOGETHER``, -1 where queries stay by themselves; either
    kind of program leaves out the other's. No accumulator outlives a tile.
    """
    BLOCKS: tl.constexpr = GROUPS * ((GROUP_HEADS + HEADS - 1) // HEADS)
    program = (tl.program_id(0) // PARTS).to(tl.int64)
    row, group, pair, _, live = heads_of(first_task // QUERIES + program, GROUPS, GROUP_HEADS, HEADS, QUERIES)
    if counts_ptr is not None:
        count = tl.load(counts_ptr + row // TOGETHER * count_stride + group * count_group_stride)
        if (count >= 0) != (QUERIES > 1):
            return
        if QUERIES > 1:
            k = count
    # Of several parts none has columns beyond the width.
    part = tl.program_id(0) % PARTS * COLUMNS
    if SLOPES:
        q = rows_of(q_ptr + pair * WIDTH + part, live, FIRST, COLUMNS, WIDTH, FACTOR)
    if SHARES:
        grad_out = rows_of(grad_out_ptr + pair * VALUE_WIDTH + part, live, FIRST, COLUMNS, VALUE_WIDTH, FACTOR)
    keys_ptr += row // QUERIES * key_stride + group * key_group_stride
    lane = tl.arange(0, QUERIES * HEADS)
    task = (program // BLOCKS * QUERIES + lane // HEADS) * BLOCKS + program % BLOCKS
    if QUERIES > 1:
        slots_ptr += (row + lane // HEADS) * key_stride + group * key_group_stride
    for start in range(0, k, KEYS):
        at = start + tl.arange(0, KEYS)
        places = tl.load(keys_ptr + at, mask=at < k, other=-1)
        # Slots that nobody wrote are rows of terms that nobody adds.
        slots = at[:, None]
        some = slots >= 0
        if QUERIES > 1:
            slots = tl.load(slots_ptr[None, :] + at[:, None], mask=(at < k)[:, None], other=-1)
            some = slots >= 0
        left = (task[None, :] * padded + slots) * HEADS + (lane % HEADS)[None, :]
        terms = tl.zeros((KEYS, COLUMNS), tl.float32)
        if SLOPES:
            terms = tl.dot(tl.load(slopes_ptr + left, mask=some, other=0.0).to(FACTOR), q, terms)
        if SHARES:
            terms = tl.dot(tl.load(shares_ptr + left, mask=some, other=0.0).to(FACTOR), grad_out, terms)
        sums = places.to(tl.int64) * GROUPS + group
        per_one = 1.0
        if FIXED:
            per_one = tl.load(per_one_ptr + sums, mask=places >= 0, other=0.0)
        add_rows(sums_ptr + sums * SUM_WIDTH + part, terms, places >= 0, per_one, FIRST, COLUMNS, SUM_WIDTH, FIXED)


# For sums of whole numbers, which are added one at a time where FP32 is by four. Sums that are not known to be aligned
# have adjacent columns in adjacent lanes, not four in each.
fixed_keys_kernel = triton.jit(do_not_specialize=["first_task"], do_not_specialize_on_alignment=["sums_ptr"])(
    keys_kernel.fn
)


@triton.jit(do_not_specialize=["first_task"])
def bounds_kernel(
    q_most_ptr,
    grad_out_most_ptr,
    indices_ptr,
    shares_ptr,
    slopes_ptr,
    most_ptr,
    value_most_ptr,
    times_ptr,
    first_task,
    k,
    padded,
    index_stride,
    index_group_stride,
    GROUPS: tl.constexpr,
    GROUP_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One program bounds what some heads of a query give to ``KEYS`` of its keys, and counts.

    ``q_most``, ``grad_out_most [n, heads]`` are the largest magnitudes of a row. ``times [L, GROUPS]`` are additions to
    a key, ``most [L, GROUPS]`` the bits of the largest bound of one of them, and ``value_most`` that of values,
    which if None count with their keys. Neither has an order, and numbers above 0 are in that of their bits.
    """
    program = tl.program_id(0).to(tl.int64)
    row, group, pair, _, live = heads_of(first_task + program, GROUPS, GROUP_HEADS, HEADS)
    places_ptr = indices_ptr + row * index_stride + group * index_group_stride
    slots = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    places = tl.load(places_ptr + slots, mask=slots < k, other=-1)
    some = places >= 0
    at = (program * padded + slots)[:, None] * HEADS + tl.arange(0, HEADS)[None, :]
    slopes = tl.load(slopes_ptr + at, mask=some[:, None], other=0.0).to(tl.float32)
    shares = tl.load(shares_ptr + at, mask=some[:, None], other=0.0).to(tl.float32)
    of_keys = tl.sum(tl.abs(slopes) * tl.load(q_most_ptr + pair, mask=live, other=0.0)[None, :], axis=1)
    of_values = tl.sum(shares * tl.load(grad_out_most_ptr + pair, mask=live, other=0.0)[None, :], axis=1)
    sums = places.to(tl.int64) * GROUPS + group
    if value_most_ptr is None:
        of_keys += of_values
    else:
        tl.atomic_max(value_most_ptr + sums, of_values.to(tl.int32, bitcast=True), mask=some, sem="relaxed")
    tl.atomic_max(most_ptr + sums, of_keys.to(tl.int32, bitcast=True), mask=some, sem="relaxed")
    tl.atomic_add(times_ptr + sums, 1, mask=some, sem="relaxed")
