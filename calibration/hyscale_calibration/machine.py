"""Where points are measured: a machine says what it is and measures points that share inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hyscale_calibration.point import Point


class MachineLost(RuntimeError):
    """The machine can measure nothing more; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point's times in milliseconds and what else was found beside them."""

    times_ms: Sequence[float]
    peak_bytes: int
    found: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A point that could not be measured, and why."""

    message: str


class Machine(Protocol):
    """What measures."""

    def identity(self) -> dict[str, Any]:
        """All that times depend on beside point and kernels: name, SMs, memory, driver, versions of libraries."""

    def measure(self, points: Sequence[Point]) -> Iterator[tuple[Point, Measured | Failed]]:
        """Results of points of one case, one at a time, each as soon as it is there.

        Raises:
            MachineLost: no further point can be measured.
        """
