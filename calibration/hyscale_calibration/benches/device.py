"""A CUDA GPU as a benchmark sees it: what it is, how long a run takes on it and how much memory."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch

# What is written between two runs, over the size of the L2 cache: the inputs of a run then come from memory.
EVICTED = 2
# Clocks that the device waits after that, some tenths of a millisecond: all launches of a run are queued by then.
LEAD = 800_000
# Of the reasons that NVML gives for a clock below the highest: power cap, thermal limits and power brake.
SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


class Gpu:
    """The current CUDA device."""

    name = "cuda"

    def __init__(self) -> None:
        self._other: torch.Tensor | None = None

    def description(self) -> dict[str, Any]:
        """What a measurement depends on besides its shape."""
        properties = torch.cuda.get_device_properties()
        return {
            "name": properties.name,
            "sms": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
            "torch": torch.__version__,
            "triton": _version("triton"),
            "cuda": torch.version.cuda,
        }

    def milliseconds(self, run: Callable[[], object], samples: int, warm_up: int = 3) -> list[float]:
        """Times of single runs by device events, after warm-up, each with inputs that the L2 cache has lost.

        The device is kept busy while a run is queued, so that no launch waits for the host.
        """
        for _ in range(warm_up):
            run()
        torch.cuda.synchronize()
        times = []
        for _ in range(samples):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._evict()
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        return times

    def _evict(self) -> None:
        if self._other is None:
            size = EVICTED * torch.cuda.get_device_properties().L2_cache_size
            self._other = torch.empty(size, device=self.name, dtype=torch.uint8)
        self._other.zero_()
        torch.cuda._sleep(LEAD)

    def peak_bytes(self, run: Callable[[], object]) -> int:
        """Device memory at the peak of one run beyond what was allocated before, its result included."""
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def clocks(self) -> dict[str, Any]:
        """SM clock in MHz and whether power or heat hold it down, as the driver says now; None without its library."""
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(_bus_id())
            mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except Exception:
            # A library that is missing, of another driver or not allowed here: the measurement itself is as good.
            return {"clock_mhz": None, "throttled": None}
        return {"clock_mhz": int(mhz), "throttled": bool(reasons & SLOWED)}

    def driver(self) -> str | None:
        """The version of the driver; None without NVML."""
        try:
            import pynvml

            pynvml.nvmlInit()
            found = pynvml.nvmlSystemGetDriverVersion()
        except Exception:
            return None
        return found.decode() if isinstance(found, bytes) else str(found)


def _bus_id() -> bytes:
    properties = torch.cuda.get_device_properties()
    parts = (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
    return "{:08x}:{:02x}:{:02x}.0".format(*parts).encode()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
