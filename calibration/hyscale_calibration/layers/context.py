"""Where the keys of a whole sequence come from, for a rank that computes those of its own tokens.

A layer asks for rows of the whole sequence, at once (``whole``) or for later (``coming``). On one GPU the rows of other
ranks are parameters, with gradients and without communication (``HeldKeys``), or there are no other ranks
(``WholeSequence``). Under context parallelism they are gathered in the forward, and summed gradients are scattered in
the backward (``across.gathered.GatheredKeys``); nothing else of a layer changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from hyscale_kernels.spans import causal_spans, zigzag_positions


class Context(Protocol):
    """A rank's share of a sequence.

    Attributes:
        length: tokens of the sequence; positions: int64 ``[n]`` of this rank's tokens.
    """

    length: int
    positions: torch.Tensor

    def whole(self, name: str, own: torch.Tensor) -> torch.Tensor:
        """Rows of the whole sequence in its order, differentiable.

        Args:
            name: what they are, ``latent`` or ``index_keys``.
            own: rows of this rank, one a token or one for several tokens: ``[n / ratio, width]``.

        Returns:
            ``[length / ratio, width]``.
        """

    def coming(self, name: str, own: torch.Tensor, *, hidden: bool) -> Callable[[], torch.Tensor]:
        """As ``whole``, to be asked for once and later.

        Args:
            hidden: rows may come while other work runs; False: they are there before it begins.
        """


def spans_of(context: Context, ratio: int = 1) -> torch.Tensor:
    """Entries of ``ratio`` tokens that each query of a rank sees: int32 ``[n, 2]``."""
    return causal_spans(context.positions, ratio)


class WholeSequence:
    """One rank that has every token."""

    def __init__(self, length: int, device: torch.device | str = "cpu") -> None:
        self.length = length
        self.positions = torch.arange(length, device=device)

    def whole(self, name: str, own: torch.Tensor) -> torch.Tensor:
        """Its own rows are all there are."""
        return own

    def coming(self, name: str, own: torch.Tensor, *, hidden: bool) -> Callable[[], torch.Tensor]:
        """They are there."""
        return lambda: own


class HeldKeys(torch.nn.Module):
    """One rank in zigzag order whose other ranks' rows are parameters: what a gather would have brought.

    Args:
        length: tokens of the sequence; ranks, rank: of context parallelism.
        widths: of the rows by name; ratios: tokens a row stands for by name, where that is not 1.
        generator: of the rows, standard normal in BF16.
    """

    positions: torch.Tensor

    def __init__(
        self,
        length: int,
        ranks: int,
        rank: int,
        widths: Mapping[str, int],
        *,
        ratios: Mapping[str, int] | None = None,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.length = length
        self.register_buffer("positions", zigzag_positions(length, ranks, rank, device), persistent=False)
        self._chunks = (rank, 2 * ranks - 1 - rank)
        self._parts = 2 * ranks
        self.others = torch.nn.ParameterDict()
        for name, width in widths.items():
            rows = length // (ratios or {}).get(name, 1) // ranks * (ranks - 1)
            found = torch.randn(rows, width, device=device, dtype=torch.bfloat16, generator=generator)
            self.others[name] = torch.nn.Parameter(found)

    def whole(self, name: str, own: torch.Tensor) -> torch.Tensor:
        """Own rows put among those of the others."""
        found: torch.Tensor = _Placed.apply(own, self.others[name], self._chunks, self._parts)
        return found

    def coming(self, name: str, own: torch.Tensor, *, hidden: bool) -> Callable[[], torch.Tensor]:
        """Put among those of the others at once: nothing is on its way."""
        found = self.whole(name, own)
        return lambda: found


def _pieces(own: int, chunks: tuple[int, int], parts: int) -> list[tuple[bool, slice, slice]]:
    """(own or not, its rows, rows of the whole) of the five pieces of a sequence of ``parts`` chunks."""
    chunk = own // 2
    first, last = (chunk * each for each in chunks)
    return [
        (False, slice(0, first), slice(0, first)),
        (True, slice(0, chunk), slice(first, first + chunk)),
        (False, slice(first, last - chunk), slice(first + chunk, last)),
        (True, slice(chunk, own), slice(last, last + chunk)),
        (False, slice(last - chunk, chunk * (parts - 2)), slice(last + chunk, chunk * parts)),
    ]


class _Placed(torch.autograd.Function):
    """One copy each way, as putting a gathered sequence in order is."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, others: torch.Tensor, chunks: tuple[int, int], parts: int) -> torch.Tensor:
        ctx.pieces, ctx.rows = _pieces(len(own), chunks, parts), (len(own), len(others))
        whole = own.new_empty(len(own) + len(others), own.shape[1])
        for mine, rows, place in ctx.pieces:
            whole[place] = (own if mine else others)[rows]
        return whole

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        own, others = (grad.new_empty(rows, grad.shape[1]) for rows in ctx.rows)
        for mine, rows, place in ctx.pieces:
            (own if mine else others)[rows] = grad[place]
        return own, others, None, None
