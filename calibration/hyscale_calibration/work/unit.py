"""The work of one run of a kernel, and how SMs take it in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, log2
from typing import Any

BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
FP32, INT32 = 4, 4

Shape = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run of a kernel.

    Attributes:
        family: kernels that share coefficients.
        flops: on tensor cores; ``fp8``: of FP8 operands.
        hbm_bytes: fewest bytes that cross HBM; passed_bytes: in kernels before and after, such as zeroing and casts.
        units: further work in the SMs by unit.
        launches: kernels launched; waits: whether the host waits for the device before it has queued all of them.
        turns: SMs -> time of whole turns of them over work spread evenly; None where a kernel spreads by itself.
        unit_turns: the same of single units, where one of several kernels takes turns.
    """

    family: str
    flops: float = 0.0
    fp8: bool = False
    hbm_bytes: float = 0.0
    passed_bytes: float = 0.0
    units: Mapping[str, float] = field(default_factory=dict)
    launches: float = 1.0
    waits: bool = False
    turns: Callable[[float], float] | None = None
    unit_turns: Mapping[str, Callable[[float], float]] = field(default_factory=dict)


def in_turns(programs: float) -> Callable[[float], float]:
    """Of equal programs that SMs take in turns."""
    return lambda sms: ceil(programs / sms) * sms / programs


def unique(picks: float, rows: float) -> float:
    """Mean number of different rows among ``picks`` of ``rows``, drawn alike."""
    return rows * (1.0 - exp(-picks / rows))


def filled(count: float) -> float:
    """The power of two that holds ``count``, 16 at least."""
    return float(2.0 ** ceil(max(4.0, log2(count))))
