"""Which entries a query may select, as one half-open span of entries a query.

Causality, zigzag context parallelism, packed segments and compression all come down to a first entry and an entry
behind the last, so kernels know nothing else about positions.
"""

from __future__ import annotations

import torch


def causal_spans(positions: torch.Tensor, ratio: int = 1, segment_starts: torch.Tensor | None = None) -> torch.Tensor:
    """Spans of the entries that are complete at a query and lie in its segment.

    Args:
        positions: int ``[n]``, the place of each query among the tokens that the entries were made of.
        ratio: tokens an entry stands for; entry e is complete at its last token, ``ratio * (e + 1) - 1``.
        segment_starts: int ``[n]``, the first token of each query's segment; multiples of ``ratio``. None: 0.

    Returns:
        int32 ``[n, 2]``: first entry, and the entry behind the last; equal where nothing is visible.

    Raises:
        ValueError: a ratio below 1, a segment that begins after its query or inside an entry.
    """
    if ratio < 1:
        raise ValueError(f"ratio must be at least 1, is {ratio}")
    starts = torch.zeros_like(positions) if segment_starts is None else segment_starts
    if starts.shape != positions.shape:
        raise ValueError(f"segment_starts has shape {tuple(starts.shape)}, positions {tuple(positions.shape)}")
    if bool((starts > positions).any()):
        raise ValueError("a segment begins after its query")
    if bool((starts % ratio != 0).any()):
        raise ValueError(f"segments must begin at multiples of {ratio} tokens, where an entry begins")
    first = starts // ratio
    return torch.stack([first, torch.maximum((positions + 1) // ratio, first)], dim=-1).to(torch.int32)


def checked_spans(spans: torch.Tensor, n: int, length: int) -> torch.Tensor:
    """Spans of ``n`` queries over ``length`` entries as kernels read them: int32 ``[n, 2]``, contiguous.

    Raises:
        ValueError: another shape, a type that is no integer, or a span beyond the entries.
    """
    within, beyond = bounded_spans(spans, n, length)
    if bool(beyond):
        raise ValueError(beyond_message(length))
    return within


def bounded_spans(spans: torch.Tensor, n: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``checked_spans``, without waiting for the device: spans within the entries, and whether any was beyond them.

    Raises:
        ValueError: another shape, or a type that is no integer.
    """
    if tuple(spans.shape) != (n, 2):
        raise ValueError(f"spans must be {(n, 2)}, is {tuple(spans.shape)}")
    if spans.dtype.is_floating_point or spans.dtype.is_complex or spans.dtype == torch.bool:
        raise ValueError(f"spans must be of an integer type, are {spans.dtype}")
    within = spans.clamp(0, length)
    return within.to(torch.int32).contiguous(), (within != spans).any()


def beyond_message(length: int) -> str:
    """What is wrong with spans that are beyond the entries."""
    return f"spans must lie within 0 and {length}, the number of keys"


def zigzag_positions(length: int, ranks: int, rank: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Positions of a context rank that holds chunks ``rank`` and ``2 ranks - 1 - rank`` of ``2 ranks``: int64 ``[n]``.

    Raises:
        ValueError: a length that is no multiple of ``2 ranks``, or a rank that does not exist.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} does not exist")
    if length % (2 * ranks):
        raise ValueError(f"a length of {length} does not divide into {2 * ranks} chunks")
    chunk = length // (2 * ranks)
    within = torch.arange(chunk, device=device)
    return torch.cat([rank * chunk + within, (2 * ranks - 1 - rank) * chunk + within])
