"""One list of keys for adjacent queries."""

import triton
import triton.language as tl


@triton.jit
def _below(keys_ptr, count, wanted, STEPS: tl.constexpr):
    """How many of ``count`` ascending keys are below each of those wanted."""
    low = tl.zeros_like(wanted)
    high = low + count
    for _ in range(STEPS):
        middle = (low + high) // 2
        open_ = low < high
        less = tl.load(keys_ptr + middle, mask=open_, other=0) < wanted
        low = tl.where(open_ & less, middle + 1, low)
        high = tl.where(open_ & (less == 0), middle, high)
    return low


@triton.jit
def _ascending(keys_ptr, width, SLOTS: tl.constexpr):
    """How many keys a query has if they ascend and -1 follows, or else -1."""
    slots = tl.arange(0, SLOTS)
    keys = tl.load(keys_ptr + slots, mask=slots < width, other=-1)
    before = tl.load(keys_ptr + slots - 1, mask=(slots > 0) & (slots < width), other=-1)
    some = keys >= 0
    ordered = (slots == 0) | (some == 0) | ((before >= 0) & (before < keys))
    return tl.where(tl.min(ordered.to(tl.int32)) != 0, tl.sum(some.to(tl.int32)), -1)


@triton.jit
def merge_kernel(
    lists_ptr,
    counts_ptr,
    merged_ptr,
    merged_counts_ptr,
    at_ptr,
    rows,
    width,
    capacity,
    LISTS: tl.constexpr,
    SLOTS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """One program merges rows 2 p and 2 p + 1 of ascending ``lists [rows, LISTS, width]`` into one without repetition.

    ``counts [rows, LISTS]``, how long they are, or None for indices of queries. ``merged_counts`` are those of ``merged
    [pairs, LISTS, capacity]``: -1 if there is one row only, keys do not ascend, a count is -1, or all do not fit.
    ``at [rows, LISTS, width]``: where a key went.
    """
    pair = tl.program_id(0).to(tl.int64)
    which = tl.program_id(1)
    row = 2 * pair * LISTS + which
    first_ptr = lists_ptr + row * width
    second_ptr = first_ptr + LISTS * width
    both = 2 * pair + 1 < rows
    if counts_ptr is None:
        count = _ascending(first_ptr, width, SLOTS)
        other_count = _ascending(second_ptr, tl.where(both, width, 0), SLOTS)
    else:
        count = tl.load(counts_ptr + row)
        other_count = tl.load(counts_ptr + row + LISTS, mask=both, other=-1)
    good = both & (count >= 0) & (other_count >= 0)
    count = tl.where(good, count, 0)
    other_count = tl.where(good, other_count, 0)
    slots = tl.arange(0, SLOTS)
    merged_ptr += (pair * LISTS + which) * capacity
    at_ptr += row * width
    # Of keys that both have, the first list's count.
    some = slots < count
    keys = tl.load(first_ptr + slots, mask=some, other=-1)
    below = _below(second_ptr, other_count, keys, STEPS)
    same = (some & (tl.load(second_ptr + below, mask=some & (below < other_count), other=-1) == keys)).to(tl.int32)
    at = slots + below - (tl.cumsum(same) - same)
    tl.store(merged_ptr + at, keys, mask=some & (at < capacity))
    tl.store(at_ptr + slots, at, mask=some)
    length = count + other_count - tl.sum(same)
    some = slots < other_count
    keys = tl.load(second_ptr + slots, mask=some, other=-1)
    below = _below(first_ptr, count, keys, STEPS)
    same = (some & (tl.load(first_ptr + below, mask=some & (below < count), other=-1) == keys)).to(tl.int32)
    at = slots + below - (tl.cumsum(same) - same)
    tl.store(merged_ptr + at, keys, mask=some & (same == 0) & (at < capacity))
    tl.store(at_ptr + LISTS * width + slots, at, mask=some)
    tl.store(merged_counts_ptr + pair * LISTS + which, tl.where(good & (length <= capacity), length, -1))


@triton.jit
def slots_kernel(
    indices_ptr,
    counts_ptr,
    at_ptr,
    at_pair_ptr,
    slots_ptr,
    width,
    pair_width,
    capacity,
    LISTS: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """One program writes, for each key of a list of four queries, where a query has it; -1 stands where it has not.

    ``at [n, LISTS, width]`` and ``at_pair [pairs, LISTS, pair_width]``: where keys of queries went in the list of a
    pair, and those of pairs in the list of both.
    """
    row = tl.program_id(0).to(tl.int64)
    which = tl.program_id(1)
    if tl.load(counts_ptr + row // 4 * LISTS + which) < 0:
        return
    own = (row * LISTS + which) * width
    slots = tl.arange(0, SLOTS)
    some = tl.load(indices_ptr + own + slots, mask=slots < width, other=-1) >= 0
    at = tl.load(at_ptr + own + slots, mask=some, other=0)
    at = tl.load(at_pair_ptr + (row // 2 * LISTS + which) * pair_width + at, mask=some, other=0)
    tl.store(slots_ptr + (row * LISTS + which) * capacity + at, slots, mask=some)
