"""Where two runs differ first, and how far apart they get: from records alone, without torch."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

# Runs that are compared: those that must agree to the bit, then those whose additions are others or in another order.
PAIRS = (
    ("megatron", "hyscale"),
    ("megatron", "hyscale/pairs"),
    ("megatron", "megatron/atomic"),
    ("megatron/atomic", "megatron/atomic/again"),
    ("megatron/atomic", "hyscale-one-query/atomic"),
    ("megatron/atomic", "hyscale/atomic"),
)


def bits_of(value: float) -> str:
    """An FP32 number as 8 hexadecimal digits."""
    return struct.pack(">f", value).hex()


def number_of(bits: str) -> float:
    """The number of ``bits_of``."""
    found: float = struct.unpack(">f", bytes.fromhex(bits))[0]
    return found


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two records of ``Record.runs``, over the steps that both have.

    Returns:
        ``first_step`` and ``steps`` that were compared; ``first_difference``: of ``loss``, ``index_loss``,
        ``selected`` and ``weights`` the first step whose bits differ, None where none does; ``loss_difference``: the
        largest difference of losses over their mean, and the mean one.
    """
    begin = max(first["first_step"], second["first_step"])
    end = max(begin, min(each["first_step"] + len(each["loss"]) for each in (first, second)))

    def both(series: str) -> list[tuple[Any, Any]]:
        one, other = (each[series][begin - each["first_step"] : end - each["first_step"]] for each in (first, second))
        return list(zip(one, other, strict=True))

    losses = [(number_of(a), number_of(b)) for a, b in both("loss")]
    apart = [abs(a - b) / (abs(a + b) / 2 or 1.0) for a, b in losses]
    return {
        "first_step": begin,
        "steps": end - begin,
        "first_difference": {
            series: next((begin + step for step, (a, b) in enumerate(both(series)) if a != b), None)
            for series in ("loss", "index_loss", "selected", "weights")
        },
        "loss_difference": {"largest": max(apart, default=0.0), "mean": sum(apart) / max(1, len(apart))},
    }


def comparisons(runs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``PAIRS`` of the runs that are there."""
    return [{"runs": [a, b]} | compare(runs[a], runs[b]) for a, b in PAIRS if a in runs and b in runs]
