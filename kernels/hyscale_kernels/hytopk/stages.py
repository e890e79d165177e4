"""The steps to candidates: sampled thresholds, a bitmap of the keys that reach them, their places in order."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
import triton

from hyscale_kernels.hytopk.plan import Plan
from hyscale_kernels.hytopk.triton import compact_kernel, filter_kernel, threshold_kernel
from hyscale_kernels.score_table.api import fill
from hyscale_kernels.scoring.inputs import Scored
from hyscale_kernels.scoring.tiles import NARROW, shares

# How the filter is written: the interpreter and other GPUs run the first, Hopper both.
Impl = Literal["triton", "gluon"]


@lru_cache(maxsize=16)
def sample_places(length: int, stride: int, device: torch.device) -> torch.Tensor:
    """One place in every ``stride``, moved within it so that no period in the keys meets the samples: int64, ascending.

    Kept between calls: a dozen small launches would come before the first large one.
    """
    # A tensor kept from inference mode could not be used where gradients are.
    with torch.inference_mode(False):
        strata = torch.arange(length // stride, device=device)
        return strata * stride + (strata * 2654435761 % 2**32 >> 7) % stride


def find_thresholds(scored: Scored, plan: Plan, threshold: torch.Tensor, opened: torch.Tensor) -> None:
    """Thresholds ``[n]`` from sampled keys, and the spans ``[n, 2]`` to filter."""
    n, heads, dim = scored.q.shape
    length = scored.keys.shape[0]
    places = sample_places(length, plan.stride, scored.q.device)
    table = torch.empty(n, len(places), device=scored.q.device)
    fill(scored.of_keys(places), table, tile=NARROW.at(heads, dim, scored.dtype.itemsize))
    threshold_kernel[(n,)](
        table,
        scored.spans,
        threshold,
        opened,
        len(places),
        plan.rank,
        plan.capacity,
        plan.hopeless,
        SAMPLES=triton.next_power_of_2(max(len(places), 16)),
        num_warps=8,
    )


def bitmap(n: int, length: int, plan: Plan, device: torch.device) -> torch.Tensor:
    """Memory for one bit a key: int32 ``[n, words]``."""
    return torch.empty(n, triton.cdiv(length, 32 * plan.lanes) * plan.lanes, dtype=torch.int32, device=device)


def mark(
    scored: Scored,
    plan: Plan,
    threshold: torch.Tensor,
    spans: torch.Tensor,
    words: torch.Tensor,
    impl: Impl | None = None,
) -> None:
    """Mark the keys that reach a query's threshold; ``impl`` None: by what is fastest here.

    Raises:
        ValueError: Gluon where it cannot run.
    """
    n, heads, dim = scored.q.shape
    length = scored.keys.shape[0]
    tile = NARROW.at(heads, dim, scored.dtype.itemsize)
    queries = tile.queries(heads)
    programs = triton.cdiv(n, queries)
    share = shares(programs, length, tile, 32 * plan.lanes, scored.q.device)
    grid = (programs, triton.cdiv(length, share))
    obstacle = no_gluon(scored, plan)
    if impl == "gluon" and obstacle:
        raise ValueError(f"impl gluon cannot run: {obstacle}")
    fast = impl != "triton" and not obstacle
    if fast:
        mark_whole(scored, plan, threshold, spans, words, queries, share, grid)
    filter_kernel[grid](
        scored.q,
        scored.keys,
        scored.weights,
        scored.key_scale,
        spans,
        threshold,
        words,
        n,
        length,
        share,
        words.stride(0),
        scored.keys.stride(0),
        HEADS=heads,
        DIM=dim,
        QUERIES=queries,
        LANES=plan.lanes,
        SCALED=scored.key_scale is not None,
        BORDERS=fast,
        IMPRECISE=None,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def no_gluon(scored: Scored, plan: Plan) -> str:
    """Why the Gluon kernel cannot run, empty where it can."""
    _, heads, dim = scored.q.shape
    if not scored.q.is_cuda or torch.cuda.get_device_capability(scored.q.device) != (9, 0):
        return "it needs a Hopper GPU"
    if plan.lanes != 64 or not 4 <= heads <= 64 or dim != 128:
        return "it is made for 4 to 64 heads of 128 and tiles of 64 keys"
    if scored.keys.stride(0) != dim or scored.keys.data_ptr() % 16:
        return "keys must be contiguous, from a multiple of 16 bytes"
    if scored.keys.shape[0] < 32 * plan.lanes:
        return "there is no whole group of keys"
    return ""


def mark_whole(
    scored: Scored,
    plan: Plan,
    threshold: torch.Tensor,
    spans: torch.Tensor,
    words: torch.Tensor,
    queries: int,
    share: int,
    grid: tuple[int, int],
) -> None:
    """Mark keys of groups seen whole, with the Gluon kernel."""
    # Gluon is Triton's, and experimental: nothing else needs it.
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from hyscale_kernels.hytopk.gluon import filter_whole_kernel

    n, heads, dim = scored.q.shape
    length, itemsize = scored.keys.shape[0], scored.dtype.itemsize
    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8 * itemsize, rank=2)
    rows = TensorDescriptor(scored.keys, [length // 32, 32 * dim], [32 * dim, 1], [plan.lanes, dim], layout)
    filter_whole_kernel[grid](
        rows,
        scored.q,
        scored.weights,
        scored.key_scale,
        spans,
        threshold,
        words,
        n,
        length,
        share,
        words.stride(0),
        HEADS=heads,
        DIM=dim,
        QUERIES=queries,
        LANES=plan.lanes,
        STAGES=8 // itemsize,
        K=32 // itemsize,
        SCALED=scored.key_scale is not None,
        LAYOUT=layout,
        num_warps=4,
    )


def compact(
    words: torch.Tensor,
    spans: torch.Tensor,
    opened: torch.Tensor,
    threshold: torch.Tensor,
    topk: int,
    places: torch.Tensor,
    candidates: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Places ``[n, capacity]`` of set bits in order; how many there are, and -1 in ``counts`` where they do not do."""
    n, capacity = places.shape
    compact_kernel[(n,)](
        words,
        spans,
        opened,
        threshold,
        places,
        candidates,
        counts,
        words.stride(0),
        capacity,
        topk,
        BLOCK=256,
        num_warps=1,
    )
