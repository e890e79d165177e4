"""One list of keys for two adjacent queries."""

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
def _row(keys_ptr, k, SLOTS: tl.constexpr):
    """Keys of a query, how many there are, and whether they ascend and all others follow."""
    slots = tl.arange(0, SLOTS)
    keys = tl.load(keys_ptr + slots, mask=slots < k, other=-1)
    before = tl.load(keys_ptr + slots - 1, mask=(slots > 0) & (slots < k), other=-1)
    some = keys >= 0
    ordered = (slots == 0) | (some == 0) | ((before >= 0) & (before < keys))
    return keys, tl.sum(some.to(tl.int32)), tl.min(ordered.to(tl.int32)) != 0


@triton.jit
def _place(
    own_ptr, other_ptr, keys, count, other_count, list_ptr, other_list_ptr, SLOTS: tl.constexpr, STEPS: tl.constexpr
):
    """Write keys to their places among those of both, and where the other has none of them, -1 to its list."""
    slots = tl.arange(0, SLOTS)
    some = slots < count
    below = _below(other_ptr, other_count, keys, STEPS)
    same = some & (tl.load(other_ptr + below, mask=some & (below < other_count), other=-1) == keys)
    twice = tl.cumsum(same.to(tl.int32)) - same.to(tl.int32)
    at = slots + below - twice
    tl.store(list_ptr + at, keys, mask=some)
    tl.store(other_list_ptr + at, tl.full((SLOTS,), -1, tl.int32), mask=some & (same == 0))


@triton.jit
def pairs_kernel(
    indices_ptr,
    lists_ptr,
    counts_ptr,
    paired_ptr,
    n,
    k,
    capacity,
    LISTS: tl.constexpr,
    SLOTS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """One program puts the indices ``[n, LISTS, k]`` of two queries into one order.

    ``lists [n, LISTS, capacity]`` have a key of both in the same place, and -1 where a query has not the other's;
    ``counts [n, LISTS]`` are their lengths. Where ``capacity`` is too small, the indices do not ascend or there is one
    query only, lists are the indices and ``paired [pairs, LISTS]`` is 0.
    """
    pair = tl.program_id(0).to(tl.int64)
    which = tl.program_id(1)
    first = 2 * pair * LISTS + which
    second = first + LISTS
    first_ptr = indices_ptr + first * k
    second_ptr = indices_ptr + second * k
    both = 2 * pair + 1 < n
    keys, count, ordered = _row(first_ptr, k, SLOTS)
    others, other_count, others_ordered = _row(second_ptr, tl.where(both, k, 0), SLOTS)
    slots = tl.arange(0, SLOTS)
    below = _below(second_ptr, other_count, keys, STEPS)
    some = slots < count
    same = some & (tl.load(second_ptr + below, mask=some & (below < other_count), other=-1) == keys)
    length = count + other_count - tl.sum(same.to(tl.int32))
    together = both & ordered & others_ordered & (length <= capacity)
    tl.store(paired_ptr + pair * LISTS + which, together.to(tl.int32))
    first_list = lists_ptr + first * capacity
    second_list = lists_ptr + second * capacity
    tl.store(counts_ptr + first, tl.where(together, length, k))
    tl.store(counts_ptr + second, tl.where(together, length, k), mask=both)
    if together:
        _place(first_ptr, second_ptr, keys, count, other_count, first_list, second_list, SLOTS, STEPS)
        _place(second_ptr, first_ptr, others, other_count, count, second_list, first_list, SLOTS, STEPS)
    else:
        tl.store(first_list + slots, keys, mask=slots < k)
        tl.store(second_list + slots, others, mask=(slots < k) & both)
