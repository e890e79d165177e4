"""Tiles of kernels: how evenly a product of matrices fills the SMs, by the last turn and what tiles pad.

A library picks the tile that ends first. A tile of a x b results loads operands in proportion to 1 / a + 1 / b, so
smaller ones sustain less; ``SMALLER`` of that excess is taken as time. Needs numpy alone.
"""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number

# Tiles of cuBLAS and CUTLASS kernels for Hopper.
TILES = ((128, 256), (256, 128), (128, 192), (192, 128), (128, 128), (64, 256), (256, 64))
SMALLER = 0.3
# Kernels that score gathered keys hold four copies of a query's heads: 128 columns of so many, 256 of more.
UNCROWDED_HEADS = 32
_LARGEST = 1 / 128 + 1 / 256


def product_turns(rows: Number, columns: Number, sms: Number, groups: Number = 1) -> Number:
    """Time of whole turns of the SMs over that of the results alone, spread evenly; 1 or more.

    Args:
        rows: of the result, over all groups; columns: of the result of a group.
        sms: that take tiles in turns.
        groups: products of the same shape in one launch.
    """
    best: Number = np.inf
    for height, width in TILES:
        tiles = groups * np.ceil(rows / groups / height) * np.ceil(columns / width)
        slower = 1 + SMALLER * ((1 / height + 1 / width) / _LARGEST - 1)
        best = np.minimum(best, np.ceil(tiles / sms) * sms * height * width * slower / (rows * columns))
    return np.maximum(best, 1.0)
