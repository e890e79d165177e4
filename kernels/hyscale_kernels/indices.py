"""Indices of selected keys, -1 for none."""

from __future__ import annotations

import torch


def check_indices(indices: torch.Tensor, length: int) -> None:
    """Raise ValueError unless each is -1 or a key; one look at the device."""
    if indices.numel():
        least, most = torch.aminmax(indices)
        if bool((least < -1) | (most >= length)):
            raise ValueError(f"indices must be -1 or a key, 0 to {length - 1}")
