"""``queries_kernel`` of ``triton.backward`` for absorbed MLA.

One group of warps gathers, one has the probabilities and one the gradients of products. The latter two wait for each
other once a tile: neither can write to shared memory what the other still reads of the tile before.
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
    store_slots,
)

LOG2E = gl.constexpr(1.4426950408889634)


@gluon.jit
def _share(
    q_first,
    q_second,
    q_rest,
    wide,
    rest,
    shares,
    slopes,
    full_first,
    full_second,
    empty_first,
    empty_second,
    shares_full,
    slopes_full,
    indices_ptr,
    lse_ptr,
    shares_ptr,
    dq_ptr,
    k,
    scale,
    HEADS: gl.constexpr,
    KEYS: gl.constexpr,
    WIDE: gl.constexpr,
    REST: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Probabilities, and gradients of the first half of q and of its rest."""
    HALF: gl.constexpr = WIDE // 2
    tile_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    wide_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    rest_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
    zero = gl.zeros([HEADS, KEYS], gl.float32, tile_layout)
    dq = gl.zeros([HEADS, HALF], gl.float32, wide_layout)
    dq_rest = gl.zeros([HEADS, REST], gl.float32, rest_layout)
    slots = gl.arange(0, KEYS, layout=gl.SliceLayout(0, tile_layout))
    lse = gl.load(lse_ptr + gl.arange(0, HEADS, layout=gl.SliceLayout(1, tile_layout))) * LOG2E
    base = gl.expand_dims(gl.where(lse == float("-inf"), 0.0, lse), 1)
    step = 0
    for start in range(0, k, KEYS):
        stage = step % STAGES
        places = gl.load(indices_ptr + start + slots, mask=start + slots < k, other=-1)
        logits = products(q_first, q_second, q_rest, wide, rest, full_first, full_second, step, zero, STAGES)
        share = gl.exp2(gl.where(gl.expand_dims(places >= 0, 0), logits * scale - base, float("-inf")))
        shares.store(share)
        mbarrier.arrive(shares_full.index(0), count=1)
        store_slots(shares_ptr, share.to(gl.bfloat16), start)
        mbarrier.wait(slopes_full.index(0), step & 1)
        token = warpgroup_mma(slopes, wide.index(stage).slice(0, HALF, dim=1), dq, is_async=True)
        token_rest = warpgroup_mma(slopes, rest.index(stage), dq_rest, is_async=True)
        dq, dq_rest = warpgroup_mma_wait(0, deps=(token, token_rest))
        mbarrier.arrive(empty_first.index(stage), count=1)
        mbarrier.arrive(empty_second.index(stage), count=1)
        step += 1
    store_columns(dq_ptr, dq, WIDE + REST, 0)
    store_columns(dq_ptr, dq_rest, WIDE + REST, WIDE)


@gluon.jit
def _slope(
    grad_first,
    grad_second,
    means,
    wide,
    rest,
    shares,
    slopes,
    full_first,
    full_second,
    empty_first,
    empty_second,
    shares_full,
    slopes_full,
    slopes_ptr,
    dq_ptr,
    k,
    softmax_scale,
    HEADS: gl.constexpr,
    KEYS: gl.constexpr,
    WIDE: gl.constexpr,
    REST: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Gradients of products, and of the second half of q."""
    HALF: gl.constexpr = WIDE // 2
    tile_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    wide_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    zero = gl.zeros([HEADS, KEYS], gl.float32, tile_layout)
    dq = gl.zeros([HEADS, HALF], gl.float32, wide_layout)
    mean = gl.expand_dims(means.load(gl.SliceLayout(1, tile_layout)), 1)
    step = 0
    for start in range(0, k, KEYS):
        stage = step % STAGES
        gains = products(grad_first, grad_second, None, wide, rest, full_first, full_second, step, zero, STAGES)
        mbarrier.arrive(empty_first.index(stage), count=1)
        mbarrier.wait(shares_full.index(0), step & 1)
        share = shares.load(tile_layout)
        slope = (share * (gains - mean) * softmax_scale).to(gl.bfloat16)
        slopes.store(slope)
        fence_async_shared()
        mbarrier.arrive(slopes_full.index(0), count=1)
        token = warpgroup_mma(slopes, wide.index(stage).slice(HALF, HALF, dim=1), dq, is_async=True)
        store_slots(slopes_ptr, slope, start)
        dq = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty_second.index(stage), count=1)
        step += 1
    store_columns(dq_ptr, dq, WIDE + REST, HALF)


@gluon.jit
def _means(out_ptr, grad_out_ptr, grad_lse_ptr, means, HEADS: gl.constexpr, VALUE: gl.constexpr):
    """What is taken from the gradient of every probability of a head, into shared memory."""
    COLUMNS: gl.constexpr = 64
    load: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    heads = gl.arange(0, HEADS, layout=gl.SliceLayout(1, load))
    at = gl.expand_dims(heads * VALUE, 1) + gl.expand_dims(gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, load)), 0)
    terms = gl.zeros([HEADS, COLUMNS], gl.float32, load)
    for first in range(0, VALUE, COLUMNS):
        grads = gl.load(grad_out_ptr + first + at).to(gl.float32)
        terms += gl.load(out_ptr + first + at).to(gl.float32) * grads
    means.store(gl.sum(terms, 1) - gl.load(grad_lse_ptr + heads))


@gluon.jit(do_not_specialize=["first_task"])
def queries_kernel(
    q_ptr,
    keys_ptr,
    indices_ptr,
    out_ptr,
    lse_ptr,
    grad_out_ptr,
    grad_lse_ptr,
    shares_ptr,
    slopes_ptr,
    dq_ptr,
    first_task,
    scale,
    softmax_scale,
    k,
    padded,
    index_stride,
    key_stride,
    BLOCKS: gl.constexpr,
    HEADS: gl.constexpr,
    WIDE: gl.constexpr,
    REST: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    LAYOUT: gl.constexpr,
    NARROW: gl.constexpr,
):
    """One program brings the gradients of ``HEADS`` heads of a query back to its logits, and from there to q.

    Arguments are those of the twin; ``BLOCKS`` programs a query. ``LAYOUT``: of 64 columns of BF16 or more in shared
    memory, ``NARROW`` of ``KEYS`` of them. One group has the probabilities, one the gradients of products, and each
    half of the gradients of q.
    """
    HALF: gl.constexpr = WIDE // 2
    program = gl.program_id(0).to(gl.int64)
    task = first_task + program
    indices_ptr += task // BLOCKS * index_stride
    q_ptr += task * HEADS * (WIDE + REST)
    dq_ptr += task * HEADS * (WIDE + REST)
    out_ptr += task * HEADS * WIDE
    grad_out_ptr += task * HEADS * WIDE
    lse_ptr += task * HEADS
    shares_ptr += program * HEADS * padded
    slopes_ptr += program * HEADS * padded
    means = gl.allocate_shared_memory(gl.float32, [HEADS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    _means(out_ptr, grad_out_ptr, grad_lse_ptr + task * HEADS, means, HEADS, WIDE)
    q_first = rows_in_shared(q_ptr, WIDE + REST, HEADS, 0, HALF, LAYOUT)
    q_second = rows_in_shared(q_ptr, WIDE + REST, HEADS, HALF, HALF, LAYOUT)
    q_rest = rows_in_shared(q_ptr, WIDE + REST, HEADS, WIDE, REST, LAYOUT)
    grad_first = rows_in_shared(grad_out_ptr, WIDE, HEADS, 0, HALF, LAYOUT)
    grad_second = rows_in_shared(grad_out_ptr, WIDE, HEADS, HALF, HALF, LAYOUT)
    wide = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, WIDE], LAYOUT)
    rest = gl.allocate_shared_memory(gl.bfloat16, [STAGES, KEYS, REST], LAYOUT)
    shares = gl.allocate_shared_memory(gl.float32, [HEADS, KEYS], gl.SwizzledSharedLayout(4, 1, 8, [1, 0]))
    slopes = gl.allocate_shared_memory(gl.bfloat16, [HEADS, KEYS], NARROW)
    full_first = barriers(STAGES, 128)
    full_second = barriers(STAGES, 128)
    empty_first = barriers(STAGES, 2)
    empty_second = barriers(STAGES, 2)
    shares_full = barriers(1, 1)
    slopes_full = barriers(1, 1)
    fence_async_shared()
    gl.thread_barrier()
    gl.warp_specialize(
        [
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
            (
                _slope,
                (
                    grad_first,
                    grad_second,
                    means,
                    wide,
                    rest,
                    shares,
                    slopes,
                    full_first,
                    full_second,
                    empty_first,
                    empty_second,
                    shares_full,
                    slopes_full,
                    slopes_ptr,
                    dq_ptr,
                    k,
                    softmax_scale,
                    HEADS,
                    KEYS,
                    WIDE,
                    REST,
                    STAGES,
                ),
            ),
            (
                _share,
                (
                    q_first,
                    q_second,
                    q_rest,
                    wide,
                    rest,
                    shares,
                    slopes,
                    full_first,
                    full_second,
                    empty_first,
                    empty_second,
                    shares_full,
                    slopes_full,
                    indices_ptr,
                    lse_ptr,
                    shares_ptr,
                    dq_ptr,
                    k,
                    scale,
                    HEADS,
                    KEYS,
                    WIDE,
                    REST,
                    STAGES,
                ),
            ),
        ],
        [4, 4],
        [216, 216],
    )
