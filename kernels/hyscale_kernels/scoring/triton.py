"""Scores of a tile: keys on the rows of the tensor-core product, (query, head) pairs on its columns.

Of eight neighbouring columns of a product, four lanes of a warp own two each. For several queries columns are ordered
so that the two belong to one query and the four lanes to four: a lane then owns all heads of its queries, and the sum
over heads needs no exchange between lanes. The columns of a single query are its heads, a quarter of them a lane.

Every kernel adds up heads in the same order, by the same fused multiplications and additions: the quarter of the heads
that a lane would own of a single query, then the four quarters. So the score of a query and a key has the same bits in
a table, in a filter and when it is computed again.
"""

import triton
import triton.language as tl

# The interpreter takes a reduction of our own element by element.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def columns_of(queries_first, QUERIES: tl.constexpr, HEADS: tl.constexpr):
    """(query, head) of each column of a tile of a multiple of 4 queries: ``[QUERIES * HEADS]`` each, HEADS even."""
    column = tl.arange(0, QUERIES * HEADS)
    group = column // (4 * HEADS)
    within = column % (4 * HEADS)
    return queries_first + 4 * group + within % 8 // 2, within // 8 * 2 + within % 2


@triton.jit
def _multiply_add(total, scale, term, weight):
    """One step of a sum of products: ``scale`` is the weight of the first term, 1 of a sum."""
    return tl.fma(term, weight, total * scale), tl.full(scale.shape, 1.0, tl.float32)


@triton.jit
def _by_query(columns, QUERIES: tl.constexpr, HEADS: tl.constexpr):
    """Columns as ``[rows, QUERIES, HEADS]``; in the order of ``columns_of``, or of heads for a single query."""
    rows: tl.constexpr = columns.shape[0]
    if QUERIES == 1:
        heads = tl.reshape(columns, (rows, 1, HEADS))
    else:
        split = tl.reshape(columns, (rows, QUERIES // 4, HEADS // 2, 4, 2))
        heads = tl.reshape(tl.permute(split, (0, 1, 3, 2, 4)), (rows, QUERIES, HEADS))
    return heads


@triton.jit
def _by_quarter(heads):
    """``[rows, queries, heads]`` as ``[rows, queries, 4, heads / 4]``: what four lanes own of a single query."""
    split = tl.reshape(heads, (heads.shape[0], heads.shape[1], heads.shape[2] // 8, 4, 2))
    return tl.reshape(tl.permute(split, (0, 1, 3, 2, 4)), (heads.shape[0], heads.shape[1], 4, heads.shape[2] // 4))


@triton.jit
def tile_scores(keys, q, weights, QUERIES: tl.constexpr, HEADS: tl.constexpr, IMPRECISE: tl.constexpr):
    """Scores ``[KEYS, QUERIES]`` in FP32 of ``keys [KEYS, DIM]``, ``q [DIM, QUERIES * HEADS]`` and head weights.

    Columns of ``q`` and weights are in the order of ``columns_of``, or of heads for a single query. ``IMPRECISE``:
    products that an FP8 tensor core may add up before FP32 does; None leaves it to the compiler.
    """
    products = tl.dot(keys, q, max_num_imprecise_acc=IMPRECISE)
    # An ordinary maximum would turn NaN into a score of 0.
    positive = tl.maximum(products, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if INTERPRETED:
        return tl.sum(_by_query(positive * weights[None, :], QUERIES, HEADS), axis=2)
    # Left to itself, the compiler fuses products and sums differently from one kernel to the next.
    terms = _by_query(positive, QUERIES, HEADS)
    factors = _by_query(tl.broadcast_to(weights[None, :], positive.shape), QUERIES, HEADS)
    if HEADS < 16:
        # Several copies of a query: a lane owns all heads.
        total, _ = tl.reduce((terms, factors), 2, _multiply_add)
    else:
        quarters, _ = tl.reduce((_by_quarter(terms), _by_quarter(factors)), 3, _multiply_add)
        pairs = tl.sum(tl.reshape(quarters, (quarters.shape[0], quarters.shape[1], 2, 2)), axis=2)
        total = tl.sum(pairs, axis=2)
    return total
