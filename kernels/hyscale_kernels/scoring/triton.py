"""Scores of a tile: keys on the rows of the tensor-core product, (query, head) pairs on its columns.

Of eight neighbouring columns of a product, four lanes of a warp own two each. Columns are ordered so that the two
belong to one query and the four lanes to four: a lane then owns all heads of its queries, and the sum over heads needs
no exchange between lanes.
"""

import triton
import triton.language as tl


@triton.jit
def columns_of(queries_first, QUERIES: tl.constexpr, HEADS: tl.constexpr):
    """(query, head) of each column of a tile, ``[QUERIES * HEADS]`` each."""
    column = tl.arange(0, QUERIES * HEADS)
    if QUERIES % 4 == 0 and HEADS % 2 == 0:
        group = column // (4 * HEADS)
        within = column % (4 * HEADS)
        query = 4 * group + within % 8 // 2
        head = within // 8 * 2 + within % 2
    else:
        query = column // HEADS
        head = column % HEADS
    return queries_first + query, head


@triton.jit
def tile_scores(keys, q, weights, QUERIES: tl.constexpr, HEADS: tl.constexpr, IMPRECISE: tl.constexpr):
    """Scores ``[KEYS, QUERIES]`` in FP32 of ``keys [KEYS, DIM]``, ``q [DIM, QUERIES * HEADS]`` and head weights.

    Columns of ``q`` and weights are in the order of ``columns_of``. ``IMPRECISE``: products that an FP8 tensor core may
    add up before FP32 does; None leaves it to the compiler.
    """
    products = tl.dot(keys, q, max_num_imprecise_acc=IMPRECISE)
    # An ordinary maximum would turn NaN into a score of 0.
    positive = tl.maximum(products, 0.0, propagate_nan=tl.PropagateNan.ALL)
    weighted = positive * weights[None, :]
    rows: tl.constexpr = keys.shape[0]
    if QUERIES % 4 == 0 and HEADS % 2 == 0:
        split = tl.reshape(weighted, (rows, QUERIES // 4, HEADS // 2, 4, 2))
        return tl.reshape(tl.sum(tl.sum(split, axis=4), axis=2), (rows, QUERIES))
    return tl.sum(tl.reshape(weighted, (rows, QUERIES, HEADS)), axis=2)
