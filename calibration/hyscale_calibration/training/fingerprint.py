"""Fingerprints of tensors: 64 bits of what they hold."""

from __future__ import annotations

import torch

# Elements at a time; each passes through a few tensors of 8 bytes.
CHUNK = 2**22
# A function whose every output bit depends on every input bit (Steele, Lea and Flood, SplittableRandom, 2014).
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_GOLDEN = 0x9E3779B97F4A7C15


def fingerprint(values: torch.Tensor) -> torch.Tensor:
    """The sum of a mixture of each element with the number of its row: int64, a tensor that waits for nothing.

    So rows may hold their elements in any order, as sets of selected keys may, and nothing else may differ. Two
    different tensors agree with a probability of 2^-64.

    Args:
        values: int32 ``[n, k]``.
    """
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    size = max(1, CHUNK // max(1, values.shape[1]))
    for first in range(0, len(values), size):
        part = values[first : first + size].long() & 0xFFFFFFFF
        rows = torch.arange(first, first + len(part), device=values.device)[:, None]
        total += _mixed(part + (rows << 32)).sum()
    return total


def of_weights(weights: list[torch.Tensor]) -> torch.Tensor:
    """A fingerprint of the bits of FP32 tensors in their order."""
    found = [fingerprint(each.detach().reshape(-1, 1).view(torch.int32)) for each in weights]
    parts = torch.stack(found)
    return _mixed(parts + torch.arange(len(found), device=parts.device)).sum()


def written(value: torch.Tensor) -> str:
    """16 hexadecimal digits."""
    return f"{int(value) & 0xFFFFFFFFFFFFFFFF:016x}"


def _mixed(z: torch.Tensor) -> torch.Tensor:
    z = z * _signed(_GOLDEN)
    for shift, factor in _STEPS:
        # Shifts of int64 bring the sign along.
        z = (z ^ ((z >> shift) & (2 ** (64 - shift) - 1))) * _signed(factor)
    return z


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits
