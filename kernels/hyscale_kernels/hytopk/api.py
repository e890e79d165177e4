"""Sample, filter, check, recover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from hyscale_kernels.hytopk.plan import Plan
from hyscale_kernels.hytopk.stages import bitmap, compact, find_thresholds, mark
from hyscale_kernels.indices import made_indices
from hyscale_kernels.replay.rescore import rescore
from hyscale_kernels.score_table.api import fill
from hyscale_kernels.scoring.hopper import Impl
from hyscale_kernels.scoring.inputs import Scored
from hyscale_kernels.top_k.api import capacity_for, select_candidates, select_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selected keys and what certifies them.

    Attributes:
        indices: int32 ``[n, topk]``, ascending, -1 behind the last.
        candidates: int32 ``[n]``, keys that reached the query's threshold; 0 where it was not filtered.
        margin: FP32 ``[n]``, lowest selected score less the threshold, 0 or more: no key below the threshold can belong
            to the selection. Infinite where every visible key was compared.
        recovered: bool ``[n]``, queries whose candidates could not hold the selection, so that all their visible keys
            were scored again.
    """

    indices: torch.Tensor
    candidates: torch.Tensor
    margin: torch.Tensor
    recovered: torch.Tensor

    def of_rows(self, rows: slice) -> Selection:
        """Some of the queries, in the same memory."""
        return Selection(
            indices=self.indices[rows],
            candidates=self.candidates[rows],
            margin=self.margin[rows],
            recovered=self.recovered[rows],
        )


def hytopk(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    topk: int,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    plan: Plan | None = None,
    impl: Impl | None = None,
) -> Selection:
    """The ``topk`` highest scores of each query, exactly, without a table of scores.

    Equal scores go to the lower position; minus infinity and NaN are never selected. The same input gives the same
    bits, and a query's neighbours change nothing.

    Args:
        q: BF16 or FP8 E4M3 ``[n, heads, dim]``; keys: the same type, ``[L, dim]``, L at most 2^21.
        weights: ``[n, heads]`` of any sign, or None for ones.
        spans: int ``[n, 2]``, first visible key and the key behind the last (see ``spans.causal_spans``).
        topk: 1 to 2,048.
        q_scale: positive ``[n, heads]``; key_scale: positive ``[L]``; scales of quantised inputs.
        plan: how candidates are found; changes no index.
        impl: how the filter is written, ``triton`` or ``gluon``; changes no bit. None: what is fastest here.

    Raises:
        ValueError: an input that does not fit the others, with what would.
    """
    # Waiting for the device before it has work would leave it idle while the first kernels are launched.
    scored, wrong = Scored.prepared(q, keys, weights, spans, q_scale, key_scale)
    n, length = q.shape[0], keys.shape[0]
    usual = Plan.of(topk, length)
    plan = plan or usual
    device = q.device
    found = Selection(
        indices=torch.empty(n, topk, dtype=torch.int32, device=device),
        candidates=torch.empty(n, dtype=torch.int32, device=device),
        margin=torch.empty(n, device=device),
        recovered=torch.zeros(n, dtype=torch.bool, device=device),
    )
    if length <= max(plan.capacity, plan.short):
        _score_all(scored, None, plan, found)
        scored.check(wrong.tolist())
        torch.sub(scored.spans[:, 1], scored.spans[:, 0], out=found.candidates).clamp_(min=0)
        made_indices(found.indices, length)
        return found
    for rows in blocks(n, plan.rows(length)):
        _filter_and_select(scored.of_queries(rows), plan, found.of_rows(rows), impl)
    # One look at the device.
    *faults, missed = torch.cat([wrong, found.recovered.any()[None]]).tolist()
    scored.check(faults)
    if missed:
        _score_all(scored, found.recovered.nonzero()[:, 0], plan, found)
    made_indices(found.indices, length)
    return found


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most ``size`` that cover n."""
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def _filter_and_select(scored: Scored, plan: Plan, found: Selection, impl: Impl | None) -> None:
    """Select for a block of queries; those that candidates do not certify are only marked."""
    n, length, topk = scored.q.shape[0], scored.keys.shape[0], found.indices.shape[1]
    device = scored.q.device
    threshold = torch.empty(n, device=device)
    opened = torch.empty_like(scored.spans)
    find_thresholds(scored, plan, threshold, opened)
    words = bitmap(n, length, plan, device)
    mark(scored, plan, threshold, opened, words, impl)
    size = max(1, plan.chunk_bytes // (8 * plan.capacity))
    places = torch.empty(min(n, size), plan.capacity, dtype=torch.int32, device=device)
    scores = torch.empty(places.shape, device=device)
    counts = torch.empty(n, dtype=torch.int32, device=device)
    for rows in blocks(n, size):
        chunk = found.of_rows(rows)
        taken = slice(0, rows.stop - rows.start)
        compact(
            words[rows],
            scored.spans[rows],
            opened[rows],
            threshold[rows],
            topk,
            places[taken],
            chunk.candidates,
            counts[rows],
        )
        rescore(scored.of_queries(rows), places[taken], scores[taken], counts[rows])
        select_candidates(scores[taken], places[taken], counts[rows], topk, chunk.indices, chunk.margin)
    # The difference of equal infinities would be NaN.
    level = found.margin == threshold
    found.margin.sub_(threshold).masked_fill_(level, 0.0)
    found.margin.masked_fill_(threshold == torch.finfo(threshold.dtype).min, float("inf"))
    # A negative margin would mean that rescoring gave other bits than filtering.
    torch.logical_or(counts < 0, found.margin < 0, out=found.recovered)


def _score_all(scored: Scored, rows: torch.Tensor | None, plan: Plan, found: Selection) -> None:
    """Score all visible keys of some queries, None for all, a bounded table at a time, and select among them."""
    count = scored.q.shape[0] if rows is None else len(rows)
    length, topk = scored.keys.shape[0], found.indices.shape[1]
    # A row of the table, bits of its keys, and scores and places of its candidates; those of the filter are gone.
    each = 4 * length + length // 4 + 8 * min(capacity_for(topk), length)
    size = max(1, (plan.bitmap_bytes + plan.chunk_bytes) // max(each, 1))
    table = torch.empty(min(size, count), length, device=scored.q.device)
    for part in blocks(count, size):
        taken = part if rows is None else rows[part]
        some = scored.of_queries(taken)
        block = table[: part.stop - part.start]
        fill(some, block)
        indices = torch.empty(len(block), topk, dtype=torch.int32, device=table.device)
        lowest = torch.empty(len(block), device=table.device)
        select_rows(block, some.spans, topk, indices, lowest)
        found.indices[taken] = indices
        found.margin[taken] = float("inf")
