"""The steps to candidates: sampled thresholds, a bitmap of the keys that reach them, their places in order."""

from __future__ import annotations

from functools import lru_cache

import torch
import triton

from hyscale_kernels.hytopk.plan import Plan
from hyscale_kernels.hytopk.triton import compact_kernel, filter_kernel, threshold_kernel
from hyscale_kernels.score_table.api import fill
from hyscale_kernels.scoring.hopper import KEYS, Impl, launch, use_gluon
from hyscale_kernels.scoring.inputs import Scored
from hyscale_kernels.scoring.tiles import NARROW, shares


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
    fast = plan.lanes == KEYS and use_gluon(impl, scored)
    if fast:
        from hyscale_kernels.hytopk.gluon import filter_whole_kernel

        filter_whole_kernel[grid](
            q_ptr=scored.q,
            weights_ptr=scored.weights,
            key_scale_ptr=scored.key_scale,
            spans_ptr=spans,
            threshold_ptr=threshold,
            words_ptr=words,
            n=n,
            width=length,
            share=share,
            words_stride=words.stride(0),
            QUERIES=queries,
            LANES=plan.lanes,
            **launch(scored, apart=32),
        )
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
