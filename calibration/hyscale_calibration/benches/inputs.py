"""Random inputs of an indexer."""

from __future__ import annotations

import torch

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


def indexer_inputs(
    dtype: str, n: int, length: int, heads: int, dim: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normal q ``[n, heads, dim]``, keys ``[length, dim]``, weights ``[n, heads]``, and spans of every key."""
    generator = torch.Generator(device=device).manual_seed(0)
    q = torch.randn(n, heads, dim, device=device, generator=generator).to(DTYPES[dtype])
    keys = torch.randn(length, dim, device=device, generator=generator).to(DTYPES[dtype])
    weights = torch.randn(n, heads, device=device, generator=generator)
    spans = torch.tensor([[0, length]], device=device, dtype=torch.int32).repeat(n, 1)
    return q, keys, weights, spans


def selections(n: int, length: int, topk: int, shared: float, device: str) -> torch.Tensor:
    """Ascending indices without padding: int32 ``[n, topk]``, one of each ``length // topk`` neighbouring keys.

    Each is that of the query before with probability ``shared``, as neighbours in a text select alike.
    """
    generator = torch.Generator(device=device).manual_seed(1)
    stride = length // topk
    slots = torch.arange(topk, device=device)
    # How often a slot has been drawn anew decides its place.
    drawn = (torch.rand(n, topk, device=device, generator=generator) >= shared).cumsum(0)
    within = ((drawn * 2654435761 + slots * 40503) % 2**32 >> 7) % stride
    return (slots * stride + within).to(torch.int32)
