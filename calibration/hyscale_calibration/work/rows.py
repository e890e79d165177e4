"""What the rows of a selection do one by one: how many keys each sees, and how SMs take unequal ones in turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from heapq import heapreplace
from math import ceil

import numpy as np

from hyscale_calibration.work.unit import Shape


def visible_keys(shape: Shape) -> np.ndarray:
    """Keys that each query sees ``[n]``: all, a share of them, or those of a rank of zigzag order."""
    n, length, ratio = shape["n"], shape["L"], shape.get("ratio", 1)
    visible = shape.get("visible", "all")
    if visible == "all":
        return np.full(n, length)
    if not isinstance(visible, str):
        return np.full(n, int(visible * length))
    # As ``spans.causal_spans`` of ``zigzag_positions``.
    ranks = max(length * ratio // n, 1)
    rank = 0 if visible == "first" else ranks // 2
    chunk = length * ratio // (2 * ranks)
    within = np.arange(chunk)
    positions = np.concatenate([rank * chunk + within, (2 * ranks - 1 - rank) * chunk + within])
    return (positions + 1) // ratio


def longest(lengths: np.ndarray, slots: int) -> float:
    """When the last of programs of these lengths ends, of which ``slots`` run at once, each begun as one ends."""
    lengths = lengths[lengths > 0]
    if len(lengths) <= slots:
        return float(lengths.max(initial=0.0))
    ends = [0.0] * slots
    for length in lengths.tolist():
        heapreplace(ends, ends[0] + length)
    return max(ends)


def in_order(lengths: np.ndarray, at_once: float, rows: int = 0) -> Callable[[float], float]:
    """SMs -> time of programs of these lengths over that of work spread evenly; an SM runs ``at_once`` side by side.

    ``rows``: programs of a launch, one after another; 0: all in one.
    """
    total, size = float(lengths.sum()), rows or len(lengths)
    launches = [lengths[first : first + size] for first in range(0, len(lengths), size)]

    @cache
    def turns(sms: float) -> float:
        slots = max(1, int(sms * at_once))
        return max(1.0, sum(longest(each, slots) for each in launches) * slots / total) if total else 1.0

    return turns


def shares(programs: int, slots: int) -> int:
    """Into how many shares of the keys blocks of queries are split, as ``scoring.tiles.shares`` does."""

    def idle(count: int) -> float:
        waves = programs * count / slots
        return 1 - waves / ceil(waves) + 1e-4 * count

    return min(range(1, max(16, slots // programs) + 1), key=idle)
