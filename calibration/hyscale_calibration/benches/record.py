"""Time a GPU operation and describe the measurement: the JSON form every benchmark writes."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


def device_description() -> dict[str, Any]:
    """What a measurement depends on besides its shape."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def milliseconds(run: Callable[[], object], samples: int = 20, warm_up: int = 3) -> list[float]:
    """Times of single runs by device events, after warm-up."""
    for _ in range(warm_up):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times


def row(
    name: str, dtype: str, shape: Mapping[str, Any], times: Sequence[float], traffic_bytes: float
) -> dict[str, Any]:
    """One result: median and spread in milliseconds, rate from ``traffic_bytes``."""
    ordered = sorted(times)

    def at(share: float) -> float:
        return ordered[round(share * (len(ordered) - 1))]

    return {
        "name": name,
        "dtype": dtype,
        "shape": dict(shape),
        "median_ms": at(0.5),
        "p10_ms": at(0.1),
        "p90_ms": at(0.9),
        "samples": len(ordered),
        "tb_per_s": traffic_bytes / at(0.5) / 1e9,
    }


def kernel_hash(*files: str | Path) -> str:
    """SHA-256 of what the code of source files means: written out again from syntax trees without docstrings.

    Comments and layout do not count, nor does the version of Python, whose trees differ.
    """
    digest = hashlib.sha256()
    for file in files:
        tree = ast.parse(Path(file).read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
                value = body[0].value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    del body[0]
        digest.update(ast.unparse(tree).encode())
    return digest.hexdigest()


def write(path: Path, rows: Sequence[Mapping[str, Any]], kernel_hash: str | None) -> None:
    """Write results; ``kernel_hash`` is None where the kernel is a library's."""
    record = {"device": device_description(), "kernel_hash": kernel_hash, "rows": list(rows)}
    path.write_text(json.dumps(record, indent=1) + "\n")
