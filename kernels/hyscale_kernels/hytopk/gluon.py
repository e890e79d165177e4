"""The filter of ``triton.py`` for groups seen whole; see ``scoring.gluon``. Bits are those of the twin."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from hyscale_kernels.scoring.gluon import (
    factors_of,
    load_tile,
    multiply,
    queries_in_shared,
    rings,
    scores_of,
    whole_range,
)


@gluon.jit
def _load(
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
            load_tile(step, desc, start // 32, tile * DIM, ring0, full0, empty0, STAGES, BYTES)
            if start + GROUP < last:
                load_tile(step, desc, (start + GROUP) // 32, tile * DIM, ring1, full1, empty1, STAGES, BYTES)
            step += 1


@gluon.jit
def _mark(
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
    accumulator: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, QUERIES * HEADS, K]
    )
    factors = factors_of(weights_ptr, queries_first, n, LANES, QUERIES, HEADS, accumulator)
    zero = gl.zeros([LANES, QUERIES * HEADS], gl.float32, accumulator)
    nothing = scores_of(zero, factors, QUERIES, HEADS)
    scored: gl.constexpr = nothing.type.layout
    queries = queries_first + gl.arange(0, QUERIES, layout=gl.SliceLayout(0, scored))
    lanes = gl.arange(0, LANES, layout=gl.SliceLayout(1, scored))
    threshold = gl.expand_dims(gl.load(threshold_ptr + queries, mask=queries < n, other=float("inf")), 0)
    words = gl.expand_dims(words_ptr + queries.to(gl.int64) * words_stride, 0)
    inside = gl.expand_dims(queries < n, 0)
    step = 0
    for start in range(first + which * GROUP, last, 2 * GROUP):
        bits = gl.zeros([LANES, QUERIES], gl.int32, scored)
        for tile in range(0, 32):
            if SCALED:
                # Before the product, which hides how long it takes.
                scale = gl.expand_dims(gl.load(key_scale_ptr + start + lanes * 32 + tile), 1)
            scores = scores_of(multiply(step, ring, full, empty, q, zero, STAGES), factors, QUERIES, HEADS)
            if SCALED:
                scores *= scale
            bits |= (scores >= threshold).to(gl.int32) << tile
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
    BYTES: gl.constexpr = desc.block_type.nbytes
    ZERO: gl.constexpr = 0
    ONE: gl.constexpr = 1
    queries_first = gl.program_id(0) * QUERIES
    first, last = whole_range(spans_ptr, queries_first, n, width, share, QUERIES, GROUP)
    q = queries_in_shared(q_ptr, queries_first, n, QUERIES, HEADS, DIM, LAYOUT)
    ring0, ring1, full0, full1, empty0, empty1 = rings(q_ptr.dtype.element_ty, STAGES, LANES, DIM, LAYOUT)
    gl.warp_specialize(
        [
            (
                _mark,
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
                _mark,
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
            (_load, (desc, ring0, ring1, full0, full1, empty0, empty1, first, last, GROUP, STAGES, DIM, BYTES)),
        ],
        [4, 1],
        [240, 24],
    )
