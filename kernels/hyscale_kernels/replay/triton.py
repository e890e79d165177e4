"""Scores of chosen keys only, and what their gradients are to queries, keys and head weights."""

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

    ``COUNTED``: only the first ``counts [n]`` places count; otherwise all but negative ones, whose score is 0.
    """
    # A product has at least 16 columns: of few heads the query stands in it several times.
    COPIES: tl.constexpr = 1 if HEADS >= 16 else (8 if HEADS == 2 else 4)
    row = tl.program_id(0).to(tl.int64)
    if COPIES == 1:
        head = tl.arange(0, HEADS)
    else:
        _, head = columns_of(0, COPIES, HEADS)
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
        # All copies are equal.
        scores = tl.max(tile_scores(keys, q, weights, COPIES, HEADS, IMPRECISE), axis=1)
        if SCALED:
            scores *= tl.load(key_scale_ptr + some)
        tl.store(scores_ptr + row * width + slots, tl.where(places < 0, 0.0, scores), mask=slots < count)


@triton.jit
def gradient_kernel(
    q_ptr,
    keys_ptr,
    weights_ptr,
    key_scale_ptr,
    places_ptr,
    grads_ptr,
    per_one_ptr,
    dq_ptr,
    dkeys_ptr,
    dweights_ptr,
    width,
    key_stride,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DIM: tl.constexpr,
    KEYS: tl.constexpr,
    SCALED: tl.constexpr,
    FIXED: tl.constexpr,
    FACTOR: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """One program brings the gradients of a query's scores ``grads [n, width]`` back to q, head weights and its keys.

    ``dq [n, HEADS, DIM]`` and ``dweights [n, HEADS]`` are written, ``dkeys [L, DIM]`` is added to: FP32, or if
    ``FIXED`` int64 with ``per_one`` units in 1. ``dkeys`` is that of the scaled keys. ``COLUMNS``: heads, at least the
    16 of a product. ``FACTOR``: type of what is multiplied for gradients.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, COLUMNS)
    dims = tl.arange(0, DIM)
    live = head < HEADS
    columns = row * HEADS + head
    q = tl.load(q_ptr + columns[None, :] * DIM + dims[:, None], mask=live[None, :], other=0.0)
    weights = tl.load(weights_ptr + columns, mask=live, other=0.0)
    by_head = tl.trans(q.to(FACTOR))
    dq = tl.zeros((DIM, COLUMNS), tl.float32)
    dweights = tl.zeros((COLUMNS,), tl.float32)
    if FIXED:
        per_one = tl.load(per_one_ptr)
    for start in range(0, width, KEYS):
        slots = start + tl.arange(0, KEYS)
        places = tl.load(places_ptr + row * width + slots, mask=slots < width, other=-1)
        # Nothing of a stand-in key, which may be infinite, must meet a gradient of 0.
        some = places >= 0
        grads = tl.load(grads_ptr + row * width + slots, mask=some, other=0.0)
        at = places.to(tl.int64)[:, None]
        keys = tl.load(keys_ptr + at * key_stride + dims[None, :], mask=some[:, None], other=0.0)
        products = tl.dot(keys, q, max_num_imprecise_acc=IMPRECISE)
        scaled = grads
        if SCALED:
            scaled = grads * tl.load(key_scale_ptr + places, mask=some, other=0.0)
        # NaN is not above 0.
        active = products > 0.0
        dweights += tl.sum(tl.where(active, products * scaled[:, None], 0.0), axis=0)
        # The factor that all terms of a sum share is left for its end.
        dq += tl.dot(tl.trans(keys.to(FACTOR)), tl.where(active, scaled[:, None], 0.0).to(FACTOR))
        dkeys = tl.dot(tl.where(active, weights[None, :], 0.0).to(FACTOR), by_head) * grads[:, None]
        sums = dkeys_ptr + at * DIM + dims[None, :]
        if FIXED:
            # A power of two, so that only the conversion loses anything.
            units = (dkeys * per_one).to(tl.int64)
            tl.atomic_add(sums, units, mask=some[:, None], sem="relaxed")
        else:
            tl.atomic_add(sums, dkeys, mask=some[:, None], sem="relaxed")
    tl.store(dq_ptr + columns[None, :] * DIM + dims[:, None], dq * weights[None, :], mask=live[None, :])
    tl.store(dweights_ptr + columns, dweights, mask=live)
