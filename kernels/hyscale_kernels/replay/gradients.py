"""Launch of the gradient kernel, and gradients of filled-up inputs as those of the inputs."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from hyscale_kernels.replay.triton import gradient_kernel
from hyscale_kernels.scoring.inputs import Scored

# A sum of magnitudes below 2^e is held in units of 2^(e - 61): rounding may double it, and the sign is a bit.
BITS = 61
# FP32 holds the number of units in 1, and its inverse, as normal numbers.
MOST_BITS = 126
# Elements that are converted at a time.
CONVERTED = 2**24


class Gradients(NamedTuple):
    """FP32 gradients of q ``[n, heads, dim]``, keys ``[L, dim]`` and head weights ``[n, heads]``."""

    q: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor


def gradients(
    scored: Scored,
    places: torch.Tensor,
    grad_scores: torch.Tensor,
    deterministic: bool,
    keys: int = 64,
    warps: int = 4,
    stages: int = 2,
) -> Gradients:
    """Gradients of filled-up inputs: of q as it is stored, of scaled keys, and of weights with query scales in them.

    Args:
        places: int32 ``[n, width]``, negative ones count for nothing; grad_scores: FP32 ``[n, width]``, contiguous.
        deterministic: add the gradients of keys up as whole numbers.
    """
    n, heads, dim = scored.q.shape
    length, width = scored.keys.shape[0], places.shape[1]
    device = scored.q.device
    sums = torch.zeros(length, dim, dtype=torch.int64 if deterministic else torch.float32, device=device)
    dq = torch.empty(n, heads, dim, device=device)
    dweights = torch.empty(n, heads, device=device)
    if not n or not width or not length:
        return Gradients(dq.zero_(), sums.float(), dweights.zero_())
    per_one = units_per_one(scored, places, grad_scores) if deterministic else None
    gradient_kernel[(n,)](
        scored.q,
        scored.keys,
        scored.weights,
        scored.key_scale,
        places,
        grad_scores,
        per_one,
        dq,
        sums,
        dweights,
        width,
        scored.keys.stride(0),
        HEADS=heads,
        COLUMNS=max(16, heads),
        DIM=dim,
        KEYS=max(16, keys * 128 // max(dim, 128)),
        SCALED=scored.key_scale is not None,
        FIXED=deterministic,
        # The interpreter multiplies the bits of BF16 as integers.
        FACTOR=tl.float32 if triton.knobs.runtime.interpret else tl.bfloat16,
        IMPRECISE=None,
        num_warps=8 if deterministic or heads * dim > 4096 else warps,
        num_stages=stages,
    )
    return Gradients(dq, sums if per_one is None else in_ones(sums, per_one), dweights)


def units_per_one(scored: Scored, places: torch.Tensor, grad_scores: torch.Tensor) -> torch.Tensor:
    """Units of a fixed point in 1, a power of two that no gradient of a key can overflow: FP32 ``[1]``, on the device.

    The bound is sum_t (sum_s |dscore(t, s)|) (sum_h |weights(t, h)| max_d |q(t, h, d)|), reached if all selections were
    of one key. Each term is rounded up to 2^-30 of the largest, so that the sum has no order. NaN where it is not
    finite.
    """
    n, heads, dim = scored.q.shape
    terms = torch.empty(n, dtype=torch.float64, device=scored.q.device)
    size = max(1, CONVERTED // max(heads * dim, places.shape[1]))
    for first in range(0, n, size):
        rows = slice(first, first + size)
        widths = scored.q[rows].float().abs().amax(-1).mul_(scored.weights[rows].abs())
        slopes = grad_scores[rows].masked_fill(places[rows] < 0, 0.0).abs_()
        terms[rows] = widths.sum(-1, dtype=torch.float64) * slopes.sum(-1, dtype=torch.float64)
    largest = terms.amax()
    shares = (terms / largest.clamp(min=torch.finfo(torch.float64).tiny) * 2**30).ceil_()
    _, exponent = torch.frexp(largest * (shares.long().sum().double() / 2**30))
    bits = (BITS - exponent).clamp(-MOST_BITS, MOST_BITS)
    return torch.exp2(bits.double()).where(largest.isfinite(), torch.nan).float().reshape(1)


def in_ones(units: torch.Tensor, per_one: torch.Tensor) -> torch.Tensor:
    """Sums of units as FP32."""
    sums = torch.empty(units.shape, device=units.device)
    one = 1 / per_one.double()
    rows = max(1, CONVERTED // units.shape[1])
    for part, out in zip(units.split(rows), sums.split(rows), strict=True):
        out.copy_(part.double().mul_(one))
    return sums


def unfilled(filled: Gradients, heads: int, dim: int) -> Gradients:
    """Gradients of the inputs that ``Scored.of`` filled up: heads that stand twice had half their weight in each."""
    dq, dkeys, dweights = filled.q[:, :heads, :dim], filled.keys[:, :dim], filled.weights[:, :heads]
    twice = filled.q.shape[1] - heads
    if twice:
        dq[:, :twice] += filled.q[:, heads:, :dim]
        dweights[:, :twice] = (dweights[:, :twice] + filled.weights[:, heads:]) / 2
    return Gradients(dq, dkeys, dweights)
