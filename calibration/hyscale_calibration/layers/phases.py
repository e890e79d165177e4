"""Which part of a layer is at work, told as it runs: nothing unless somebody listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# A part of a layer with its direction, such as ``forward.selection``.
Listener = Callable[[str], None]


class Phases:
    """Tells a listener when a phase begins, in the order of launches.

    Attributes:
        listener: called with ``<direction>.<part>``; direction is ``forward`` without gradients, ``recompute`` with
            them, ``backward``. None: nobody listens, and nothing is done.
    """

    def __init__(self) -> None:
        self.listener: Listener | None = None

    def begin(self, part: str) -> None:
        """A part of the forward, or of its recomputation, begins."""
        if self.listener is not None:
            self.listener(f"{'recompute' if torch.is_grad_enabled() else 'forward'}.{part}")

    def begin_backward(self, part: str, value: torch.Tensor) -> torch.Tensor:
        """``value``; when its gradient is known, the backward of what made it begins, called ``part``."""
        if self.listener is None or not value.requires_grad:
            return value
        found: torch.Tensor = _Told.apply(value, self.listener, f"backward.{part}")
        return found


class _Told(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, listener: Listener, name: str) -> torch.Tensor:
        ctx.told = listener, name
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        listener, name = ctx.told
        listener(name)
        return grad, None, None
