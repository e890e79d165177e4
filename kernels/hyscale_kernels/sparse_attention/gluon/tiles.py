"""What kernels in Gluon share: rows in shared memory, and the group of warps that gathers keys.

A tile of keys has two parts, each with barriers of its own: the first half of the wide columns, and the second with the
rest. Products begin before all of a tile is there, and the next tile comes in before all of it is done with.
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


@gluon.jit
def rows_in_shared(
    rows_ptr, stride, ROWS: gl.constexpr, FIRST: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr
):
    """Columns ``FIRST`` to ``FIRST + COLUMNS`` of ``ROWS`` rows, ``stride`` apart, in shared memory."""
    LANES: gl.constexpr = min(32, COLUMNS // 8)
    load: gl.constexpr = gl.BlockedLayout([1, 8], [32 // LANES, LANES], [4, 1], [1, 0])
    rows = gl.expand_dims(gl.arange(0, ROWS, layout=gl.SliceLayout(1, load)), 1)
    columns = gl.expand_dims(FIRST + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, load)), 0)
    loaded = gl.load(rows_ptr + rows * stride + columns)
    return gl.allocate_shared_memory(rows_ptr.dtype.element_ty, [ROWS, COLUMNS], LAYOUT, loaded)


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """As many barriers, each passed after so many arrivals."""
    each = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(each.index(i), count=ARRIVALS)
    return each


@gluon.jit
def _places(indices_ptr, start, slots, k):
    """Rows of keys to read; where there is none, any will do."""
    return gl.maximum(gl.load(indices_ptr + start + slots, mask=start + slots < k, other=0), 0)


@gluon.jit
def gather(
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
    KEYS: gl.constexpr,
    WIDE: gl.constexpr,
    REST: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Keep the rings ``wide [STAGES, KEYS, WIDE]`` and ``rest [STAGES, KEYS, REST]`` full: four warps, 72 registers.

    Indices are loaded a tile ahead, or each tile would wait for them and then for its keys.
    """
    HALF: gl.constexpr = WIDE // 2
    long: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
    short: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    slots_long = gl.arange(0, KEYS, layout=gl.SliceLayout(1, long))
    slots_short = gl.arange(0, KEYS, layout=gl.SliceLayout(1, short))
    columns_long = gl.expand_dims(gl.arange(0, HALF, layout=gl.SliceLayout(0, long)), 0)
    columns_short = gl.expand_dims(WIDE + gl.arange(0, REST, layout=gl.SliceLayout(0, short)), 0)
    at_long = _places(indices_ptr, 0, slots_long, k)
    at_short = _places(indices_ptr, 0, slots_short, k)
    step = 0
    for start in range(0, k, KEYS):
        stage = step % STAGES
        phase = (step // STAGES & 1) ^ 1
        rows = keys_ptr + gl.expand_dims(at_long.to(gl.int64) * key_stride, 1) + columns_long
        rows_short = keys_ptr + gl.expand_dims(at_short.to(gl.int64) * key_stride, 1) + columns_short
        mbarrier.wait(empty_first.index(stage), phase)
        async_copy.async_copy_global_to_shared(wide.index(stage).slice(0, HALF, dim=1), rows)
        async_copy.mbarrier_arrive(full_first.index(stage), increment_count=False)
        mbarrier.wait(empty_second.index(stage), phase)
        async_copy.async_copy_global_to_shared(wide.index(stage).slice(HALF, HALF, dim=1), rows + HALF)
        async_copy.async_copy_global_to_shared(rest.index(stage), rows_short)
        async_copy.mbarrier_arrive(full_second.index(stage), increment_count=False)
        at_long = _places(indices_ptr, start + KEYS, slots_long, k)
        at_short = _places(indices_ptr, start + KEYS, slots_short, k)
        step += 1
    async_copy.wait_group(0)


@gluon.jit
def products(rows_first, rows_second, rows_rest, wide, rest, full_first, full_second, step, zero, STAGES: gl.constexpr):
    """Products ``[HEADS, KEYS]`` of rows and the keys of a tile, waiting for each of its parts."""
    HALF: gl.constexpr = wide.shape[2] // 2
    stage = step % STAGES
    phase = step // STAGES & 1
    mbarrier.wait(full_first.index(stage), phase)
    fence_async_shared()
    first = wide.index(stage).slice(0, HALF, dim=1).permute((1, 0))
    token = warpgroup_mma(rows_first, first, zero, use_acc=False, is_async=True)
    mbarrier.wait(full_second.index(stage), phase)
    fence_async_shared()
    second = wide.index(stage).slice(HALF, HALF, dim=1).permute((1, 0))
    token = warpgroup_mma(rows_second, second, token, is_async=True)
    if rows_rest is not None:
        token = warpgroup_mma(rows_rest, rest.index(stage).permute((1, 0)), token, is_async=True)
    return warpgroup_mma_wait(0, deps=(token,))


@gluon.jit
def store_tile(rows_ptr, tile, start, padded):
    """Write a tile ``[HEADS, KEYS]`` to rows of ``padded`` keys."""
    heads = gl.expand_dims(gl.arange(0, tile.shape[0], layout=gl.SliceLayout(1, tile.type.layout)), 1)
    slots = gl.expand_dims(gl.arange(0, tile.shape[1], layout=gl.SliceLayout(0, tile.type.layout)), 0)
    gl.store(rows_ptr + heads * padded + start + slots, tile)


@gluon.jit
def store_slots(rows_ptr, tile, start):
    """Write a tile ``[HEADS, KEYS]`` to rows of heads, one for each key."""
    heads = gl.expand_dims(gl.arange(0, tile.shape[0], layout=gl.SliceLayout(1, tile.type.layout)), 1)
    slots = gl.expand_dims(gl.arange(0, tile.shape[1], layout=gl.SliceLayout(0, tile.type.layout)), 0)
    gl.store(rows_ptr + (start + slots) * tile.shape[0] + heads, tile)


@gluon.jit
def store_columns(rows_ptr, found, stride, FIRST: gl.constexpr):
    """Write columns from ``FIRST`` on of rows ``stride`` apart, rounded."""
    heads = gl.expand_dims(gl.arange(0, found.shape[0], layout=gl.SliceLayout(1, found.type.layout)), 1)
    columns = gl.expand_dims(FIRST + gl.arange(0, found.shape[1], layout=gl.SliceLayout(0, found.type.layout)), 0)
    gl.store(rows_ptr + heads * stride + columns, found.to(gl.bfloat16))
