"""Tiles of kernels: how evenly a product of matrices fills the SMs, by the last turn and what tiles pad.

A library picks the tile that ends first. A tile of a x b results loads operands in proportion to 1 / a + 1 / b, so
smaller ones sustain less; ``SMALLER`` of that excess is taken as time. Needs numpy alone.
"""

from __future__ import annotations

import math

import numpy as np

from hyscale_model.arrays import Number, maximum, minimum

# Tiles of cuBLAS and CUTLASS kernels for Hopper.
TILES = ((128, 256), (256, 128), (128, 192), (192, 128), (128, 128), (64, 256), (256, 64))
SMALLER = 0.3
# Kernels that score gathered keys hold four copies of a query's heads: 128 columns of so many, 256 of more.
UNCROWDED_HEADS = 32
# Queries whose gradients of keys this project's sparse attention adds at once, and up to which union of their keys, in
# those of one. Heads to a key for which its kernels are in Gluon, or else so few that queries together save time.
TOGETHER, TOGETHER_UP_TO = 4, 2.0
GLUON_HEADS, FEW_HEADS = 64, 32
_LARGEST = 1 / 128 + 1 / 256
# Results of a tile, times how much longer each takes.
_AREAS = tuple(
    (height, width, height * width * (1 + SMALLER * ((1 / height + 1 / width) / _LARGEST - 1)))
    for height, width in TILES
)


def product_turns(rows: Number, columns: Number, sms: Number, groups: Number = 1) -> Number:
    """Time of whole turns of the SMs over that of the results alone, spread evenly; 1 or more.

    Args:
        rows: of the result, over all groups; columns: of the result of a group.
        sms: that take tiles in turns.
        groups: products of the same shape in one launch.
    """
    # Python's own numbers where they do: they cost a tenth.
    arrays = any(isinstance(each, np.ndarray) for each in (rows, columns, sms, groups))
    up = np.ceil if arrays else math.ceil
    turns = [
        up(groups * up(rows / groups / height) * up(columns / width) / sms) * (sms * area / (rows * columns))
        for height, width, area in _AREAS
    ]
    return maximum(1.0, minimum(*turns))


def union_of(queries: int, overlap: Number) -> Number:
    """Keys that neighbours select together, in those of one; ``overlap``: what each has of the one before."""
    return 1 + (queries - 1) * (1 - overlap)
