"""Entries that stand for several tokens: keys of blocks, their tokens, and the tokens of no complete block."""

from __future__ import annotations

import torch

from hyscale_kernels.indices import length_of, made_indices


def block_means(keys: torch.Tensor, ratio: int) -> torch.Tensor:
    """Mean key of each complete block of ``ratio`` tokens: ``[tokens, dim]`` to ``[tokens // ratio, dim]``.

    In FP32, rounded once to the type of the keys. Tokens behind the last complete block have none.
    """
    whole = keys.shape[0] // ratio
    return keys[: whole * ratio].float().unflatten(0, (whole, ratio)).mean(1).to(keys.dtype)


def tokens_of(indices: torch.Tensor, ratio: int) -> torch.Tensor:
    """The tokens of selected blocks: int32 ``[n, k]`` to ``[n, k * ratio]``, ascending, -1 behind the last."""
    within = torch.arange(ratio, device=indices.device, dtype=indices.dtype)
    tokens = indices[..., None] * ratio + within
    tokens = tokens.masked_fill_(indices[..., None] < 0, -1).flatten(-2)
    length = length_of(indices)
    return tokens if length is None else made_indices(tokens, length * ratio)


def unfinished_spans(positions: torch.Tensor, ratio: int, segment_starts: torch.Tensor | None = None) -> torch.Tensor:
    """Tokens that a query attends beside its selection: those of its own block, as long as that is not complete.

    Args:
        positions: int ``[n]``; segment_starts: int ``[n]``, multiples of ``ratio``, see ``spans.causal_spans``.

    Returns:
        int32 ``[n, 2]``: first token and the token behind the last, at most ``ratio - 1`` of them.
    """
    ends = positions + 1
    starts = ends // ratio * ratio
    if segment_starts is not None:
        starts = torch.maximum(starts, segment_starts)
    return torch.stack([starts, ends], dim=-1).to(torch.int32)
