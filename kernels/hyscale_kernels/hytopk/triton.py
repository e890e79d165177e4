"""Threshold, filter and compaction: from queries and keys to a few candidates a query, without a table of scores."""

import triton
import triton.language as tl

from hyscale_kernels.scoring.triton import columns_of, tile_scores
from hyscale_kernels.top_k.triton import NOTHING, bits_of, ordered, score_of, threshold_of

# The lowest finite score: a threshold that turns nothing away but NaN and minus infinity.
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def threshold_kernel(
    samples_ptr,
    spans_ptr,
    threshold_ptr,
    open_ptr,
    samples,
    rank,
    capacity,
    hopeless,
    SAMPLES: tl.constexpr,
):
    """One program finds the ``rank``-th best of a query's sampled scores ``[samples]``.

    The threshold is the lowest finite number where all visible keys fit the candidates, or too few samples are finite.
    ``open``: the query's span, or an empty one where ``hopeless`` samples reach the threshold: so many keys are equal
    there that candidates would overflow.
    """
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, SAMPLES)
    begin = tl.load(spans_ptr + 2 * row)
    end = tl.load(spans_ptr + 2 * row + 1)
    threshold = tl.full((), NOTHING + 1, tl.int32)
    if end - begin > capacity:
        values = tl.load(samples_ptr + row * samples + places, mask=places < samples, other=float("-inf"))
        order = ordered(values)
        threshold = threshold_of(order, rank)
        if tl.sum((order >= threshold).to(tl.int32)) >= hopeless:
            end = begin
    # NOTHING + 1 would be the bits of a NaN.
    tl.store(threshold_ptr + row, tl.where(threshold == NOTHING + 1, LOWEST, score_of(threshold)))
    tl.store(open_ptr + 2 * row, begin)
    tl.store(open_ptr + 2 * row + 1, end)


@triton.jit
def _group(
    start,
    q,
    weights,
    threshold,
    begins,
    ends,
    inside,
    words,
    keys_ptr,
    key_scale_ptr,
    width,
    key_stride,
    WHOLE: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    LANES: tl.constexpr,
    SCALED: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """One bit a key of 32 tiles, kept in registers and written once. ``WHOLE``: every query sees every key."""
    lanes = tl.arange(0, LANES)
    bits = tl.zeros((LANES, QUERIES), tl.int32)
    for tile in range(0, 32):
        # The 32 keys of a lane are neighbours, so that its word is a piece of the query's bitmap.
        places = start + lanes * 32 + tile
        pointers = keys_ptr + places.to(tl.int64)[:, None] * key_stride + tl.arange(0, DIM)[None, :]
        if WHOLE:
            keys = tl.load(pointers)
        else:
            keys = tl.load(pointers, mask=(places < width)[:, None], other=0.0)
        scores = tile_scores(keys, q, weights, QUERIES, HEADS, IMPRECISE)
        if SCALED:
            scores *= tl.load(key_scale_ptr + places, mask=places < width, other=0.0)[:, None]
        # NaN reaches nothing.
        passed = scores >= threshold[None, :]
        if not WHOLE:
            passed &= (places[:, None] >= begins[None, :]) & (places[:, None] < ends[None, :])
        bits |= passed.to(tl.int32) << tile
    tl.store(words[None, :] + (start // 32 + lanes)[:, None], bits, mask=inside[None, :])


@triton.jit
def filter_kernel(
    q_ptr,
    keys_ptr,
    weights_ptr,
    key_scale_ptr,
    spans_ptr,
    threshold_ptr,
    words_ptr,
    n,
    width,
    share,
    words_stride,
    key_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    LANES: tl.constexpr,
    SCALED: tl.constexpr,
    BORDERS: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """One program marks, for a block of queries and its share of the keys, which keys reach a query's threshold.

    ``words``: int32 ``[n, words_stride]``, bit b of word w is key 32 w + b. Words outside the groups that a query of
    the block sees are not written. ``BORDERS``: only groups that some query of the block does not see whole.
    """
    GROUP: tl.constexpr = 32 * LANES
    first = tl.program_id(0) * QUERIES
    queries = first + tl.arange(0, QUERIES)
    inside = queries < n
    begins = tl.load(spans_ptr + 2 * queries, mask=inside, other=0)
    ends = tl.load(spans_ptr + 2 * queries + 1, mask=inside, other=0)
    threshold = tl.load(threshold_ptr + queries, mask=inside, other=float("inf"))
    sees = begins < ends
    share_from = tl.program_id(1) * share
    share_to = share_from + share
    low = tl.maximum(tl.min(tl.where(sees, begins, width)) // GROUP * GROUP, share_from)
    high = tl.minimum(tl.cdiv(tl.max(tl.where(sees, ends, 0)), GROUP) * GROUP, share_to)
    # Groups in [from, to) are seen whole by every query that sees any.
    whole_from = tl.maximum(tl.cdiv(tl.max(tl.where(sees, begins, 0)), GROUP) * GROUP, low)
    whole_to = tl.minimum(tl.min(tl.where(sees, ends, width)) // GROUP * GROUP, high)
    whole_from = tl.minimum(whole_from, high)
    whole_to = tl.maximum(whole_to, whole_from)

    query, head = columns_of(first, QUERIES, HEADS)
    live = query < n
    columns = query.to(tl.int64) * HEADS + head
    q = tl.load(q_ptr + columns[None, :] * DIM + tl.arange(0, DIM)[:, None], mask=live[None, :], other=0.0)
    weights = tl.load(weights_ptr + columns, mask=live, other=0.0)
    words = words_ptr + queries.to(tl.int64) * words_stride

    # fmt: off
    for start in range(low, whole_from, GROUP):
        _group(start, q, weights, threshold, begins, ends, inside, words, keys_ptr, key_scale_ptr, width, key_stride,
               False, HEADS, DIM, QUERIES, LANES, SCALED, IMPRECISE)
    if not BORDERS:
        for start in range(whole_from, whole_to, GROUP):
            _group(start, q, weights, threshold, begins, ends, inside, words, keys_ptr, key_scale_ptr, width,
                   key_stride, True, HEADS, DIM, QUERIES, LANES, SCALED, IMPRECISE)
    for start in range(whole_to, high, GROUP):
        _group(start, q, weights, threshold, begins, ends, inside, words, keys_ptr, key_scale_ptr, width, key_stride,
               False, HEADS, DIM, QUERIES, LANES, SCALED, IMPRECISE)
    # fmt: on


@triton.jit
def compact_kernel(
    words_ptr,
    spans_ptr,
    open_ptr,
    threshold_ptr,
    places_ptr,
    candidates_ptr,
    counts_ptr,
    words_stride,
    capacity,
    topk,
    BLOCK: tl.constexpr,
):
    """One program writes the places of a query's set bits in order, and how many there are.

    ``candidates``: how many, whether they fit or not. ``counts``: the same where they hold the selection for certain,
    otherwise -1: too many, or fewer than ``topk`` although a threshold turned keys away, or never filtered.
    """
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(open_ptr + 2 * row)
    end = tl.load(open_ptr + 2 * row + 1)
    count = tl.full((), 0, tl.int32)
    if begin < end:
        last = tl.cdiv(end, 32)
        for start in range(begin // 32, last, BLOCK):
            index = start + tl.arange(0, BLOCK)
            words = tl.load(words_ptr + row * words_stride + index, mask=index < last, other=0)
            each = bits_of(words)
            slots = count + tl.cumsum(each, 0) - each
            while tl.max((words != 0).to(tl.int32)) > 0:
                lowest = words & -words
                place = index * 32 + bits_of(lowest - 1)
                tl.store(places_ptr + row * capacity + slots, place, mask=(words != 0) & (slots < capacity))
                words ^= lowest
                slots += 1
            count += tl.sum(each)
    everything = tl.load(threshold_ptr + row) == LOWEST
    filtered = end == tl.load(spans_ptr + 2 * row + 1)
    certain = filtered & (count <= capacity) & ((count >= topk) | everything)
    tl.store(candidates_ptr + row, count)
    tl.store(counts_ptr + row, tl.where(certain, count, -1))
