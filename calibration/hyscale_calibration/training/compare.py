"""Where two runs differ first, and how far apart they get: from records alone, without torch."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

# Runs that are compared: those that should agree to the bit, then those whose additions have another order.
PAIRS = (
    ("megatron", "hyscale-one-query"),
    ("megatron", "hyscale"),
    ("megatron", "megatron/atomic"),
    ("megatron/atomic", "megatron/atomic/again"),
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
        ``steps``; ``first_difference``: of ``loss``, ``index_loss``, ``selected`` and ``weights`` the first step, from
        0, whose bits differ, None where none does; ``loss_difference``: the largest difference of losses over their
        mean, and the mean one.
    """
    steps = min(len(first["loss"]), len(second["loss"]))
    losses = [[number_of(bits) for bits in record["loss"][:steps]] for record in (first, second)]
    apart = [abs(a - b) / (abs(a + b) / 2 or 1.0) for a, b in zip(*losses, strict=True)]
    return {
        "steps": steps,
        "first_difference": {
            what: _first(first[what][:steps], second[what][:steps])
            for what in ("loss", "index_loss", "selected", "weights")
        },
        "loss_difference": {"largest": max(apart, default=0.0), "mean": sum(apart) / max(1, steps)},
    }


def comparisons(runs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``PAIRS`` of the runs that are there."""
    return [{"runs": [a, b]} | compare(runs[a], runs[b]) for a, b in PAIRS if a in runs and b in runs]


def _first(one: Sequence[Any], other: Sequence[Any]) -> int | None:
    return next((step for step, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
