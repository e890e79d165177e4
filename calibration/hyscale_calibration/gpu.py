"""Measures points on the current CUDA device by the benchmarks of their operations."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from hyscale_calibration.benches import registry
from hyscale_calibration.benches.arguments import UsageError
from hyscale_calibration.benches.operation import Measurement, Skipped
from hyscale_calibration.benches.topk_torch import partition
from hyscale_calibration.machine import Failed, MachineLost, Measured
from hyscale_calibration.plan import FEWEST_SAMPLES, MOST_SAMPLES, SAMPLING_S
from hyscale_calibration.point import Point

# Messages of CUDA and of compilers run to pages.
LONGEST_MESSAGE = 400
# Times of other ways of timing are not those of this one: profiles tell them apart.
TIMING = "L2 evicted, host ahead"


class GpuMachine:
    """The current device of torch.

    Args:
        device: times runs (``benches.device.Gpu``).
        synchronize: waits for the device and raises where it is beyond use.
        release: frees what earlier points left in memory.
    """

    def __init__(self, device: Any, synchronize: Callable[[], None], release: Callable[[], None]) -> None:
        self._device, self._synchronize, self._release = device, synchronize, release

    @classmethod
    def current(cls) -> GpuMachine:
        """The current CUDA device.

        Raises:
            UsageError: torch is missing, or sees no CUDA GPU.
        """
        from hyscale_calibration.benches.__main__ import find_gpu

        device = find_gpu()
        import torch

        return cls(device, torch.cuda.synchronize, torch.cuda.empty_cache)

    def identity(self) -> dict[str, Any]:
        """What the device and its software are, and how runs are timed."""
        return {**self._device.description(), "driver": self._device.driver(), "timing": TIMING}

    def measure(self, points: Sequence[Point]) -> Iterator[tuple[Point, Measured | Failed]]:
        """Each point is checked, then timed; what goes wrong with one of them is its result."""
        wanted = {point.row: point for point in points}
        first = points[0]
        try:
            with (
                partition(first.sms),
                closing(
                    registry.load(first.operation).measure(first.shape, first.dtype, self._device.name)
                ) as measurements,
            ):
                for found in measurements:
                    point = wanted.pop(found.name, None)
                    if point is not None:
                        yield point, self._one(found)
                    if not wanted:
                        break
            message = "the benchmark does not have this row at this shape"
        except MachineLost:
            raise
        except Exception as error:
            message = self._told(error)
        yield from ((point, Failed(message=message)) for point in wanted.values())
        gc.collect()
        self._release()

    def _one(self, found: Measurement | Skipped) -> Measured | Failed:
        if isinstance(found, Skipped):
            return Failed(message=found.reason)
        try:
            checked = found.check()
            # Compiled by the check or by the first of these; the next tells how many repetitions there is time for.
            (once,) = self._device.milliseconds(found.run, samples=1, warm_up=2)
            samples = int(min(max(SAMPLING_S * 1e3 / max(once, 1e-3), FEWEST_SAMPLES), MOST_SAMPLES))
            times = self._device.milliseconds(found.run, samples=samples, warm_up=0)
            clocks = self._device.clocks()
            return Measured(times_ms=times, peak_bytes=self._device.peak_bytes(found.run), found={**checked, **clocks})
        except Exception as error:
            return Failed(message=self._told(error))

    def _told(self, error: Exception) -> str:
        """One line; a device that is beyond use ends the run."""
        message = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_MESSAGE]
        try:
            self._synchronize()
        except Exception as lost:
            raise MachineLost(
                f"the device cannot go on after {message}. What was measured is kept: run again with --resume"
            ) from lost
        # Tensors of the failed run are held by the traceback.
        error.__traceback__ = None
        gc.collect()
        self._release()
        return message


__all__ = ["GpuMachine", "UsageError"]
