"""Exact selection among stored scores.

Scores are compared as whole numbers in their order, so that all 32 bits decide and equal scores are equal.
"""

import triton
import triton.language as tl

# What is never selected: NaN, minus infinity, and places behind the last. Below every score.
NOTHING = tl.constexpr(-(2**31))


@triton.jit
def ordered(scores):
    """int32 in the order of FP32 scores; -0.0 equals 0.0, NaN and minus infinity are ``NOTHING``."""
    bits = tl.where(scores == 0.0, 0.0, scores).to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(scores > float("-inf"), order, NOTHING)


@triton.jit
def score_of(order):
    """The score of a place in the order; minus infinity of ``NOTHING``."""
    bits = tl.where(order < 0, order ^ 0x7FFFFFFF, order)
    return tl.where(order == NOTHING, float("-inf"), bits.to(tl.float32, bitcast=True))


@triton.jit
def threshold_of(order, rank):
    """The highest t such that at least ``rank`` elements are >= t, or any t that exactly ``rank`` reach.

    With fewer than ``rank`` elements other than ``NOTHING``: the lowest number that is not ``NOTHING``.
    """
    low = tl.full((), NOTHING + 1, tl.int32)
    high = tl.max(order)
    if tl.sum((order != NOTHING).to(tl.int32)) > rank:
        low = tl.min(tl.where(order != NOTHING, order, 0x7FFFFFFF))
        while low < high:
            # The mean rounded up, without overflow.
            middle = (low | high) - ((low ^ high) >> 1)
            reached = tl.sum((order >= middle).to(tl.int32))
            low = tl.where(reached >= rank, middle, low)
            high = tl.where(reached >= rank, tl.where(reached == rank, middle, high), middle - 1)
    return low


@triton.jit
def _select(scores, places, chosen, count, topk, WIDTH: tl.constexpr):
    """Write the places of the ``topk`` best of at most ``WIDTH`` scores, kept in registers; return the lowest."""
    slots = tl.arange(0, WIDTH)
    order = ordered(tl.load(scores + slots, mask=slots < count, other=float("-inf")))
    threshold = threshold_of(order, topk)
    over = order > threshold
    level = (order == threshold).to(tl.int32)
    spare = topk - tl.sum(over.to(tl.int32))
    # Both counts in one scan: neither exceeds WIDTH.
    before = tl.cumsum(over.to(tl.int32) * 65536 + level, 0)
    above = before >> 16
    ties = before & 65535
    kept = over | ((level > 0) & (ties <= spare))
    tl.store(chosen + above + tl.minimum(ties, spare) - 1, tl.load(places + slots, mask=kept, other=0), mask=kept)
    found = tl.sum(kept.to(tl.int32))
    for start in range(found, topk, WIDTH):
        tl.store(chosen + start + slots, -1, mask=start + slots < topk)
    return tl.where(found > 0, score_of(tl.min(tl.where(kept, order, 0x7FFFFFFF))), float("inf"))


@triton.jit
def short_kernel(
    scores_ptr, places_ptr, counts_ptr, chosen_ptr, lowest_ptr, stride, topk, NARROW: tl.constexpr, WIDE: tl.constexpr
):
    """One program selects among the first ``counts`` of a row of scores that stand for ascending places."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(counts_ptr + row)
    scores = scores_ptr + row * stride
    places = places_ptr + row * stride
    chosen = chosen_ptr + row * topk
    if count <= NARROW:
        lowest = _select(scores, places, chosen, count, topk, NARROW)
    else:
        lowest = _select(scores, places, chosen, count, topk, WIDE)
    tl.store(lowest_ptr + row, lowest)


@triton.jit
def spread(place):
    """A fixed pseudo-random whole number of 15 bits for a place, so that no period in the data meets the samples."""
    mixed = (place + 1).to(tl.uint32) * 2654435761
    mixed = (mixed ^ (mixed >> 15)) * 2246822519
    return ((mixed ^ (mixed >> 13)) >> 16).to(tl.int32) & 0x7FFF


@triton.jit
def sample_kernel(table_ptr, spans_ptr, threshold_ptr, table_stride, capacity, target, SAMPLES: tl.constexpr):
    """One program judges by ``SAMPLES`` scores of a row what about ``target`` of it reach.

    ``threshold``: in the order of ``ordered``; below every score where all that is visible fits ``capacity``.
    """
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(spans_ptr + 2 * row)
    end = tl.load(spans_ptr + 2 * row + 1)
    visible = tl.maximum(end - begin, 0)
    threshold = tl.full((), NOTHING + 1, tl.int32)
    if visible > capacity:
        samples = tl.arange(0, SAMPLES)
        within = (samples.to(tl.int64) * visible // SAMPLES).to(tl.int32)
        places = begin + within + spread(samples) % tl.maximum(visible // SAMPLES, 1)
        order = ordered(tl.load(table_ptr + row * table_stride + places, mask=places < end, other=float("-inf")))
        rank = (target.to(tl.int64) * SAMPLES // visible).to(tl.int32)
        threshold = threshold_of(order, tl.maximum(rank, 1))
    tl.store(threshold_ptr + row, threshold)


@triton.jit
def pack_kernel(
    table_ptr,
    spans_ptr,
    threshold_ptr,
    over_ptr,
    level_ptr,
    table_stride,
    words_stride,
    WORDS: tl.constexpr,
    TIMES: tl.constexpr,
):
    """One program compares a piece of a row with the row's threshold: a bit a score above it, and one at it.

    ``over``, ``level``: int32 ``[n, words_stride]``, bit b of word w is score 32 w + b; written where a word has a
    visible score.
    """
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(spans_ptr + 2 * row)
    end = tl.load(spans_ptr + 2 * row + 1)
    threshold = tl.load(threshold_ptr + row)
    bit = tl.arange(0, 32)
    for time in range(0, TIMES):
        words = (tl.program_id(1) * TIMES + time) * WORDS + tl.arange(0, WORDS)
        if (tl.min(words) * 32 < end) & ((tl.max(words) + 1) * 32 > begin):
            places = words[:, None] * 32 + bit[None, :]
            seen = (places >= begin) & (places < end)
            values = tl.load(table_ptr + row * table_stride + places, mask=seen, other=float("-inf"))
            order = ordered(values)
            over = tl.sum((order > threshold).to(tl.int32) << bit[None, :], axis=1)
            level = tl.sum((order == threshold).to(tl.int32) << bit[None, :], axis=1)
            live = words < words_stride
            tl.store(over_ptr + row * words_stride + words, over, mask=live)
            tl.store(level_ptr + row * words_stride + words, level, mask=live)


@triton.jit
def bits_of(words):
    """How many bits of int32 words are set."""
    words = words - ((words >> 1) & 0x55555555)
    words = (words & 0x33333333) + ((words >> 2) & 0x33333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F
    return ((words * 0x01010101) >> 24) & 0x3F


@triton.jit
def collect_kernel(
    table_ptr,
    spans_ptr,
    threshold_ptr,
    over_ptr,
    level_ptr,
    scores_ptr,
    places_ptr,
    counts_ptr,
    table_stride,
    words_stride,
    capacity,
    topk,
    BLOCK: tl.constexpr,
):
    """One program copies the scores of a row whose bits are set, and their places, in order.

    Of scores at the threshold, those of words before which ``topk`` are found already are left out: the selection
    cannot hold more. ``counts``: how many were copied, or -1 where fewer than ``topk`` reach the threshold or more
    than ``capacity``.
    """
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(spans_ptr + 2 * row)
    end = tl.load(spans_ptr + 2 * row + 1)
    table = table_ptr + row * table_stride
    count = tl.full((), 0, tl.int32)
    ties = tl.full((), 0, tl.int32)
    last = tl.cdiv(end, 32)
    if begin >= end:
        last = begin // 32
    for start in range(begin // 32, last, BLOCK):
        index = start + tl.arange(0, BLOCK)
        over = tl.load(over_ptr + row * words_stride + index, mask=index < last, other=0)
        level = tl.load(level_ptr + row * words_stride + index, mask=index < last, other=0)
        each_tie = bits_of(level)
        ties_before = ties + tl.cumsum(each_tie, 0) - each_tie
        words = over | tl.where(ties_before < topk, level, 0)
        each = bits_of(words)
        slots = count + tl.cumsum(each, 0) - each
        while tl.max((words != 0).to(tl.int32)) > 0:
            lowest = words & -words
            place = index * 32 + bits_of(lowest - 1)
            live = (words != 0) & (slots < capacity)
            tl.store(places_ptr + row * capacity + slots, place, mask=live)
            tl.store(scores_ptr + row * capacity + slots, tl.load(table + place, mask=live, other=0.0), mask=live)
            words ^= lowest
            slots += 1
        count += tl.sum(each)
        ties += tl.sum(each_tie)
    everything = tl.load(threshold_ptr + row) == NOTHING + 1
    certain = (count <= capacity) & ((count >= topk) | everything)
    tl.store(counts_ptr + row, tl.where(certain, count, -1))


@triton.jit
def exhaustive_kernel(
    table_ptr, spans_ptr, counts_ptr, chosen_ptr, lowest_ptr, table_stride, topk, BLOCK: tl.constexpr
):
    """One program selects from a whole row, eight bits at a time; rows with a count of 0 or more are done already."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(counts_ptr + row) < 0:
        begin = tl.load(spans_ptr + 2 * row)
        end = tl.load(spans_ptr + 2 * row + 1)
        scores = table_ptr + row * table_stride
        digits = tl.arange(0, 256)
        # The digits found so far, with the sign flipped so that digits compare as they are; and how many are missing.
        prefix = tl.full((), 0, tl.int32)
        missing = topk
        for step in tl.static_range(4):
            shift = 24 - 8 * step
            found = tl.zeros((256,), tl.int32)
            for start in range(begin, end, BLOCK):
                places = start + tl.arange(0, BLOCK)
                order = ordered(tl.load(scores + places, mask=places < end, other=float("-inf")))
                flipped = order ^ NOTHING
                live = order != NOTHING
                if step > 0:
                    live &= (flipped >> (shift + 8)) == (prefix >> (shift + 8))
                found += tl.histogram((flipped >> shift) & 255, 256, mask=live)
            reached = tl.sum(found) - tl.cumsum(found, 0) + found
            digit = tl.max(tl.where(reached >= missing, digits, 0))
            missing -= tl.sum(tl.where(digits > digit, found, 0))
            prefix |= digit << shift
        threshold = prefix ^ NOTHING
        above = tl.full((), 0, tl.int32)
        ties = tl.full((), 0, tl.int32)
        lowest = tl.full((), 0x7FFFFFFF, tl.int32)
        for start in range(begin, end, BLOCK):
            places = start + tl.arange(0, BLOCK)
            order = ordered(tl.load(scores + places, mask=places < end, other=float("-inf")))
            over = order > threshold
            level = (order == threshold) & (order != NOTHING)
            before = tl.cumsum(over.to(tl.int32) * 65536 + level.to(tl.int32), 0)
            over_before = above + (before >> 16)
            ties_before = ties + (before & 65535)
            kept = over | (level & (ties_before <= missing))
            slots = over_before + tl.minimum(ties_before, missing) - 1
            tl.store(chosen_ptr + row * topk + slots, places, mask=kept)
            lowest = tl.minimum(lowest, tl.min(tl.where(kept, order, 0x7FFFFFFF)))
            above += tl.sum(over.to(tl.int32))
            ties += tl.sum(level.to(tl.int32))
        total = above + tl.minimum(ties, missing)
        tl.store(lowest_ptr + row, tl.where(total > 0, score_of(lowest), float("inf")))
        for start in range(total, topk, BLOCK):
            slots = start + tl.arange(0, BLOCK)
            tl.store(chosen_ptr + row * topk + slots, -1, mask=slots < topk)
