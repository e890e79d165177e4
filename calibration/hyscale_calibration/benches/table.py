"""The table that a benchmark prints while it measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_calibration.benches.operation import Shape

_NAME, _DTYPE, _SHAPE, _TIME, _SPREAD, _RATE = 28, 6, 46, 10, 19, 22


class Table:
    """Lines of results. What all cases share is told once, above them."""

    def __init__(self, shapes: Sequence[Shape], ceilings: Mapping[str, float | None]) -> None:
        first, *others = shapes
        self.shared = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
        self.ceilings = ceilings

    def head(self) -> list[str]:
        """What is shared, and the titles of the columns."""
        titles = (
            f"{'row':{_NAME}} {'dtype':{_DTYPE}} {'shape':{_SHAPE}} {'median ms':>{_TIME}} {'p10 to p90':>{_SPREAD}} "
            f"{'TFLOP/s':>{_RATE}} {'TB/s':>{_RATE}} {'peak GiB':>9}"
        )
        return [f"all at {describe(self.shared)}", titles] if self.shared else [titles]

    def line(self, result: Mapping[str, Any]) -> str:
        """One result."""
        own = {key: value for key, value in result["shape"].items() if self.shared.get(key, ...) != value}
        spread = f"{result['p10_ms']:.3f} to {result['p90_ms']:.3f}"
        flops = _rate(result.get("tflops"), ".1f", share_of_ceiling(result, "tflops", self.ceilings))
        memory = _rate(result.get("tb_per_s"), ".3f", share_of_ceiling(result, "tb_per_s", self.ceilings))
        return (
            f"{result['name']:{_NAME}} {result['dtype']:{_DTYPE}} {describe(own):{_SHAPE}} "
            f"{result['median_ms']:{_TIME}.3f} {spread:>{_SPREAD}} {flops:>{_RATE}} {memory:>{_RATE}} "
            f"{result['peak_bytes'] / 2**30:9.3f}"
        )


def share_of_ceiling(result: Mapping[str, Any], rate: str, ceilings: Mapping[str, float | None]) -> float | None:
    """A row's ``tflops`` over a matrix product of its type, or its ``tb_per_s`` over a copy; None without either."""
    ceiling = ceilings.get("copy_tb_per_s" if rate == "tb_per_s" else f"{result['dtype']}_tflops")
    return None if ceiling is None or rate not in result else result[rate] / ceiling


def describe(shape: Shape) -> str:
    """``n=8192 L=1048576``, without what is left to its default."""
    return " ".join(f"{key}={value}" for key, value in shape.items() if value is not None)


def describe_ceilings(ceilings: Mapping[str, float | None]) -> str:
    """One line."""
    told = {
        "copy_tb_per_s": ("device copy", "TB/s", ".2f"),
        "bf16_tflops": ("BF16 8192^3 product", "TFLOP/s", ".0f"),
        "fp8_tflops": ("FP8 8192^3 product", "TFLOP/s", ".0f"),
    }
    parts = []
    for key, (name, unit, digits) in told.items():
        value = ceilings.get(key)
        parts.append(f"{name} not on this card" if value is None else f"{name} {value:{digits}} {unit}")
    return f"ceilings: {', '.join(parts)}"


def _rate(value: float | None, digits: str, share: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:{digits}}" if share is None else f"{value:{digits}} ({share:4.0%} of max)"
