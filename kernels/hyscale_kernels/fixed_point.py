"""Sums of whole numbers, whose bits no order of additions changes."""

from __future__ import annotations

import torch

# A sum of magnitudes below 2^e is held in units of 2^(e - 61): rounding may double it, and the sign is a bit.
BITS = 61
# FP32 holds the number of units in 1, and its inverse, as normal numbers.
MOST_BITS = 126
# Elements that are converted at a time.
CONVERTED = 2**24


def units_for(terms: torch.Tensor) -> torch.Tensor:
    """Units in 1, a power of two such that a sum bounded by that of ``terms`` cannot overflow: FP32 ``[1]``.

    Args:
        terms: float64 ``[n]``, not negative. Each is rounded up to 2^-30 of the largest, so that the sum has no order.

    Returns:
        On the device of the terms, without waiting for them; NaN where their sum is not finite.
    """
    largest = terms.amax()
    shares = (terms / largest.clamp(min=torch.finfo(torch.float64).tiny) * 2**30).ceil_()
    _, exponent = torch.frexp(largest * (shares.long().sum().double() / 2**30))
    bits = (BITS - exponent).clamp(-MOST_BITS, MOST_BITS)
    return torch.exp2(bits.double()).where(largest.isfinite(), torch.nan).float().reshape(1)


def in_ones(units: torch.Tensor, per_one: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Sums of units ``[rows, columns]`` as numbers."""
    sums = torch.empty(units.shape, dtype=dtype, device=units.device)
    one = 1 / per_one.double()
    rows = max(1, CONVERTED // max(units.shape[1], 1))
    for part, out in zip(units.split(rows), sums.split(rows), strict=True):
        out.copy_(part.double().mul_(one))
    return sums


def column_sums(terms: torch.Tensor) -> torch.Tensor:
    """Sums over the rows of FP32 ``[n, columns]``, with the same bits in any order of rows."""
    per_one = units_for(terms.abs().double().amax(1))
    units = (terms.double() * per_one.double()).long().sum(0, keepdim=True)
    return in_ones(units, per_one)[0]
