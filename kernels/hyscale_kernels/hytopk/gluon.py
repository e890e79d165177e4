"""The filter of ``triton.py`` for groups seen whole: one warp loads keys, two groups of four multiply and mark.

They take turns at the tensor cores: while one multiplies, the other adds up heads and compares. Each marks groups of
its own, from a ring of tiles of its own that the loading warp keeps full. Bits are those of the twin.
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
def _producer(
    desc,
    ring0,
    ring1,
    full0,
    full1,
    empty0,
    empty1,
    first,
    last,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
    DIM: gl.constexpr,
    BYTES: gl.constexpr,
):
    """Keep both rings full: pairs of groups, tile by tile. Row r of the descriptor holds keys 32 r to 32 r + 31."""
    step = 0
    for start in range(first, last, 2 * GROUP):
        for tile in range(0, 32):
            stage = step % STAGES
            phase = step // STAGES & 1
            mbarrier.wait(empty0.index(stage), phase ^ 1)
            mbarrier.expect(full0.index(stage), BYTES)
            tma.async_copy_global_to_shared(desc, [start // 32, tile * DIM], full0.index(stage), ring0.index(stage))
            if start + GROUP < last:
                mbarrier.wait(empty1.index(stage), phase ^ 1)
                mbarrier.expect(full1.index(stage), BYTES)
                tma.async_copy_global_to_shared(
                    desc, [(start + GROUP) // 32, tile * DIM], full1.index(stage), ring1.index(stage)
                )
            step += 1


@gluon.jit
def _scores(products, factors, QUERIES: gl.constexpr, HEADS: gl.constexpr):
    """As ``scoring.triton.tile_scores``, after the product."""
    positive = gl.maximum(products, 0.0, propagate_nan=tl.PropagateNan.ALL)
    total, _ = gl.reduce((_by_query(positive, QUERIES, HEADS), factors), 2, _multiply_add)
    return total


@gluon.jit
def _consumer(
    which,
    ring,
    full,
    empty,
    q,
    weights_ptr,
    key_scale_ptr,
    threshold_ptr,
    words_ptr,
    n,
    words_stride,
    queries_first,
    first,
    last,
    HEADS: gl.constexpr,
    QUERIES: gl.constexpr,
    LANES: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
    K: gl.constexpr,
    SCALED: gl.constexpr,
):
    """Mark every other group, the first or the second of each pair."""
    COLUMNS: gl.constexpr = QUERIES * HEADS
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLUMNS, K]
    )
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, acc_layout))
    group = column // (4 * HEADS)
    within = column % (4 * HEADS)
    query = queries_first + 4 * group + within % 8 // 2
    head = within // 8 * 2 + within % 2
    weights = gl.load(weights_ptr + query.to(gl.int64) * HEADS + head, mask=query < n, other=0.0)
    zero = gl.zeros([LANES, COLUMNS], gl.float32, acc_layout)
    _, wide = gl.broadcast(zero, gl.expand_dims(weights, 0))
    factors = _by_query(wide, QUERIES, HEADS)
    nothing = _scores(zero, factors, QUERIES, HEADS)
    out_layout: gl.constexpr = nothing.type.layout
    queries = queries_first + gl.arange(0, QUERIES, layout=gl.SliceLayout(0, out_layout))
    lanes = gl.arange(0, LANES, layout=gl.SliceLayout(1, out_layout))
    threshold = gl.expand_dims(gl.load(threshold_ptr + queries, mask=queries < n, other=float("inf")), 0)
    words = gl.expand_dims(words_ptr + queries.to(gl.int64) * words_stride, 0)
    inside = gl.expand_dims(queries < n, 0)
    step = 0
    for start in range(first + which * GROUP, last, 2 * GROUP):
        bits = gl.zeros([LANES, QUERIES], gl.int32, out_layout)
        for tile in range(0, 32):
            stage = step % STAGES
            if SCALED:
                # Before the product, which hides how long it takes.
                scale = gl.expand_dims(gl.load(key_scale_ptr + start + lanes * 32 + tile), 1)
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            token = warpgroup_mma(ring.index(stage), q.permute((1, 0)), zero, use_acc=False, is_async=True)
            products = warpgroup_mma_wait(0, deps=(token,))
            mbarrier.arrive(empty.index(stage), count=1)
            scores = _scores(products, factors, QUERIES, HEADS)
            if SCALED:
                scores *= scale
            passed = scores >= threshold
            bits |= passed.to(gl.int32) << tile
            step += 1
        gl.store(words + gl.expand_dims(start // 32 + lanes, 1), bits, mask=inside)


@gluon.jit
def filter_whole_kernel(
    desc,
    q_ptr,
    weights_ptr,
    key_scale_ptr,
    spans_ptr,
    threshold_ptr,
    words_ptr,
    n,
    width,
    share,
    words_stride,
    HEADS: gl.constexpr,
    DIM: gl.constexpr,
    QUERIES: gl.constexpr,
    LANES: gl.constexpr,
    STAGES: gl.constexpr,
    K: gl.constexpr,
    SCALED: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """As ``filter_kernel``, of the groups that every query of a block sees whole; the others are left.

    ``desc``: keys as ``[L / 32, 32 * DIM]`` in blocks of ``[LANES, DIM]``. ``STAGES``: tiles of each of two rings.
    ``K``: elements that an instruction multiplies, 32 bytes. ``LAYOUT``: of queries and keys in shared memory.
    """
    GROUP: gl.constexpr = 32 * LANES
    COLUMNS: gl.constexpr = QUERIES * HEADS
    queries_first = gl.program_id(0) * QUERIES
    flat: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    near = gl.arange(0, 64 if QUERIES < 64 else QUERIES, layout=flat)
    queries = queries_first + near
    inside = (queries < n) & (near < QUERIES)
    begins = gl.load(spans_ptr + 2 * queries, mask=inside, other=0)
    ends = gl.load(spans_ptr + 2 * queries + 1, mask=inside, other=0)
    sees = begins < ends
    share_from = gl.program_id(1) * share
    share_to = share_from + share
    low = gl.maximum(gl.min(gl.where(sees, begins, width), 0) // GROUP * GROUP, share_from)
    high = gl.minimum((gl.max(gl.where(sees, ends, 0), 0) + GROUP - 1) // GROUP * GROUP, share_to)
    first = gl.maximum((gl.max(gl.where(sees, begins, 0), 0) + GROUP - 1) // GROUP * GROUP, low)
    last = gl.minimum(gl.min(gl.where(sees, ends, width), 0) // GROUP * GROUP, high)

    # Columns of the product are rows here, in the order in which a lane owns whole queries.
    load: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    column = gl.arange(0, COLUMNS, layout=gl.SliceLayout(1, load))
    group = column // (4 * HEADS)
    within = column % (4 * HEADS)
    query = queries_first + 4 * group + within % 8 // 2
    head = within // 8 * 2 + within % 2
    dims = gl.arange(0, DIM, layout=gl.SliceLayout(0, load))
    rows = gl.expand_dims((query.to(gl.int64) * HEADS + head) * DIM, 1)
    loaded = gl.load(q_ptr + rows + gl.expand_dims(dims, 0), mask=gl.expand_dims(query < n, 1), other=0.0)
    q = gl.allocate_shared_memory(q_ptr.dtype.element_ty, [COLUMNS, DIM], LAYOUT, loaded)
    ring0 = gl.allocate_shared_memory(q_ptr.dtype.element_ty, [STAGES, LANES, DIM], desc.layout)
    ring1 = gl.allocate_shared_memory(q_ptr.dtype.element_ty, [STAGES, LANES, DIM], desc.layout)
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
    ZERO: gl.constexpr = 0
    ONE: gl.constexpr = 1
    BYTES: gl.constexpr = desc.block_type.nbytes
    gl.warp_specialize(
        [
            (
                _consumer,
                (
                    ZERO,
                    ring0,
                    full0,
                    empty0,
                    q,
                    weights_ptr,
                    key_scale_ptr,
                    threshold_ptr,
                    words_ptr,
                    n,
                    words_stride,
                    queries_first,
                    first,
                    last,
                    HEADS,
                    QUERIES,
                    LANES,
                    GROUP,
                    STAGES,
                    K,
                    SCALED,
                ),
            ),
            (
                _consumer,
                (
                    ONE,
                    ring1,
                    full1,
                    empty1,
                    q,
                    weights_ptr,
                    key_scale_ptr,
                    threshold_ptr,
                    words_ptr,
                    n,
                    words_stride,
                    queries_first,
                    first,
                    last,
                    HEADS,
                    QUERIES,
                    LANES,
                    GROUP,
                    STAGES,
                    K,
                    SCALED,
                ),
            ),
            (_producer, (desc, ring0, ring1, full0, full1, empty0, empty1, first, last, GROUP, STAGES, DIM, BYTES)),
        ],
        [4, 1],
        [240, 24],
    )
