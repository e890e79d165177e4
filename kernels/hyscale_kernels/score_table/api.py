"""Validate, pad and dispatch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from hyscale_kernels.score_table.triton import table_kernel

# (query, head) columns of a tile: 8 queries of 32 heads fill the registers of two warp groups with FP32 sums.
COLUMNS = 256
KEYS = 64
WARPS = 8
STAGES = 3
# Megatron-LM's TileLang path scores as many rows at a time.
BLOCK_ROWS = 8192
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Inputs of a scoring kernel: heads and widths padded to powers of two, query scales in the head weights."""

    q: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor
    key_scale: torch.Tensor | None
    spans: torch.Tensor

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        spans: torch.Tensor,
        q_scale: torch.Tensor | None = None,
        key_scale: torch.Tensor | None = None,
    ) -> Scored:
        """Check inputs and prepare them; see ``select`` for shapes.

        Raises:
            ValueError: a shape, type or span that does not fit the others, with what would.
        """
        if q.ndim != 3 or keys.ndim != 2 or q.shape[-1] != keys.shape[-1]:
            raise ValueError(
                f"q must be [n, heads, dim] and keys [L, dim], they are {tuple(q.shape)} and {tuple(keys.shape)}"
            )
        if q.dtype != keys.dtype or q.dtype not in (torch.bfloat16, FP8):
            raise ValueError(f"q and keys must both be bfloat16 or float8_e4m3fn, they are {q.dtype} and {keys.dtype}")
        n, heads, dim = q.shape
        if heads < 1 or heads > 128:
            raise ValueError(f"1 to 128 heads are supported, q has {heads}")
        expected = {
            "weights": (weights, (n, heads)),
            "q_scale": (q_scale, (n, heads)),
            "key_scale": (key_scale, keys.shape[:1]),
            "spans": (spans, (n, 2)),
        }
        for name, (value, shape) in expected.items():
            if value is not None and tuple(value.shape) != tuple(shape):
                raise ValueError(f"{name} must be {tuple(shape)}, is {tuple(value.shape)}")
        if keys.shape[0] >= 2**31:
            raise ValueError(f"indices are int32, there are {keys.shape[0]} keys")
        folded = torch.ones(n, heads, device=q.device) if weights is None else weights.float()
        if q_scale is not None:
            # relu(c x) = c relu(x) for a positive scale.
            folded = folded * q_scale.float()
        more_heads = triton.next_power_of_2(heads) - heads
        more_dims = max(triton.next_power_of_2(dim), 32) - dim
        if more_heads or more_dims:
            q = _padded(q, (n, heads + more_heads, dim + more_dims))
            folded = _padded(folded, (n, heads + more_heads))
        if more_dims:
            keys = _padded(keys, (keys.shape[0], dim + more_dims))
        if triton.knobs.runtime.interpret and q.dtype == torch.bfloat16:
            # The interpreter multiplies the bits of BF16 as integers; in FP32 the products are the same.
            q, keys = q.float(), keys.float()
        if keys.stride(1) != 1:
            keys = keys.contiguous()
        return cls(
            q=q.contiguous(),
            keys=keys,
            weights=folded.contiguous(),
            key_scale=None if key_scale is None else key_scale.float().contiguous(),
            spans=spans.to(torch.int32).contiguous(),
        )

    def launch(
        self,
        out: torch.Tensor,
        width: int,
        rows: slice = slice(None),
        table: bool = True,
        columns: int = COLUMNS,
        keys: int = KEYS,
        warps: int = WARPS,
        stages: int = STAGES,
        imprecise: int | None = None,
    ) -> None:
        """Score some rows against the first ``width`` keys: into a table, or only each query's maximum."""
        q, weights, spans = self.q[rows], self.weights[rows], self.spans[rows]
        n, heads, dim = q.shape
        if not n:
            return
        queries = max(1, columns // heads)
        table_kernel[(triton.cdiv(n, queries),)](
            q,
            self.keys,
            weights,
            self.key_scale,
            spans,
            out,
            n,
            width,
            self.keys.stride(0),
            HEADS=heads,
            DIM=dim,
            QUERIES=queries,
            KEYS=keys,
            SCALED=self.key_scale is not None,
            TABLE=table,
            IMPRECISE=imprecise,
            num_warps=warps,
            num_stages=stages,
        )


def _padded(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Zeros behind a tensor in every dimension."""
    larger = value.new_zeros(shape)
    larger[tuple(slice(size) for size in value.shape)] = value
    return larger


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
    scored.launch(table, keys.shape[0])
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
) -> torch.Tensor:
    """The ``topk`` highest scores of each query by a score table and ``torch.topk``, as Megatron-LM selects.

    Args:
        q: BF16 or FP8 E4M3 ``[n, heads, dim]``; keys: the same type, ``[L, dim]``.
        weights: ``[n, heads]`` of any sign, or None for ones.
        spans: int ``[n, 2]``, first visible key and the key behind the last (see ``spans.causal_spans``).
        topk: keys to select, at least 1.
        q_scale: positive ``[n, heads]``; key_scale: positive ``[L]``; scales of quantised inputs.
        block_rows: queries whose scores are in memory at a time, 4 L bytes each.

    Returns:
        int32 ``[n, topk]``, ascending, -1 behind the last. Minus infinity and NaN are never selected. Which of equal
        scores at the border are selected is up to ``torch.topk``.

    Raises:
        ValueError: an input that does not fit the others, with what would.
    """
    if topk < 1 or block_rows < 1:
        raise ValueError(f"topk and block_rows must be at least 1, they are {topk} and {block_rows}")
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
        scored.launch(block, width, rows)
        best = torch.topk(block, kept, dim=-1, sorted=False)
        # Sorted as if behind every key, what must not be selected ends up last.
        places = best.indices.to(torch.int32).masked_fill_(best.values == float("-inf"), width).sort(dim=-1).values
        chosen[rows, :kept] = places.masked_fill_(places == width, -1)
    return chosen
