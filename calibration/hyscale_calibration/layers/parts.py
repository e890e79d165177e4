"""What layers are made of: products of hidden states, norms, rotary positions, indexers."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch
import triton
from torch.nn.functional import layer_norm, linear, rms_norm

from hyscale_calibration.layers.sizes import IndexSizes
from hyscale_calibration.layers.triton import pool_kernel, turn_kernel

ROPE_BASE = 10_000.0
NORM_EPSILON = 1e-6
# Of a token and a head, that a program turns.
TURNED_ROWS = 64
# Channels of an entry that a program pools.
POOLED_COLUMNS = 128

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


def turn_end(x: torch.Tensor, rotation: Rotation, sign: int = 1) -> torch.Tensor:
    """``x [n, width]`` or ``[n, heads, width]`` whose last columns, as many as a rotation has, are turned in place.

    The halves of those columns are the two coordinates. In place both ways, as fused kernels do it: nobody else may
    read ``x``, or its gradient.

    Args:
        sign: 1, or -1 to turn back.
    """
    found: torch.Tensor = _TurnedEnd.apply(x, *rotation, sign)
    return found


class _TurnedEnd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, sign: int) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.sign = sign
        ctx.mark_dirty(x)
        _turn(x, cos, sin, sign)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        _turn(grad, cos, sin, -ctx.sign)
        return grad, None, None, None


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, sign: int) -> None:
    end = (x[:, None] if x.ndim == 2 else x)[..., -2 * cos.shape[1] :]
    rows = end.shape[0] * end.shape[1]
    turn_kernel[(triton.cdiv(rows, TURNED_ROWS),)](
        end, cos, sin, rows, *end.shape[1:2], *end.stride()[:2], SIGN=sign, HALF=cos.shape[1], ROWS=TURNED_ROWS
    )


def per_head(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A product of its own for each head; columns beyond the weights pass through behind it.

    Args:
        x: ``[n, heads, inputs + more]``; weights: ``[heads, outputs, inputs]``.

    Returns:
        ``[n, heads, outputs + more]``. Products are written where they belong, without a copy, in both directions.
    """
    found: torch.Tensor = _PerHead.apply(x, weights)
    return found


class _PerHead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        _, outputs, inputs = weights.shape
        ctx.save_for_backward(x, weights)
        found = x.new_empty(*x.shape[:2], outputs + x.shape[2] - inputs)
        torch.bmm(_heads(x, inputs), weights.transpose(1, 2), out=_heads(found, outputs))
        found[..., outputs:] = x[..., inputs:]
        return found

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weights = ctx.saved_tensors
        _, outputs, inputs = weights.shape
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        torch.bmm(_heads(grad, outputs), weights, out=_heads(dx, inputs))
        dx[..., inputs:] = grad[..., outputs:]
        return dx, torch.bmm(_heads(grad, outputs).transpose(1, 2), _heads(x, inputs))


def _heads(x: torch.Tensor, columns: int) -> torch.Tensor:
    """The first columns, heads first: ``[heads, n, columns]``."""
    return x[..., :columns].transpose(0, 1)


def pooled(x: torch.Tensor, bias: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Entries of several tokens, each channel a mean of keys weighted by a softmax of gates, in FP32.

    Args:
        x: ``[tokens, 4 * width]``, of each token keys for its own entry and for the next, then the gates of both.
        bias: of gates, ``[2 * ratio, width]``: by place in the block, for its own entry and for the next.
        first: bool ``[tokens / ratio]``, entries that take nothing of the block before.

    Returns:
        ``[tokens / ratio, width]``.
    """
    found: torch.Tensor = _Pooled.apply(x, bias, first)
    return found


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, bias, first)
        out = x.new_empty(len(first), bias.shape[1])
        _pool(x, bias, first, out, None)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, bias, first = ctx.saved_tensors
        dx = torch.zeros_like(x)
        _pool(x, bias, first, grad.contiguous(), dx)
        # By entries, tokens of a block and series; gates alone.
        gates = dx.view(len(first), len(bias) // 2, 4, -1)[:, :, 2:].sum(0, dtype=torch.float32)
        return dx, gates.transpose(0, 1).flatten(0, 1).to(bias.dtype), None


def _pool(x: torch.Tensor, bias: torch.Tensor, first: torch.Tensor, out: torch.Tensor, dx: torch.Tensor | None) -> None:
    width = bias.shape[1]
    columns = min(triton.next_power_of_2(width), POOLED_COLUMNS)
    pool_kernel[(len(first), triton.cdiv(width, columns))](
        x, bias, first, out, dx, width, BACKWARD=dx is not None, RATIO=len(bias) // 2, COLUMNS=columns
    )


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
