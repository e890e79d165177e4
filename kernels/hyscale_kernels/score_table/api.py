"""Validate, pad and dispatch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton

from hyscale_kernels.score_table.triton import table_kernel

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """What a program multiplies at a time: (query, head) columns and keys, and how it is compiled."""

    columns: int
    keys: int
    warps: int
    stages: int

    def at(self, dim: int) -> Tile:
        """The same memory at a width above the 128 that tiles were measured at; a product has at least 16 keys."""
        wider = max(1, dim // 128)
        return replace(self, columns=max(1, self.columns // wider), keys=max(16, self.keys // wider))


# Two programs of the narrow tile fit an SM. Writing BF16 scores is faster with one large one; see README.md.
NARROW = Tile(columns=256, keys=64, warps=4, stages=3)
WIDE = Tile(columns=256, keys=128, warps=8, stages=3)
# By the type of the inputs and whether a table is written.
TILES = {(torch.bfloat16, True): WIDE, (torch.bfloat16, False): NARROW, (FP8, True): NARROW, (FP8, False): NARROW}
# All heads of a query are in shared memory at once, beside the tiles of keys.
QUERY_BYTES = 128 * 1024
# Megatron-LM's TileLang path scores as many rows at a time.
BLOCK_ROWS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Inputs of a scoring kernel: heads and widths filled up to powers of two, query scales in the head weights."""

    q: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor
    key_scale: torch.Tensor | None
    spans: torch.Tensor
    dtype: torch.dtype

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
        length = keys.shape[0]
        if length >= 2**31:
            raise ValueError(f"indices are int32, there are {length} keys")
        if spans.dtype.is_floating_point or spans.dtype.is_complex or spans.dtype == torch.bool:
            raise ValueError(f"spans must be of an integer type, are {spans.dtype}")
        if bool(((spans < 0) | (spans > length)).any()):
            raise ValueError(f"spans must lie within 0 and {length}, the number of keys")
        for name, scale in (("q_scale", q_scale), ("key_scale", key_scale)):
            if scale is not None and bool((scale <= 0).any()):
                raise ValueError(f"{name} must be positive")
        folded = torch.ones(n, heads, device=q.device) if weights is None else weights.float()
        if q_scale is not None:
            # relu(c x) = c relu(x) for a positive scale.
            folded = folded * q_scale.float()
        more_heads = triton.next_power_of_2(heads) - heads
        more_dims = max(triton.next_power_of_2(dim), 32) - dim
        largest = QUERY_BYTES // q.element_size()
        if (heads + more_heads) * (dim + more_dims) > largest:
            raise ValueError(f"heads * dim must be at most {largest}, each rounded up to a power of two")
        if more_heads:
            # Some heads twice at half their weight: zeros would make NaN of an infinite key.
            folded = torch.cat([folded[:, :more_heads] / 2, folded[:, more_heads:], folded[:, :more_heads] / 2], dim=1)
            q = torch.cat([q, q[:, :more_heads]], dim=1)
        if more_dims:
            q = torch.cat([q, q.new_zeros(n, q.shape[1], more_dims)], dim=2)
            keys = torch.cat([keys, keys.new_zeros(length, more_dims)], dim=1)
        dtype = q.dtype
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
            dtype=dtype,
        )

    def launch(
        self,
        out: torch.Tensor,
        width: int,
        rows: slice = slice(None),
        table: bool = True,
        tile: Tile | None = None,
        imprecise: int | None = None,
    ) -> None:
        """Score some rows against the first ``width`` keys: into a table, or only each query's maximum."""
        q, weights, spans = self.q[rows], self.weights[rows], self.spans[rows]
        n, heads, dim = q.shape
        if not n:
            return
        tile = tile or TILES[self.dtype, table].at(dim)
        queries = max(1, tile.columns // heads)
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
            KEYS=tile.keys,
            SCALED=self.key_scale is not None,
            TABLE=table,
            IMPRECISE=imprecise,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )


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
