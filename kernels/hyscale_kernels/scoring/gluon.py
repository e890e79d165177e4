"""What kernels in Gluon share: rings of tiles that one warp keeps full, and scores with the bits of ``triton.py``.

A program has two groups of four warps, which take turns at the tensor cores: while one multiplies, the other adds up
heads. Each has a ring of tiles of its own.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _multiply_add(total, scale, term, weight):
    """As in ``scoring.triton``."""
    return gl.fma(term, weight, total * scale), gl.full(scale.shape, 1.0, gl.float32)


@gluon.jit
def _by_query(columns, QUERIES: gl.constexpr, HEADS: gl.constexpr):
    """As in ``scoring.triton``."""
    rows: gl.constexpr = columns.shape[0]
    split = columns.reshape([rows, QUERIES // 4, HEADS // 2, 4, 2])
    return split.permute([0, 1, 3, 2, 4]).reshape([rows, QUERIES, HEADS])


@gluon.jit
def scores_of(products, factors, QUERIES: gl.constexpr, HEADS: gl.constexpr):
    """As ``scoring.triton.tile_scores``, after the product."""
    positive = gl.maximum(products, 0.0, propagate_nan=tl.PropagateNan.ALL)
    total, _ = gl.reduce((_by_query(positive, QUERIES, HEADS), factors), 2, _multiply_add)
    return total


@gluon.jit
def column_of(queries_first, QUERIES: gl.constexpr, HEADS: gl.constexpr, layout: gl.constexpr):
    """(query, head) of each column, as ``scoring.triton.columns_of``."""
    column = gl.arange(0, QUERIES * HEADS, layout=layout)
    within = column % (4 * HEADS)
    return queries_first + column // (4 * HEADS) * 4 + within % 8 // 2, within // 8 * 2 + within % 2


@gluon.jit
def factors_of(
    weights_ptr,
    queries_first,
    n,
    ROWS: gl.constexpr,
    QUERIES: gl.constexpr,
    HEADS: gl.constexpr,
    ACCUMULATOR: gl.constexpr,
):
    """Head weights as ``[ROWS, QUERIES, HEADS]``, in the layout of products."""
    query, head = column_of(queries_first, QUERIES, HEADS, gl.SliceLayout(0, ACCUMULATOR))
    weights = gl.load(weights_ptr + query.to(gl.int64) * HEADS + head, mask=query < n, other=0.0)
    _, wide = gl.broadcast(gl.zeros([ROWS, QUERIES * HEADS], gl.float32, ACCUMULATOR), gl.expand_dims(weights, 0))
    return _by_query(wide, QUERIES, HEADS)


@gluon.jit
def queries_in_shared(
    q_ptr, queries_first, n, QUERIES: gl.constexpr, HEADS: gl.constexpr, DIM: gl.constexpr, LAYOUT: gl.constexpr
):
    """Queries ``[QUERIES * HEADS, DIM]`` in shared memory, in the order of ``column_of``."""
    load: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    query, head = column_of(queries_first, QUERIES, HEADS, gl.SliceLayout(1, load))
    dims = gl.arange(0, DIM, layout=gl.SliceLayout(0, load))
    rows = gl.expand_dims((query.to(gl.int64) * HEADS + head) * DIM, 1)
    loaded = gl.load(q_ptr + rows + gl.expand_dims(dims, 0), mask=gl.expand_dims(query < n, 1), other=0.0)
    return gl.allocate_shared_memory(q_ptr.dtype.element_ty, [QUERIES * HEADS, DIM], LAYOUT, loaded)


@gluon.jit
def whole_range(spans_ptr, queries_first, n, width, share, QUERIES: gl.constexpr, STEP: gl.constexpr):
    """First key, and key behind the last, that every query of a block sees, in steps and within the program's share."""
    flat: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    near = gl.arange(0, 64, layout=flat)
    queries = queries_first + near
    inside = (queries < n) & (near < QUERIES)
    begins = gl.load(spans_ptr + 2 * queries, mask=inside, other=0)
    ends = gl.load(spans_ptr + 2 * queries + 1, mask=inside, other=0)
    sees = begins < ends
    share_from = gl.program_id(1) * share
    low = gl.maximum(gl.min(gl.where(sees, begins, width), 0) // STEP * STEP, share_from)
    high = gl.minimum((gl.max(gl.where(sees, ends, 0), 0) + STEP - 1) // STEP * STEP, share_from + share)
    first = gl.maximum((gl.max(gl.where(sees, begins, 0), 0) + STEP - 1) // STEP * STEP, low)
    return first, gl.minimum(gl.min(gl.where(sees, ends, width), 0) // STEP * STEP, high)


@gluon.jit
def rings(DTYPE: gl.constexpr, STAGES: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr, LAYOUT: gl.constexpr):
    """Two rings of tiles ``[STAGES, KEYS, DIM]``, and their barriers: full ones and empty ones."""
    ring0 = gl.allocate_shared_memory(DTYPE, [STAGES, KEYS, DIM], LAYOUT)
    ring1 = gl.allocate_shared_memory(DTYPE, [STAGES, KEYS, DIM], LAYOUT)
    full0 = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full1 = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty0 = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty1 = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full0.index(stage), count=1)
        mbarrier.init(full1.index(stage), count=1)
        mbarrier.init(empty0.index(stage), count=1)
        mbarrier.init(empty1.index(stage), count=1)
    fence_async_shared()
    gl.thread_barrier()
    return ring0, ring1, full0, full1, empty0, empty1


@gluon.jit
def multiply(step, ring, full, empty, q, zero, STAGES: gl.constexpr):
    """Products of the next tile of a ring, ``[KEYS, columns]``; the tile is given back."""
    stage = step % STAGES
    mbarrier.wait(full.index(stage), step // STAGES & 1)
    token = warpgroup_mma(ring.index(stage), q.permute((1, 0)), zero, use_acc=False, is_async=True)
    products = warpgroup_mma_wait(0, deps=(token,))
    mbarrier.arrive(empty.index(stage), count=1)
    return products


@gluon.jit
def load_tile(step, desc, row, column, ring, full, empty, STAGES: gl.constexpr, BYTES: gl.constexpr):
    """Load the next tile of a ring as soon as it has room."""
    stage = step % STAGES
    mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(stage), BYTES)
    tma.async_copy_global_to_shared(desc, [row, column], full.index(stage), ring.index(stage))
