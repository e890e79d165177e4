"""Tables of tiles seen whole; see ``scoring.gluon``. Bits are those of the twin in ``triton.py``."""

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
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    BYTES: gl.constexpr,
):
    """Keep both rings full: tiles in turn."""
    step = 0
    for start in range(first, last, 2 * KEYS):
        load_tile(step, desc, start, 0, ring0, full0, empty0, STAGES, BYTES)
        if start + KEYS < last:
            load_tile(step, desc, start + KEYS, 0, ring1, full1, empty1, STAGES, BYTES)
        step += 1


@gluon.jit
def _write(
    which,
    ring,
    full,
    empty,
    q,
    weights_ptr,
    key_scale_ptr,
    out_ptr,
    n,
    width,
    queries_first,
    first,
    last,
    HEADS: gl.constexpr,
    QUERIES: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    K: gl.constexpr,
    SCALED: gl.constexpr,
):
    """Write every other tile, the first or the second of each pair."""
    accumulator: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, QUERIES * HEADS, K]
    )
    factors = factors_of(weights_ptr, queries_first, n, KEYS, QUERIES, HEADS, accumulator)
    zero = gl.zeros([KEYS, QUERIES * HEADS], gl.float32, accumulator)
    nothing = scores_of(zero, factors, QUERIES, HEADS)
    scored: gl.constexpr = nothing.type.layout
    queries = queries_first + gl.arange(0, QUERIES, layout=gl.SliceLayout(0, scored))
    places = gl.arange(0, KEYS, layout=gl.SliceLayout(1, scored))
    rows = gl.expand_dims(out_ptr + queries.to(gl.int64) * width, 0)
    inside = gl.expand_dims(queries < n, 0)
    step = 0
    for start in range(first + which * KEYS, last, 2 * KEYS):
        if SCALED:
            # Before the product, which hides how long it takes.
            scale = gl.expand_dims(gl.load(key_scale_ptr + start + places), 1)
        scores = scores_of(multiply(step, ring, full, empty, q, zero, STAGES), factors, QUERIES, HEADS)
        if SCALED:
            scores *= scale
        # NaN is not equal to itself.
        scores = gl.where(scores == scores, scores, float("-inf"))
        gl.store(rows + gl.expand_dims(start + places, 1), scores, mask=inside)
        step += 1


@gluon.jit
def table_whole_kernel(
    desc,
    q_ptr,
    weights_ptr,
    key_scale_ptr,
    spans_ptr,
    out_ptr,
    n,
    width,
    share,
    HEADS: gl.constexpr,
    DIM: gl.constexpr,
    QUERIES: gl.constexpr,
    KEYS: gl.constexpr,
    STAGES: gl.constexpr,
    K: gl.constexpr,
    SCALED: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """As ``table_kernel``, of the tiles that every query of a block sees whole; the others are left.

    ``desc``: keys ``[L, DIM]`` in blocks of ``[KEYS, DIM]``. The others as in ``filter_whole_kernel``.
    """
    BYTES: gl.constexpr = desc.block_type.nbytes
    ZERO: gl.constexpr = 0
    ONE: gl.constexpr = 1
    queries_first = gl.program_id(0) * QUERIES
    first, last = whole_range(spans_ptr, queries_first, n, width, share, QUERIES, KEYS)
    q = queries_in_shared(q_ptr, queries_first, n, QUERIES, HEADS, DIM, LAYOUT)
    ring0, ring1, full0, full1, empty0, empty1 = rings(q_ptr.dtype.element_ty, STAGES, KEYS, DIM, LAYOUT)
    gl.warp_specialize(
        [
            (
                _write,
                (
                    ZERO,
                    ring0,
                    full0,
                    empty0,
                    q,
                    weights_ptr,
                    key_scale_ptr,
                    out_ptr,
                    n,
                    width,
                    queries_first,
                    first,
                    last,
                    HEADS,
                    QUERIES,
                    KEYS,
                    STAGES,
                    K,
                    SCALED,
                ),
            ),
            (
                _write,
                (
                    ONE,
                    ring1,
                    full1,
                    empty1,
                    q,
                    weights_ptr,
                    key_scale_ptr,
                    out_ptr,
                    n,
                    width,
                    queries_first,
                    first,
                    last,
                    HEADS,
                    QUERIES,
                    KEYS,
                    STAGES,
                    K,
                    SCALED,
                ),
            ),
            (_load, (desc, ring0, ring1, full0, full1, empty0, empty1, first, last, KEYS, STAGES, BYTES)),
        ],
        [4, 1],
        [240, 24],
    )
