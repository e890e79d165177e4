"""Scores of chosen keys only."""

import triton
import triton.language as tl

from hyscale_kernels.scoring.triton import columns_of, tile_scores


@triton.jit
def rescore_kernel(
    q_ptr,
    keys_ptr,
    weights_ptr,
    key_scale_ptr,
    places_ptr,
    counts_ptr,
    scores_ptr,
    width,
    key_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    SCALED: tl.constexpr,
    COUNTED: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """One program scores a query against the keys at its own ``places [n, width]``.

    The query stands four times in the product, so that heads add up in the same order as in a table. ``COUNTED``: only
    the first ``counts [n]`` places count; otherwise all but negative ones, whose score is 0.
    """
    row = tl.program_id(0).to(tl.int64)
    _, head = columns_of(0, 4, HEADS)
    columns = row * HEADS + head
    q = tl.load(q_ptr + columns[None, :] * DIM + tl.arange(0, DIM)[:, None])
    weights = tl.load(weights_ptr + columns)
    if COUNTED:
        count = tl.load(counts_ptr + row)
    else:
        count = width
    for start in range(0, count, KEYS):
        slots = start + tl.arange(0, KEYS)
        places = tl.load(places_ptr + row * width + slots, mask=slots < count, other=-1)
        # The first key stands in for none.
        some = tl.maximum(places, 0)
        keys = tl.load(keys_ptr + some.to(tl.int64)[:, None] * key_stride + tl.arange(0, DIM)[None, :])
        # All four are equal.
        scores = tl.max(tile_scores(keys, q, weights, 4, HEADS, IMPRECISE), axis=1)
        if SCALED:
            scores *= tl.load(key_scale_ptr + some)
        tl.store(scores_ptr + row * width + slots, tl.where(places < 0, 0.0, scores), mask=slots < count)
