"""Numbers as text, each with its unit. GB (1e9) belongs to rates, GiB (2^30) to memory; they never mix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

GIB = 2**30
MIB = 2**20
NOTHING = "-"


def finite(value: Any) -> float:
    """``value`` as a float.

    Raises:
        ValueError: it is NaN or infinite; showing it would pass for a result.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"not a finite number: {number}")
    return number


def significant(value: Any, digits: int = 4) -> str:
    """A plain decimal with ``digits`` significant digits, thousands separated, never an exponent."""
    number = finite(value)
    if number == 0:
        return "0"
    # Rounding first: 9.9996 has five characters in front of it only after it became 10.
    exponent = math.floor(math.log10(abs(float(f"{number:.{digits - 1}e}"))))
    return f"{number:,.{max(0, digits - 1 - exponent)}f}"


def seconds(value: Any) -> str:
    """A duration in the unit that reads best: ns, us, ms or s."""
    number = finite(value)
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(number) >= scale:
            return f"{significant(number / scale)} {unit}"
    return "0 s" if number == 0 else f"{significant(number / 1e-9, 2)} ns"


def gib(value: Any) -> str:
    """Memory in GiB; below a tenth of one in MiB."""
    number = finite(value)
    if number and abs(number) < 0.1 * GIB:
        return f"{number / MIB:,.1f} MiB"
    return f"{number / GIB:,.1f} GiB"


def gb_per_s(value: Any) -> str:
    """A bandwidth in GB/s, 1e9 bytes each."""
    return f"{significant(finite(value) / 1e9)} GB/s"


def count(value: Any) -> str:
    """A whole number with thousands separated; a fraction keeps four significant digits."""
    number = finite(value)
    return f"{number:,.0f}" if number == round(number) or abs(number) >= 1000 else significant(number)


def tokens(length: int) -> str:
    """A length of sequences as people say it: 128K, 1M."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if length >= size and length % size == 0:
            return f"{length // size}{letter}"
    return count(length)


def percent(value: Any) -> str:
    """A share of one, in per cent."""
    return f"{100 * finite(value):.1f} %"


def signed_percent(value: Any) -> str:
    """An error relative to one, in per cent, with its sign."""
    return f"{100 * finite(value):+.1f} %"


def ratio(value: Any) -> str:
    """How many times: ``2.07x``."""
    return f"{finite(value):.2f}x"


def money(value: Any) -> str:
    """US dollars."""
    return f"${finite(value):,.0f}"


def or_nothing(value: Any, show: Callable[[Any], str]) -> str:
    """``show(value)``, or a dash where there is no value."""
    return NOTHING if value is None else show(value)


def nominal(value: Any) -> Any:
    """The nominal value of a distribution, or the plain number itself; None where there is neither."""
    if isinstance(value, Mapping):
        return value.get("nominal", value.get("p50"))
    return value


def interval(value: Any, show: Callable[[Any], str]) -> str:
    """``p10 to p90`` of a distribution, or a dash where it has none."""
    if not isinstance(value, Mapping) or value.get("p10") is None or value.get("p90") is None:
        return NOTHING
    low, high = show(value["p10"]), show(value["p90"])
    number, _, unit = low.partition(" ")
    # One unit for both ends reads better, and is right only when it is the same one.
    return f"{number} to {high}" if unit and high.endswith(f" {unit}") else f"{low} to {high}"


def unit_of(metric: str) -> Callable[[Any], str]:
    """How to show the value of a metric, from the unit in its name (a path in the JSON of a result)."""
    parts = [part for part in metric.split(".") if part not in ("nominal", "p10", "p50", "p90")]
    for part in reversed(parts):
        if "speedup" in part or part.endswith("ratio"):
            return ratio
        if "share" in part or "utilization" in part:
            return percent
        if part.endswith("_bytes_per_s"):
            return gb_per_s
        if part.endswith("_bytes"):
            return gib
        if part.endswith("_ms"):
            return lambda value: f"{significant(value)} ms"
        if part.endswith("_gib"):
            return lambda value: f"{significant(value)} GiB"
        if part.startswith("cost"):
            return money
        if part.endswith("_s") and not part.endswith("_per_s"):
            return seconds
    return significant
