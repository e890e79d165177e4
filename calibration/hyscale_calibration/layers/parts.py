"""What layers are made of: products of hidden states, norms, rotary positions, indexers."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn.functional import layer_norm, linear, rms_norm

from hyscale_calibration.layers.sizes import IndexSizes

ROPE_BASE = 10_000.0
NORM_EPSILON = 1e-6

Device: TypeAlias = "torch.device | str"
# Cosines and sines.
Rotation: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


def weight(*shape: int, device: Device, generator: torch.Generator | None) -> torch.nn.Parameter:
    """BF16 weights that keep the size of their input: normal, with a variance of one over the last dimension."""
    values = torch.randn(shape, device=device, generator=generator).mul_(shape[-1] ** -0.5)
    return torch.nn.Parameter(values.bfloat16())


def ones(width: int, device: Device) -> torch.nn.Parameter:
    """BF16 weights of a norm."""
    return torch.nn.Parameter(torch.ones(width, device=device, dtype=torch.bfloat16))


def normed(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Root-mean-square norm of the last dimension."""
    return rms_norm(x, (x.shape[-1],), scale, NORM_EPSILON)


def rotations(positions: torch.Tensor, width: int) -> Rotation:
    """Cosines and sines of rotary positions, BF16 ``[n, width / 2]``."""
    places = torch.arange(0, width, 2, device=positions.device)
    angles = positions[:, None] * ROPE_BASE ** (-places / width)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rotated(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """``x [n, ..., width]`` turned, its halves being the two coordinates."""
    cos, sin = (each.view(len(x), *[1] * (x.ndim - 2), -1) for each in rotation)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def turn_end(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """``x [n, ..., width]`` whose last columns, as many as a rotation has, are turned in place.

    In place both ways, as fused kernels do it: nobody else may read ``x``, or its gradient.
    """
    found: torch.Tensor = _TurnedEnd.apply(x, *rotation)
    return found


class _TurnedEnd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.mark_dirty(x)
        end = x[..., -2 * cos.shape[-1] :]
        end.copy_(rotated(end, (cos, sin)))
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        end = grad[..., -2 * cos.shape[-1] :]
        end.copy_(rotated(end, (cos, -sin)))
        return grad, None, None


class Indexer(torch.nn.Module):
    """Queries, keys and head weights of an indexer.

    What it reads is detached: it learns from its own loss alone.

    Args:
        sizes: its heads; query_inputs, key_inputs: widths of what it reads; rope: columns that have a position.
        weighted: whether heads have weights; biased: whether the norm of keys is one of mean and variance.
        key_outputs: columns of the product that keys are made of, ``sizes.width`` unless a layer pools them.
    """

    def __init__(
        self,
        sizes: IndexSizes,
        query_inputs: int,
        key_inputs: int,
        rope: int,
        *,
        weighted: bool,
        biased: bool = True,
        key_outputs: int = 0,
        device: Device = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        made = partial(weight, device=device, generator=generator)
        self.sizes, self.rope = sizes, rope
        self.query = made(sizes.heads * sizes.width, query_inputs)
        self.key = made(key_outputs or sizes.width, key_inputs)
        self.weights = made(sizes.heads, key_inputs) if weighted else None
        self.key_norm = ones(sizes.width, device)
        self.key_bias = torch.nn.Parameter(torch.zeros_like(self.key_norm.data)) if biased else None

    def queries(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """BF16 ``[n, heads, width]``."""
        found = linear(x.detach(), self.query).unflatten(-1, (self.sizes.heads, self.sizes.width))
        return turn_end(found, rotation)

    def keys(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """BF16 ``[n, width]``."""
        return self.keys_from(linear(x.detach(), self.key), rotation)

    def keys_from(self, raw: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Keys of what the product gave, or a layer made of it: BF16 ``[rows, width]``."""
        if self.key_bias is None:
            found = normed(raw, self.key_norm)
        else:
            found = layer_norm(raw, (self.sizes.width,), self.key_norm, self.key_bias, NORM_EPSILON)
        return turn_end(found, rotation)

    def head_weights(self, x: torch.Tensor) -> torch.Tensor | None:
        """FP32 ``[n, heads]``; None where heads have no weights."""
        if self.weights is None:
            return None
        return linear(x.detach(), self.weights).float() * (self.sizes.heads * self.sizes.width) ** -0.5
