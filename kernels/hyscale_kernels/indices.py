"""Indices of selected keys, -1 for none."""

from __future__ import annotations

import torch
from torch.utils.weak import WeakTensorKeyDictionary

# Indices that a selection made: their version then, and of how many keys they are. A look at the device would wait for
# all that was launched before, in every layer.
_made = WeakTensorKeyDictionary()


def made_indices(indices: torch.Tensor, length: int) -> torch.Tensor:
    """The same indices, known to be -1 or one of ``length`` keys until they are written to."""
    # Changes to what inference makes cannot be noticed.
    if not (torch.compiler.is_compiling() or indices.is_inference()):
        _made[indices] = (indices._version, length)
    return indices


def length_of(indices: torch.Tensor) -> int | None:
    """Of how many keys these are known to be, None if that is not known."""
    known = None if indices.is_inference() else _made.get(indices)
    return known[1] if known is not None and known[0] == indices._version else None


def check_indices(indices: torch.Tensor, length: int) -> None:
    """Raise ValueError unless each is -1 or a key; one look at the device where it is not known."""
    known = length_of(indices)
    if known is not None and known <= length:
        return
    if indices.numel():
        least, most = torch.aminmax(indices)
        if bool((least < -1) | (most >= length)):
            raise ValueError(f"indices must be -1 or a key, 0 to {length - 1}")
