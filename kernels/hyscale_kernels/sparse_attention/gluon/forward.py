"""``forward_kernel`` of ``triton.forward`` for absorbed MLA.

One group of warps gathers, one scores and has the first columns of the output, one has the others.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from hyscale_kernels.sparse_attention.gluon.tiles import (
    barriers,
    gather,
    products,
    rows_in_shared,
    store_columns,
    store_tile,
)

LN2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def _scaled(sums, factor):
    """Sums ``[HEADS, columns]`` times a factor of each head, in whichever layout that is."""
    return sums * gl.expand_dims(gl.convert_layout(factor, gl.SliceLayout(1, sums.type.layout)), 1)


@gluon.jit
def _score(
    q_first,
    q_second,
    q_rest,
    wide,
    rest,
    shares,
    factors,
    full_first,
    full_second,
    empty_first,
    shares_full,
    shares_free,
    indices_ptr,
    out_ptr,
    lse_ptr,
    weights_ptr,
    divisors_ptr,
    k,
    scale,
    HEADS: gl.constexpr,
    KEYS: gl.constexpr,
    OWN: gl.constexpr,
    STAGES: gl.constexpr,
    WEIGHTS: gl.constexpr,
):
    """Weights of a tile and the factor of what came before it, for both groups, and the first ``OWN`` columns."""
    tile_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    own_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, OWN, 16])
    by_head: gl.constexpr = gl.SliceLayout(1, tile_layout)
    heads = gl.arange(0, HEADS, layout=by_head)
    slots = gl.arange(0, KEYS, layout=gl.SliceLayout(0, tile_layout))
    highest = gl.full([HEADS], float("-inf"), gl.float32, by_head)
    total = gl.zeros([HEADS], gl.float32, by_head)
    own = gl.zeros([HEADS, OWN], gl.float32, own_layout)
    zero = gl.zeros([HEADS, KEYS], gl.float32, tile_layout)
    padded = (k + KEYS - 1) // KEYS * KEYS
    step = 0
    for start in range(0, k, KEYS):
        stage = step % STAGES
        places = gl.load(indices_ptr + start + slots, mask=start + slots < k, other=-1)
        logits = products(q_first, q_second, q_rest, wide, rest, full_first, full_second, step, zero, STAGES)
        logits = gl.where(gl.expand_dims(places >= 0, 0), logits * scale, float("-inf"))
        above = gl.maximum(highest, gl.max(logits, 1))
        # Before the first key nothing may be subtracted from minus infinity.
        base = gl.where(above == float("-inf"), 0.0, above)
        factor = gl.exp2(highest - base)
        weights = gl.exp2(logits - gl.expand_dims(base, 1))
        total = total * factor + gl.sum(weights, 1)
        highest = above
        share = weights.to(gl.bfloat16)
        mbarrier.wait(shares_free.index(0), (step & 1) ^ 1)
        shares.store(share)
        factors.store(factor)
        fence_async_shared()
        mbarrier.arrive(shares_full.index(0), count=1)
        own = _scaled(own, factor)
        token = warpgroup_mma(shares, wide.index(stage).slice(0, OWN, dim=1), own, is_async=True)
        if WEIGHTS:
            store_tile(weights_ptr, share, start, padded)
            gl.store(divisors_ptr + step * HEADS + heads, base)
        own = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty_first.index(stage), count=1)
        step += 1
    base = gl.where(highest == float("-inf"), 0.0, highest)
    logarithm = base + gl.log2(total)
    # Of no keys it is minus infinity.
    gl.store(lse_ptr + heads, logarithm * LN2)
    # NaN is to be seen.
    total = gl.where(total == 0.0, 1.0, total)
    inverse = 1.0 / total
    mbarrier.wait(shares_free.index(0), (step & 1) ^ 1)
    factors.store(inverse)
    mbarrier.arrive(shares_full.index(0), count=1)
    store_columns(out_ptr, _scaled(own, inverse), wide.shape[2], 0)
    if WEIGHTS:
        gl.store(divisors_ptr + step * HEADS + heads, base + gl.log2(total))


@gluon.jit
def _add(
    wide,
    shares,
    factors,
    full_second,
    empty_first,
    empty_second,
    shares_full,
    shares_free,
    out_ptr,
    k,
    HEADS: gl.constexpr,
    KEYS: gl.constexpr,
    OWN: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Values of the columns from ``OWN`` on, those of the first half before the second."""
    WIDE: gl.constexpr = wide.shape[2]
    NEAR: gl.constexpr = WIDE // 2 - OWN
    FAR: gl.constexpr = WIDE // 2
    near_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, NEAR, 16])
    far_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, FAR, 16])
    near = gl.zeros([HEADS, NEAR], gl.float32, near_layout)
    far = gl.zeros([HEADS, FAR], gl.float32, far_layout)
    step = 0
    for _ in range(0, k, KEYS):
        stage = step % STAGES
        mbarrier.wait(full_second.index(stage), step // STAGES & 1)
        mbarrier.wait(shares_full.index(0), step & 1)
        fence_async_shared()
        factor = factors.load(gl.SliceLayout(1, far_layout))
        near = _scaled(near, factor)
        far = _scaled(far, factor)
        token_near = warpgroup_mma(shares, wide.index(stage).slice(OWN, NEAR, dim=1), near, is_async=True)
        token_far = warpgroup_mma(shares, wide.index(stage).slice(FAR, FAR, dim=1), far, is_async=True)
        near = warpgroup_mma_wait(1, deps=(token_near,))
        mbarrier.arrive(empty_first.index(stage), count=1)
        far = warpgroup_mma_wait(0, deps=(token_far,))
        mbarrier.arrive(shares_free.index(0), count=1)
        mbarrier.arrive(empty_second.index(stage), count=1)
        step += 1
    mbarrier.wait(shares_full.index(0), step & 1)
    inverse = factors.load(gl.SliceLayout(1, far_layout))
    store_columns(out_ptr, _scaled(near, inverse), WIDE, OWN)
    store_columns(out_ptr, _scaled(far, inverse), WIDE, FAR)


@gluon.jit(do_not_specialize=["first_task"])
def forward_kernel(
    q_ptr,
    keys_ptr,
    indices_ptr,
    out_ptr,
    lse_ptr,
    weights_ptr,
    divisors_ptr,
    first_task,
    scale,
    k,
    index_stride,
    key_stride,
    BLOCKS: gl.constexpr,
    HEADS: gl.constexpr,
    WIDE: gl.constexpr,
    REST: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    WEIGHTS: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """One program attends with ``HEADS`` heads of a query; arguments are those of the twin.

    ``BLOCKS`` programs a query. ``LAYOUT``: of queries, keys and weights in shared memory.
    """
    # The group that scores has the registers for this many columns of the output.
    OWN: gl.constexpr = WIDE // 4
    HALF: gl.constexpr = WIDE // 2
    program = gl.program_id(0).to(gl.int64)
    task = first_task + program
    tiles = (k + KEYS - 1) // KEYS
    indices_ptr += task // BLOCKS * index_stride
    q_ptr += task * HEADS * (WIDE + REST)
    out_ptr += task * HEADS * WIDE
    lse_ptr += task * HEADS
    if WEIGHTS:
        weights_ptr += program * HEADS * (tiles * KEYS)
        divisors_ptr += program * (tiles + 1) * HEADS
    q_first = rows_in_shared(q_ptr, WIDE + REST, HEADS, 0, HALF, LAYOUT)
    q_second = rows_in_shared(q_ptr, WIDE + REST, HEADS, HALF, HALF, LAYOUT)
    q_rest = rows_in_shared(q_ptr, WIDE + REST, HEADS, WIDE, REST, LAYOUT)
    wide = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, WIDE], LAYOUT)
    rest = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, REST], LAYOUT)
    shares = gl.allocate_shared_memory(gl.bfloat16, [HEADS, KEYS], LAYOUT)
    factors = gl.allocate_shared_memory(gl.float32, [HEADS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full_first = barriers(STAGES, 128)
    full_second = barriers(STAGES, 128)
    empty_first = barriers(STAGES, 2)
    empty_second = barriers(STAGES, 1)
    shares_full = barriers(1, 1)
    shares_free = barriers(1, 1)
    fence_async_shared()
    gl.thread_barrier()
    gl.warp_specialize(
        [
            (
                _score,
                (
                    q_first,
                    q_second,
                    q_rest,
                    wide,
                    rest,
                    shares,
                    factors,
                    full_first,
                    full_second,
                    empty_first,
                    shares_full,
                    shares_free,
                    indices_ptr,
                    out_ptr,
                    lse_ptr,
                    weights_ptr,
                    divisors_ptr,
                    k,
                    scale,
                    HEADS,
                    KEYS,
                    OWN,
                    STAGES,
                    WEIGHTS,
                ),
            ),
            (
                _add,
                (
                    wide,
                    shares,
                    factors,
                    full_second,
                    empty_first,
                    empty_second,
                    shares_full,
                    shares_free,
                    out_ptr,
                    k,
                    HEADS,
                    KEYS,
                    OWN,
                    STAGES,
                ),
            ),
            (
                gather,
                (
                    keys_ptr,
                    indices_ptr,
                    wide,
                    rest,
                    full_first,
                    full_second,
                    empty_first,
                    empty_second,
                    k,
                    key_stride,
                    KEYS,
                    WIDE,
                    REST,
                    STAGES,
                ),
            ),
        ],
        [4, 4],
        [232, 72],
    )
