"""Choose tiles and dispatch."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import triton

from hyscale_kernels.indices import made_indices
from hyscale_kernels.score_table.triton import table_kernel
from hyscale_kernels.scoring.hopper import Impl, launch, use_gluon
from hyscale_kernels.scoring.inputs import FP8, Scored
from hyscale_kernels.scoring.tiles import NARROW, WIDE, Tile, shares
from hyscale_kernels.top_k.api import check_topk, select_rows

# By the type of the inputs and whether a table is written.
TILES = {(torch.bfloat16, True): WIDE, (torch.bfloat16, False): NARROW, (FP8, True): NARROW, (FP8, False): NARROW}
# How to select among a row of scores.
Method = Literal["torch", "radix"]
# Megatron-LM's TileLang path scores as many rows at a time.
BLOCK_ROWS = 8192


def fill(
    scored: Scored,
    out: torch.Tensor,
    *,
    table: bool = True,
    tile: Tile | None = None,
    imprecise: int | None = None,
    impl: Impl | None = None,
) -> None:
    """Score queries against the first keys: ``out`` is a table ``[n, width]``, or each query's maximum ``[n]``.

    A ``tile``, ``imprecise`` or a maximum is for the kernel in Triton; Gluon gained nothing for a maximum.
    """
    n, heads, dim = scored.q.shape
    if not n:
        return
    width = out.shape[1] if table else scored.keys.shape[0]
    whole = table and width == scored.keys.shape[0] and tile is None and imprecise is None
    fast = whole and use_gluon(impl, scored)
    # Both must agree on which tiles are seen whole.
    usual = NARROW if fast else TILES[scored.dtype, table]
    tile = tile or usual.at(heads, dim, scored.dtype.itemsize)
    queries = tile.queries(heads)
    programs = triton.cdiv(n, queries)
    share = shares(programs, width, tile, tile.keys, out.device)
    parts = triton.cdiv(max(width, 1), share)
    kept = out if table else torch.empty(parts, n, device=out.device)
    if fast:
        from hyscale_kernels.score_table.gluon import table_whole_kernel

        table_whole_kernel[programs, parts](
            q_ptr=scored.q,
            weights_ptr=scored.weights,
            key_scale_ptr=scored.key_scale,
            spans_ptr=scored.spans,
            out_ptr=out,
            n=n,
            width=width,
            share=share,
            QUERIES=queries,
            KEYS=tile.keys,
            **launch(scored, apart=1),
        )
    table_kernel[(programs, parts)](
        scored.q,
        scored.keys,
        scored.weights,
        scored.key_scale,
        scored.spans,
        kept,
        n,
        width,
        share,
        scored.keys.stride(0),
        HEADS=heads,
        DIM=dim,
        QUERIES=queries,
        KEYS=tile.keys,
        SCALED=scored.key_scale is not None,
        TABLE=table,
        BORDERS=fast,
        IMPRECISE=imprecise,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if not table:
        torch.amax(kept, 0, out=out)


def score_table(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Scores of all queries: FP32 ``[n, L]``, minus infinity outside a query's span and where a score is NaN.

    Shapes and errors as in ``select``. The table takes 4 n L bytes; ``select`` makes it in blocks of rows.
    """
    scored = Scored.of(q, keys, weights, spans, q_scale, key_scale)
    table = torch.empty(q.shape[0], keys.shape[0], device=q.device, dtype=torch.float32)
    fill(scored, table)
    return table


def select(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    topk: int,
    *,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    block_rows: int = BLOCK_ROWS,
    method: Method = "torch",
) -> torch.Tensor:
    """The ``topk`` highest scores of each query by a score table.

    Args:
        q: BF16 or FP8 E4M3 ``[n, heads, dim]``; keys: the same type, ``[L, dim]``.
        weights: ``[n, heads]`` of any sign, or None for ones.
        spans: int ``[n, 2]``, first visible key and the key behind the last (see ``spans.causal_spans``).
        topk: keys to select, at least 1.
        q_scale: positive ``[n, heads]``; key_scale: positive ``[L]``; scales of quantised inputs.
        block_rows: queries whose scores are in memory at a time, 4 L bytes each.
        method: ``torch`` selects by ``torch.topk``, as Megatron-LM does; ``radix`` by ``top_k``, 1 to 2,048 of a row.

    Returns:
        int32 ``[n, topk]``, ascending, -1 behind the last. Minus infinity and NaN are never selected. Of equal
        scores at the border ``radix`` selects the lower positions; with ``torch`` it is up to ``torch.topk``.

    Raises:
        ValueError: an input that does not fit the others, with what would.
    """
    if topk < 1 or block_rows < 1:
        raise ValueError(f"topk and block_rows must be at least 1, they are {topk} and {block_rows}")
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}, is {method!r}")
    if method == "radix":
        check_topk(topk)
    scored = Scored.of(q, keys, weights, spans, q_scale, key_scale)
    n, width = q.shape[0], keys.shape[0]
    chosen = torch.full((n, topk), -1, device=q.device, dtype=torch.int32)
    kept = min(topk, width)
    if not n or not kept:
        return chosen
    table = torch.empty(min(block_rows, n), width, device=q.device, dtype=torch.float32)
    for first in range(0, n, block_rows):
        rows = slice(first, min(first + block_rows, n))
        block = table[: rows.stop - first]
        fill(scored.of_queries(rows), block)
        if method == "radix":
            select_rows(block, scored.spans[rows], topk, chosen[rows], torch.empty(len(block), device=q.device))
            continue
        best = torch.topk(block, kept, dim=-1, sorted=False)
        # Sorted as if behind every key, what must not be selected ends up last.
        places = best.indices.to(torch.int32).masked_fill_(best.values == float("-inf"), width).sort(dim=-1).values
        chosen[rows, :kept] = places.masked_fill_(places == width, -1)
    return made_indices(chosen, width)
