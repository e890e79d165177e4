"""Rows of all context ranks: gathered in the forward, their gradients summed and scattered in the backward.

Each kind of rows has a collective of its own. Index keys and latents in one would save the latency of a collective,
some 2 us a rank where the index keys of 131,072 tokens (34 MB) take 50 us or more on NVLink, and cost a copy of
everything into rows of both. What decides is that scores need the index keys alone, 128 of 704 columns, so that the
others can come while keys are selected.

Collectives run on the stream of the process group: on CUDA a stream of its own, which waits for what makes the rows,
and for which the stream of the layer waits where the rows are used. Gloo, without streams, does the same in threads of
its own. A rank's rows are two chunks of the sequence, so what was gathered is put in order before anybody sees it, and
indices are those of the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from hyscale_kernels.spans import zigzag_positions


def held_chunks(ranks: int) -> list[int]:
    """Chunks of the sequence in the order in which ranks hold them: 0, 2 ranks - 1, 1, 2 ranks - 2, ..."""
    return [chunk for rank in range(ranks) for chunk in (rank, 2 * ranks - 1 - rank)]


def in_order(gathered: torch.Tensor, ranks: int) -> torch.Tensor:
    """Rows in the order of ranks to rows in the order of the sequence, in one copy: ``[rows, width]``."""
    held = held_chunks(ranks)
    return _arranged(gathered, [held.index(chunk) for chunk in range(2 * ranks)])


def by_ranks(whole: torch.Tensor, ranks: int) -> torch.Tensor:
    """Back again."""
    return _arranged(whole, held_chunks(ranks))


def _arranged(rows: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    chunks = rows.chunk(len(order))
    return torch.cat([chunks[each] for each in order])


class GatheredKeys:
    """A context rank in zigzag order beside the others of a process group.

    All ranks must ask for the same rows in the same order, as identical layers do.

    Args:
        length: tokens of the sequence, a multiple of twice the number of ranks.
        device: of the rows.
        group: of the ranks, None: all processes.
    """

    def __init__(self, length: int, *, device: torch.device | str = "cpu", group: Any = None) -> None:
        self.length, self._group = length, group
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.positions = zigzag_positions(length, self.ranks, self.rank, device)

    def whole(self, name: str, own: torch.Tensor) -> torch.Tensor:
        """Gathered before anything else runs."""
        return self.coming(name, own, hidden=False)()

    def coming(self, name: str, own: torch.Tensor, *, hidden: bool) -> Callable[[], torch.Tensor]:
        """Being gathered; whoever asks waits, on the device where there are streams.

        Raises:
            ValueError: not every token has the same number of rows.
        """
        if own.ndim != 2 or len(own) % 2 or len(self.positions) % max(len(own), 1):
            tokens = len(self.positions)
            raise ValueError(f"{name} of {tokens} tokens in two chunks must be [n, width], is {tuple(own.shape)}")
        collective = _Collective(self._group, self.ranks)
        # Taken out by whoever asks, so that the copy in another order goes as soon as it was put in order.
        gathered = [_Gathered.apply(own, collective)]

        def arrived() -> torch.Tensor:
            found: torch.Tensor = _Arrived.apply(gathered.pop(), collective)
            return found

        if hidden:
            return arrived
        found = arrived()
        return lambda: found


class _Collective:
    """One gather under way, and the scatter of its gradients."""

    def __init__(self, group: Any, ranks: int) -> None:
        self.group, self.ranks = group, ranks
        self._work: Any = None

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        gathered = own.new_empty(self.ranks * len(own), own.shape[1])
        self._work = dist.all_gather_into_tensor(gathered, own.contiguous(), group=self.group, async_op=True)
        return gathered

    def wait(self) -> None:
        # The work holds its tensors until then.
        if self._work is not None:
            self._work.wait()
        self._work = None

    def scatter(self, gradient: torch.Tensor) -> torch.Tensor:
        own = gradient.new_empty(len(gradient) // self.ranks, gradient.shape[1])
        dist.reduce_scatter_tensor(own, gradient.contiguous(), group=self.group, async_op=True).wait()
        return own


class _Gathered(torch.autograd.Function):
    """Rows in the order of ranks, not to be read before they have arrived."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, collective: _Collective) -> torch.Tensor:
        ctx.collective = collective
        return collective.gather(own)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.collective.scatter(gradient), None


class _Arrived(torch.autograd.Function):
    """Rows in the order of the sequence."""

    @staticmethod
    def forward(ctx: Any, gathered: torch.Tensor, collective: _Collective) -> torch.Tensor:
        ctx.ranks = collective.ranks
        collective.wait()
        return in_order(gathered, collective.ranks)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return by_ranks(gradient, ctx.ranks), None
