"""HyTopK's sizes: how many keys it samples, where it puts the threshold, what it buffers (arXiv 2610.32057).

1. Sample M = min(max(4096, L / 128), 8192) evenly spaced keys of a query's context of L keys.
2. Threshold: the ceil(3 k M / L)-th best sample score, which stands for about the 3k-th best key.
3. Filter: keys that pass are buffered; rank x L / M of them are expected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number, maximum, minimum

SAMPLE_LOW = 4096
SAMPLE_HIGH = 8192
KEYS_PER_SAMPLE = 128
# The threshold aims at this many times k.
TARGET = 3
# With independent scores a capacity of 4k overflows for about 130 of 8,192 queries, 6k for none.
CAPACITY = 6
# Rows that one recovery pass takes; the paper's training runs never had more in one selection.
RECOVERY_ROWS = 64


@dataclass(frozen=True, slots=True)
class HyTopKSizes:
    """Sizes for a context of L keys: samples M, distance between them, rank of the threshold, candidates."""

    samples: Number
    stride: Number
    rank: Number
    candidates: Number

    @classmethod
    def of(cls, keys: Number, topk: Number) -> HyTopKSizes:
        """Sizes for ``keys`` visible keys and ``topk`` selected ones."""
        samples = minimum(maximum(SAMPLE_LOW, keys / KEYS_PER_SAMPLE), SAMPLE_HIGH, keys)
        stride = keys / samples
        rank = np.ceil(TARGET * topk / stride)
        rank = minimum(rank if isinstance(stride, np.ndarray) else float(rank), samples)
        return cls(samples, stride, rank, minimum(rank * stride, keys))


def mean_samples(keys: Number) -> Number:
    """Mean of M over causal contexts 1..L: the integral of the piecewise-linear M(l), over L."""
    knee, top = SAMPLE_LOW * KEYS_PER_SAMPLE, SAMPLE_HIGH * KEYS_PER_SAMPLE
    short = minimum(keys, SAMPLE_LOW)
    flat = minimum(maximum(keys, SAMPLE_LOW), knee) - SAMPLE_LOW
    rising = minimum(maximum(keys, knee), top)
    beyond = maximum(keys, top) - top
    area = short**2 / 2 + SAMPLE_LOW * flat + (rising**2 - knee**2) / (2 * KEYS_PER_SAMPLE) + SAMPLE_HIGH * beyond
    return area / keys
