"""Launch of the gradient kernel, and gradients of filled-up inputs as those of the inputs."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from hyscale_kernels.fixed_point import CONVERTED, in_ones, units_for
from hyscale_kernels.replay.triton import gradient_kernel
from hyscale_kernels.scoring.inputs import Scored


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
    of one key. NaN where it is not finite.
    """
    n, heads, dim = scored.q.shape
    terms = torch.empty(n, dtype=torch.float64, device=scored.q.device)
    size = max(1, CONVERTED // max(heads * dim, places.shape[1]))
    for first in range(0, n, size):
        rows = slice(first, first + size)
        widths = scored.q[rows].float().abs().amax(-1).mul_(scored.weights[rows].abs())
        slopes = grad_scores[rows].masked_fill(places[rows] < 0, 0.0).abs_()
        terms[rows] = widths.sum(-1, dtype=torch.float64) * slopes.sum(-1, dtype=torch.float64)
    return units_for(terms)


def unfilled(filled: Gradients, heads: int, dim: int) -> Gradients:
    """Gradients of the inputs that ``Scored.of`` filled up: heads that stand twice had half their weight in each."""
    dq, dkeys, dweights = filled.q[:, :heads, :dim], filled.keys[:, :dim], filled.weights[:, :heads]
    twice = filled.q.shape[1] - heads
    if twice:
        dq[:, :twice] += filled.q[:, heads:, :dim]
        dweights[:, :twice] = (dweights[:, :twice] + filled.weights[:, heads:]) / 2
    return Gradients(dq, dkeys, dweights)
