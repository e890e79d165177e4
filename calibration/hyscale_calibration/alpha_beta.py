"""Time of a collective by its size: a latency, the rate of its links, and what filling them costs.

    t = latency_s + ramp_s_per_sqrt_byte x sqrt(B) + B x factor / bus_bytes_per_s

The first and last term are the usual alpha and beta. A library cuts a message into pieces that follow each other
through the ranks; pieces of the best size cost a term that grows with the root of the message, which is what messages
between latency and bandwidth take longer than alpha and beta say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from hyscale_calibration.profile_file import short


def held_out(size: int) -> bool:
    """Whether messages of so many bytes test the fit: every second power of two, decided before measuring."""
    return bool(size.bit_length() % 2 == 0)


def fit(rows: Sequence[Mapping[str, Any]], factor: float) -> dict[str, Any]:
    """The three terms and how well they tell sizes that were not fitted.

    Args:
        rows: ``bytes`` and ``median_s`` of one collective.
        factor: bytes that the busiest link carries for each byte of a message.

    Returns:
        ``latency_s``, ``ramp_s_per_sqrt_byte``, ``bus_bytes_per_s`` and ``held_out``: n, median and worst error.

    Raises:
        ValueError: fewer than three sizes to fit.
    """
    known = [row for row in rows if not held_out(row["bytes"])]
    if len({row["bytes"] for row in known}) < 3:
        raise ValueError("three terms need three sizes at least")
    sizes, seconds = _columns(known)
    # Errors count relative to the time, so that a kilobyte and a gigabyte weigh alike.
    terms = _not_negative(_terms(sizes) / seconds[:, None])
    # Of small messages alone no rate can be told: the highest that was seen stands in.
    per_byte = terms[2] if terms[2] > 0 else float((seconds / sizes).min())
    told = np.array([*terms[:2], per_byte])
    sizes, seconds = _columns([row for row in rows if held_out(row["bytes"])])
    errors = _terms(sizes) @ told / seconds - 1.0
    order = np.argsort(np.abs(errors))
    return {
        "latency_s": short(told[0]),
        "ramp_s_per_sqrt_byte": short(told[1]),
        "bus_bytes_per_s": short(factor / told[2]),
        "held_out": {
            "n": len(errors),
            "median": short(float(np.median(np.abs(errors)))) if len(errors) else None,
            "worst": short(float(errors[order[-1]])) if len(errors) else None,
        },
    }


def _not_negative(columns: np.ndarray) -> np.ndarray:
    """The least squares of columns that should add up to 1, without negative coefficients: the best of any columns."""
    best, least = np.zeros(columns.shape[1]), np.inf
    for used in product((False, True), repeat=columns.shape[1]):
        some = np.flatnonzero(used)
        found = np.zeros(columns.shape[1])
        found[some] = np.linalg.lstsq(columns[:, some], np.ones(len(columns)), rcond=None)[0]
        misfit = float(((columns @ found - 1.0) ** 2).sum())
        if found.min() >= 0 and misfit < least:
            best, least = found, misfit
    return best


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(row["bytes"]) for row in rows]), np.array([row["median_s"] for row in rows])


def _terms(sizes: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(sizes), np.sqrt(sizes), sizes], axis=-1)
