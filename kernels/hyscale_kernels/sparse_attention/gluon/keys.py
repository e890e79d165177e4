"""``keys_kernel`` of ``triton.backward`` for queries together, of absorbed MLA.

One group of warps gathers what the queries left; two take turns at tiles of keys, so that one adds to memory while the
other multiplies.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from hyscale_kernels.sparse_attention.gluon.tiles import barriers


@gluon.jit
def _queries_in_shared(
    rows_ptr,
    stride,
    query_stride,
    QUERIES: gl.constexpr,
    HEADS: gl.constexpr,
    COLUMNS: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """``COLUMNS`` of ``HEADS`` rows of each query, ``stride`` apart and ``query_stride`` from query to query."""
    LANES: gl.constexpr = COLUMNS // 8
    load: gl.constexpr = gl.BlockedLayout([1, 8], [32 // LANES, LANES], [4, 1], [1, 0])
    rows = gl.expand_dims(gl.arange(0, HEADS, layout=gl.SliceLayout(1, load)), 1)
    columns = gl.expand_dims(gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, load)), 0)
    kept = gl.allocate_shared_memory(gl.bfloat16, [QUERIES, HEADS, COLUMNS], LAYOUT)
    for query in gl.static_range(QUERIES):
        kept.index(query).store(gl.load(rows_ptr + query * query_stride + rows * stride + columns))
    return kept


@gluon.jit
def _slots(slots_ptr, at, count):
    return gl.load(slots_ptr + at, mask=at < count, other=-1)


@gluon.jit
def _gather(
    slots_ptr,
    shares_ptr,
    slopes_ptr,
    shares,
    slopes,
    full,
    empty,
    count,
    slots_stride,
    query_stride,
    QUERIES: gl.constexpr,
    HEADS: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Keep the rings ``[STAGES, KEYS, HEADS]`` full, query by query of each tile.

    Slots are loaded a tile ahead, four queries of them, or each piece of a tile would wait for its own.
    """
    load: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    lanes = gl.arange(0, KEYS, layout=gl.SliceLayout(1, load))
    heads = gl.expand_dims(gl.arange(0, HEADS, layout=gl.SliceLayout(0, load)), 0)
    own = _slots(slots_ptr, lanes, count)
    own1 = _slots(slots_ptr + slots_stride, lanes, count)
    own2 = _slots(slots_ptr + 2 * slots_stride, lanes, count)
    own3 = _slots(slots_ptr + 3 * slots_stride, lanes, count)
    step = 0
    for start in range(0, count, KEYS):
        for query in gl.static_range(QUERIES):
            stage = step % STAGES
            some = gl.expand_dims(own >= 0, 1)
            rows = query * query_stride + gl.expand_dims(gl.maximum(own, 0).to(gl.int64) * HEADS, 1) + heads
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
            # What is masked is 0.
            async_copy.async_copy_global_to_shared(shares.index(stage), shares_ptr + rows, mask=some)
            async_copy.async_copy_global_to_shared(slopes.index(stage), slopes_ptr + rows, mask=some)
            async_copy.mbarrier_arrive(full.index(stage), increment_count=False)
            own = own1
            own1 = own2
            own2 = own3
            own3 = _slots(slots_ptr + query * slots_stride, start + KEYS + lanes, count)
            step += 1
    async_copy.wait_group(0)


@gluon.jit
def _scatter(sums_ptr, terms, places, per_one_ptr, SUM_WIDTH: gl.constexpr):
    """Add a tile to rows of sums, as whole numbers if there are units."""
    columns = gl.expand_dims(gl.arange(0, terms.shape[1], layout=gl.SliceLayout(0, terms.type.layout)), 0)
    some = places >= 0
    if per_one_ptr is not None:
        per_one = gl.load(per_one_ptr + places, mask=some, other=0.0)
        terms = gl.floor(terms * gl.expand_dims(per_one, 1) + 0.5).to(gl.int32)
    rows = sums_ptr + gl.expand_dims(places.to(gl.int64) * SUM_WIDTH, 1) + columns
    gl.atomic_add(rows, terms, mask=gl.expand_dims(some, 1), sem="relaxed")


@gluon.jit
def _add(
    which,
    keys_ptr,
    per_one_ptr,
    sums_ptr,
    rest_ptr,
    q,
    q_rest,
    grad_out,
    shares,
    slopes,
    full,
    empty,
    count,
    SUM_WIDTH: gl.constexpr,
    COLUMNS: gl.constexpr,
    REST: gl.constexpr,
    QUERIES: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Sums of every other tile over queries and heads, added to memory."""
    PRODUCTS: gl.constexpr = 3 if REST else 2
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    zero = gl.zeros([KEYS, COLUMNS], gl.float32, layout)
    lanes = gl.arange(0, KEYS, layout=gl.SliceLayout(1, layout))
    if REST:
        rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
        zero_rest = gl.zeros([KEYS, REST], gl.float32, rest_layout)
    for start in range(which * KEYS, count, 2 * KEYS):
        step = start // KEYS * QUERIES
        places = gl.load(keys_ptr + start + lanes, mask=start + lanes < count, other=-1)
        token = zero
        if REST:
            rest = zero_rest
        for query in gl.static_range(QUERIES):
            stage = (step + query) % STAGES
            mbarrier.wait(full.index(stage), (step + query) // STAGES & 1)
            fence_async_shared()
            token = warpgroup_mma(slopes.index(stage), q.index(query), token, use_acc=query > 0, is_async=True)
            token = warpgroup_mma(shares.index(stage), grad_out.index(query), token, is_async=True)
            if REST:
                rest = warpgroup_mma(slopes.index(stage), q_rest.index(query), rest, use_acc=query > 0, is_async=True)
            if query > 0:
                # All but those of this query are done.
                if REST:
                    token, rest = warpgroup_mma_wait(PRODUCTS, deps=(token, rest))
                else:
                    token = warpgroup_mma_wait(PRODUCTS, deps=(token,))
                mbarrier.arrive(empty.index((step + query - 1) % STAGES), count=1)
        if REST:
            token, rest = warpgroup_mma_wait(0, deps=(token, rest))
        else:
            token = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty.index((step + QUERIES - 1) % STAGES), count=1)
        _scatter(sums_ptr, token, places, per_one_ptr, SUM_WIDTH)
        if REST:
            places = gl.convert_layout(places, gl.SliceLayout(1, rest_layout))
            _scatter(rest_ptr, rest, places, per_one_ptr, SUM_WIDTH)


@gluon.jit(do_not_specialize=["first_task"])
def keys_kernel(
    q_ptr,
    grad_out_ptr,
    keys_ptr,
    counts_ptr,
    slots_ptr,
    shares_ptr,
    slopes_ptr,
    per_one_ptr,
    sums_ptr,
    first_task,
    padded,
    key_stride,
    BLOCKS: gl.constexpr,
    HEADS: gl.constexpr,
    WIDTH: gl.constexpr,
    VALUE_WIDTH: gl.constexpr,
    COLUMNS: gl.constexpr,
    REST: gl.constexpr,
    PARTS: gl.constexpr,
    QUERIES: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    LAYOUT: gl.constexpr,
    REST_LAYOUT: gl.constexpr,
):
    """One program adds what ``QUERIES`` together give to ``COLUMNS`` columns of the gradients of their keys.

    Arguments are those of the twin; ``BLOCKS`` programs a query and part. ``PARTS`` share out the columns of values;
    ``REST`` of those behind them, which have no gradients of values, are each part's. ``LAYOUT``: of 64 columns of BF16
    or more in shared memory, ``REST_LAYOUT`` of ``REST``.

    There are more ``STAGES`` than queries: a barrier tells two phases apart, and a group that begins with the second
    tile must not take a stage for its own that the first tile has not filled.
    """
    part = gl.program_id(0) % PARTS * COLUMNS
    behind = VALUE_WIDTH + gl.program_id(0) % PARTS * REST
    program = (gl.program_id(0) // PARTS).to(gl.int64)
    row = first_task // BLOCKS + program // BLOCKS * QUERIES
    count = gl.load(counts_ptr + row // QUERIES)
    if count < 0:
        return
    task = program // BLOCKS * QUERIES * BLOCKS + program % BLOCKS
    heads = (row * BLOCKS + program % BLOCKS) * HEADS
    keys_ptr += row // QUERIES * key_stride
    slots_ptr += row * key_stride
    shares_ptr += task * padded * HEADS
    slopes_ptr += task * padded * HEADS
    rest_ptr = sums_ptr + behind
    sums_ptr += part
    q_ptr += heads * WIDTH
    query_stride = BLOCKS * HEADS * WIDTH
    q = _queries_in_shared(q_ptr + part, WIDTH, query_stride, QUERIES, HEADS, COLUMNS, LAYOUT)
    if REST:
        q_rest = _queries_in_shared(q_ptr + behind, WIDTH, query_stride, QUERIES, HEADS, REST, REST_LAYOUT)
    else:
        # Not read.
        q_rest = q
    grad_out_ptr += heads * VALUE_WIDTH
    query_stride = BLOCKS * HEADS * VALUE_WIDTH
    grad_out = _queries_in_shared(grad_out_ptr + part, VALUE_WIDTH, query_stride, QUERIES, HEADS, COLUMNS, LAYOUT)
    slopes = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, HEADS], LAYOUT)
    shares = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, HEADS], LAYOUT)
    full = barriers(STAGES, 128)
    empty = barriers(STAGES, 1)
    fence_async_shared()
    gl.thread_barrier()
    ZERO: gl.constexpr = 0
    ONE: gl.constexpr = 1
    gl.warp_specialize(
        [
            (
                _gather,
                (
                    slots_ptr,
                    shares_ptr,
                    slopes_ptr,
                    shares,
                    slopes,
                    full,
                    empty,
                    count,
                    key_stride,
                    BLOCKS * padded * HEADS,
                    QUERIES,
                    HEADS,
                    KEYS,
                    STAGES,
                ),
            ),
            (
                _add,
                (
                    ZERO,
                    keys_ptr,
                    per_one_ptr,
                    sums_ptr,
                    rest_ptr,
                    q,
                    q_rest,
                    grad_out,
                    shares,
                    slopes,
                    full,
                    empty,
                    count,
                    WIDTH,
                    COLUMNS,
                    REST,
                    QUERIES,
                    KEYS,
                    STAGES,
                ),
            ),
            (
                _add,
                (
                    ONE,
                    keys_ptr,
                    per_one_ptr,
                    sums_ptr,
                    rest_ptr,
                    q,
                    q_rest,
                    grad_out,
                    shares,
                    slopes,
                    full,
                    empty,
                    count,
                    WIDTH,
                    COLUMNS,
                    REST,
                    QUERIES,
                    KEYS,
                    STAGES,
                ),
            ),
        ],
        [4, 4],
        [200, 200],
    )
