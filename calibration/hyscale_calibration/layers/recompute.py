"""Full activation recomputation of a layer, with or without the selection of its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hyscale_kernels.checkpoint import SelectionTape
from torch.utils.checkpoint import checkpoint

# Hidden states to hidden states and a loss.
Run = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def recomputed(run: Run, x: torch.Tensor, *, keeps: bool, coefficient: float = 1.0) -> torch.Tensor:
    """The first result of ``run(x)``, nothing of which but ``x`` and selections outlives the forward.

    The forward runs without gradients. The second result, a loss, is computed in the recomputation alone and adds
    ``coefficient`` times its gradient to that of the first, as Megatron-LM's does; to read its value, keep it inside
    ``run``.

    Args:
        run: a layer or several, see ``dsa.DsaLayer``.
        x: requires a gradient.
        keeps: give the recomputation the selections of the forward; False: it selects again.
    """
    if not x.requires_grad:
        raise ValueError("x must require a gradient: without one nothing is recomputed, and weights get none")
    tape = SelectionTape() if keeps else None

    def once(hidden: torch.Tensor) -> torch.Tensor:
        if tape is None:
            out, loss = run(hidden)
        else:
            with tape.replaying() if tape.recorded else tape.recording():
                out, loss = run(hidden)
        found: torch.Tensor = _Attached.apply(out, loss, coefficient)
        return found

    found: torch.Tensor = checkpoint(once, x, use_reentrant=True, preserve_rng_state=False)
    return found


class _Attached(torch.autograd.Function):
    """A value whose gradient brings a loss with it."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, loss: torch.Tensor, coefficient: float) -> torch.Tensor:
        ctx.save_for_backward(loss.detach())
        ctx.coefficient = coefficient
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (loss,) = ctx.saved_tensors
        return grad, torch.full_like(loss, ctx.coefficient), None
