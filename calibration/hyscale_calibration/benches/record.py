"""The JSON form of results, the same for every operation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hyscale_calibration.benches.operation import Measurement, Operation, Skipped
from hyscale_calibration.kernel_hash import hash_of_sources


def median_and_spread(times_ms: Sequence[float]) -> dict[str, Any]:
    """Median, first and last decile, each the nearest of the times, and how many there are."""
    ordered = sorted(times_ms)

    def at(share: float) -> float:
        return ordered[round(share * (len(ordered) - 1))]

    return {"median_ms": at(0.5), "p10_ms": at(0.1), "p90_ms": at(0.9), "samples": len(ordered)}


def row(
    measurement: Measurement, dtype: str, times_ms: Sequence[float], peak_bytes: int, checked: Mapping[str, Any]
) -> dict[str, Any]:
    """One result: times in milliseconds, peak memory, rates at the median time and what the check found."""
    times = median_and_spread(times_ms)
    result = {"name": measurement.name, "dtype": dtype, "shape": dict(measurement.shape), **times}
    result["peak_bytes"] = peak_bytes
    seconds = times["median_ms"] * 1e-3
    if measurement.flop is not None:
        result["tflops"] = measurement.flop / seconds / 1e12
    if measurement.traffic_bytes is not None:
        result["tb_per_s"] = measurement.traffic_bytes / seconds / 1e12
    return {**result, **checked}


def record(
    operation: Operation,
    device: Mapping[str, Any],
    ceilings: Mapping[str, float | None],
    rows: Sequence[Mapping[str, Any]],
    skipped: Sequence[Skipped],
) -> dict[str, Any]:
    """All that is written of an operation; ``kernel_hash`` is None where the kernel is a library's."""
    return {
        "device": dict(device),
        "kernel_hash": hash_of_sources(operation.sources),
        "sources": list(operation.sources),
        "ceilings": dict(ceilings),
        "skipped": [asdict(each) for each in skipped],
        "rows": list(rows),
    }


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write results as JSON that diffs well."""
    path.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
