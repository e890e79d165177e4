"""Selection from rows of scores."""

from __future__ import annotations

import torch
import triton

from hyscale_kernels.spans import checked_spans
from hyscale_kernels.top_k.triton import collect_kernel, exhaustive_kernel, pack_kernel, sample_kernel, short_kernel

# Keys that can be selected.
MOST = 2048
# Wider rows do not fit the registers of a program.
WIDEST = 16384
# Samples of a row, and how many times topk a threshold aims at and candidates may be.
SAMPLES = 4096
# Words of bits that a program packs at a time, and how often.
WORDS, TIMES = 128, 8
AIM, CAPACITY = 3, 6
# Of few keys, samples of a row would be too few to tell a threshold.
LEAST_CAPACITY = 4096


def capacity_for(topk: int) -> int:
    """Candidates that are kept of a row."""
    return max(LEAST_CAPACITY, CAPACITY * topk)


def check_topk(topk: int) -> None:
    """Raise ValueError unless kernels can select so many."""
    if not 1 <= topk <= MOST:
        raise ValueError(f"topk must be 1 to {MOST}, is {topk}")


def top_k(table: torch.Tensor, topk: int, spans: torch.Tensor | None = None) -> torch.Tensor:
    """The ``topk`` highest scores of each row, ties to the lower position; never minus infinity or NaN.

    Args:
        table: FP32 ``[n, width]``, rows contiguous; spans: int ``[n, 2]``, what is read of a row. None: all of it.
        topk: 1 to 2,048.

    Returns:
        int32 ``[n, topk]``, ascending, -1 behind the last.

    Raises:
        ValueError: a table of another type or shape, spans beyond it, or a ``topk`` out of range.
    """
    if table.ndim != 2 or table.dtype != torch.float32 or table.stride(1) != 1:
        raise ValueError(
            f"table must be float32 [n, width] with contiguous rows, is {table.dtype} {tuple(table.shape)}"
        )
    check_topk(topk)
    n, width = table.shape
    if spans is None:
        spans = torch.tensor([[0, width]], dtype=torch.int32, device=table.device).expand(n, 2).contiguous()
    else:
        spans = checked_spans(spans, n, width)
    chosen = torch.empty(n, topk, dtype=torch.int32, device=table.device)
    select_rows(table, spans, topk, chosen, torch.empty(n, device=table.device))
    return chosen


def select_rows(
    table: torch.Tensor, spans: torch.Tensor, topk: int, chosen: torch.Tensor, lowest: torch.Tensor
) -> None:
    """As ``top_k``, into ``chosen [n, topk]``; the lowest selected score into ``lowest [n]``."""
    n = table.shape[0]
    if not n:
        return
    # A narrow table never has more candidates than columns.
    capacity = min(capacity_for(topk), max(table.shape[1], 32))
    scores = torch.empty(n, capacity, device=table.device)
    places = torch.empty(n, capacity, dtype=torch.int32, device=table.device)
    counts = torch.empty(n, dtype=torch.int32, device=table.device)
    threshold = torch.empty(n, dtype=torch.int32, device=table.device)
    target = AIM * capacity // CAPACITY
    sample_kernel[(n,)](table, spans, threshold, table.stride(0), capacity, target, SAMPLES=SAMPLES, num_warps=8)
    words = triton.cdiv(table.shape[1], 32)
    over, level = (torch.empty(n, words, dtype=torch.int32, device=table.device) for _ in range(2))
    pieces = triton.cdiv(words, WORDS * TIMES)
    pack_kernel[n, pieces](
        table, spans, threshold, over, level, table.stride(0), words, WORDS=WORDS, TIMES=TIMES, num_warps=4
    )
    collect_kernel[(n,)](
        table,
        spans,
        threshold,
        over,
        level,
        scores,
        places,
        counts,
        table.stride(0),
        words,
        capacity,
        topk,
        BLOCK=256,
        num_warps=1,
    )
    select_candidates(scores, places, counts, topk, chosen, lowest)
    exhaustive_kernel[(n,)](table, spans, counts, chosen, lowest, table.stride(0), topk, BLOCK=4096, num_warps=8)


def select_candidates(
    scores: torch.Tensor,
    places: torch.Tensor,
    counts: torch.Tensor,
    topk: int,
    chosen: torch.Tensor,
    lowest: torch.Tensor,
) -> None:
    """Select among the first ``counts [n]`` of scores ``[n, capacity]`` that stand for ascending places."""
    n, capacity = scores.shape
    if not n:
        return
    wide = triton.next_power_of_2(capacity)
    short_kernel[(n,)](
        scores, places, counts, chosen, lowest, capacity, topk, NARROW=max(16, wide // 2), WIDE=wide, num_warps=8
    )
