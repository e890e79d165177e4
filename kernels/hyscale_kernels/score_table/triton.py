"""Write a table of scores."""

import triton
import triton.language as tl

from hyscale_kernels.scoring.triton import columns_of, tile_scores


@triton.jit
def _tile(
    start,
    best,
    q,
    weights,
    begins,
    ends,
    inside,
    rows,
    keys_ptr,
    key_scale_ptr,
    width,
    key_stride,
    WHOLE: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SCALED: tl.constexpr,
    TABLE: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """Scores of one tile of keys, written or folded into ``best``. ``WHOLE``: every query sees every key of it."""
    places = start + tl.arange(0, KEYS)
    tile = keys_ptr + places.to(tl.int64)[:, None] * key_stride + tl.arange(0, DIM)[None, :]
    if WHOLE:
        keys = tl.load(tile)
    else:
        keys = tl.load(tile, mask=(places < width)[:, None], other=0.0)
    scores = tile_scores(keys, q, weights, QUERIES, HEADS, IMPRECISE)
    if SCALED:
        scores *= tl.load(key_scale_ptr + places, mask=places < width, other=0.0)[:, None]
    if WHOLE and not TABLE:
        # A maximum passes over NaN.
        return tl.maximum(best, scores)
    # NaN is not equal to itself.
    seen = scores == scores
    if not WHOLE:
        seen &= (places[:, None] >= begins[None, :]) & (places[:, None] < ends[None, :])
    scores = tl.where(seen, scores, float("-inf"))
    if TABLE:
        live = inside[None, :]
        if not WHOLE:
            live &= (places < width)[:, None]
        tl.store(rows[None, :] + places[:, None], scores, mask=live)
    else:
        best = tl.maximum(best, scores)
    return best


@triton.jit
def table_kernel(
    q_ptr,
    keys_ptr,
    weights_ptr,
    key_scale_ptr,
    spans_ptr,
    out_ptr,
    n,
    width,
    share,
    key_stride,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SCALED: tl.constexpr,
    TABLE: tl.constexpr,
    BORDERS: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """One program scores a block of queries against every tile of keys that one of them sees, of its share of the keys.

    ``TABLE``: write ``out[n, width]``; otherwise only the maximum of each query and share, ``out[shares, n]``: what
    scoring costs when nothing is kept. Tiles that no query of the block sees are filled with minus infinity, not
    computed. ``BORDERS``: not the tiles that every query of the block sees whole.
    """
    first = tl.program_id(0) * QUERIES
    queries = first + tl.arange(0, QUERIES)
    inside = queries < n
    begins = tl.load(spans_ptr + 2 * queries, mask=inside, other=0)
    ends = tl.load(spans_ptr + 2 * queries + 1, mask=inside, other=0)
    # A query that sees nothing must not widen the range of the others.
    low = tl.min(tl.where(begins < ends, begins, width)) // KEYS * KEYS
    high = tl.maximum(tl.cdiv(tl.max(tl.where(begins < ends, ends, 0)), KEYS) * KEYS, low)
    # The program's share of the keys.
    share_from = tl.program_id(1) * share
    share_to = tl.minimum(share_from + share, tl.cdiv(width, KEYS) * KEYS)
    low = tl.minimum(tl.maximum(low, share_from), share_to)
    high = tl.minimum(tl.maximum(high, low), share_to)
    # Tiles in [from, to) are seen whole by all queries.
    whole_from = tl.maximum(tl.minimum(tl.cdiv(tl.max(tl.where(inside, begins, 0)), KEYS) * KEYS, high), low)
    whole_to = tl.minimum(tl.maximum(tl.min(tl.where(inside, ends, width)) // KEYS * KEYS, whole_from), high)

    query, head = columns_of(first, QUERIES, HEADS)
    live = query < n
    columns = query.to(tl.int64) * HEADS + head
    q = tl.load(q_ptr + columns[None, :] * DIM + tl.arange(0, DIM)[:, None], mask=live[None, :], other=0.0)
    weights = tl.load(weights_ptr + columns, mask=live, other=0.0)
    rows = out_ptr + queries.to(tl.int64) * width
    nothing = tl.full((KEYS, QUERIES), float("-inf"), tl.float32)
    best = nothing

    # fmt: off
    for start in range(low, whole_from, KEYS):
        best = _tile(start, best, q, weights, begins, ends, inside, rows, keys_ptr, key_scale_ptr, width, key_stride,
                     False, HEADS, DIM, QUERIES, KEYS, SCALED, TABLE, IMPRECISE)
    if not BORDERS:
        for start in range(whole_from, whole_to, KEYS):
            best = _tile(start, best, q, weights, begins, ends, inside, rows, keys_ptr, key_scale_ptr, width,
                         key_stride, True, HEADS, DIM, QUERIES, KEYS, SCALED, TABLE, IMPRECISE)
    for start in range(whole_to, high, KEYS):
        best = _tile(start, best, q, weights, begins, ends, inside, rows, keys_ptr, key_scale_ptr, width, key_stride,
                     False, HEADS, DIM, QUERIES, KEYS, SCALED, TABLE, IMPRECISE)
    # fmt: on

    if TABLE:
        for start in range(share_from, low, KEYS):
            places = start + tl.arange(0, KEYS)
            tl.store(rows[None, :] + places[:, None], nothing, mask=inside[None, :] & (places < width)[:, None])
        for start in range(high, share_to, KEYS):
            places = start + tl.arange(0, KEYS)
            tl.store(rows[None, :] + places[:, None], nothing, mask=inside[None, :] & (places < width)[:, None])
    else:
        tl.store(out_ptr + tl.program_id(1) * n + queries, tl.max(best, axis=0), mask=inside)
