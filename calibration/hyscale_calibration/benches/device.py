"""A CUDA GPU as a benchmark sees it: what it is, how long a run takes on it and how much memory."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch


class Gpu:
    """The current CUDA device."""

    name = "cuda"

    def description(self) -> dict[str, Any]:
        """What a measurement depends on besides its shape."""
        properties = torch.cuda.get_device_properties()
        try:
            triton = metadata.version("triton")
        except metadata.PackageNotFoundError:
            triton = None
        return {
            "name": properties.name,
            "sms": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
            "torch": torch.__version__,
            "triton": triton,
            "cuda": torch.version.cuda,
        }

    def milliseconds(self, run: Callable[[], object], samples: int, warm_up: int = 3) -> list[float]:
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

    def peak_bytes(self, run: Callable[[], object]) -> int:
        """Device memory at the peak of one run beyond what was allocated before, its result included."""
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
