"""What a benchmark is: an operation, the cases it is measured at, and the measurements of a case.

An operation only says what to check and what to run. Checking before timing, the times and the record are the
runner's, the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

Shape = Mapping[str, Any]


class CheckFailed(ValueError):
    """A kernel computes something else than its oracle."""


class CannotRun(Exception):
    """A measurement that this GPU cannot make, such as a tile that does not fit its memory; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A shape worth measuring, with a name for people."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row of the results.

    Attributes:
        name: name of the row.
        shape: all that the time depends on: the shape of the case and what is measured at it, such as a tile.
        check: compares with an oracle, on inputs as small as it likes; runs before ``run`` is timed. Returns further
            fields of the row, such as the error found. Raises CheckFailed, or CannotRun.
        run: what is timed. Allocates what it needs and returns it, so that its memory counts.
        flop: floating-point operations of one run; traffic_bytes: bytes that it must read and write at least. One of
            the two is needed: it is what the rate is made of.
    """

    name: str
    shape: Shape
    check: Callable[[], Mapping[str, Any]]
    run: Callable[[], object]
    flop: float | None = None
    traffic_bytes: float | None = None

    def __post_init__(self) -> None:
        if self.flop is None and self.traffic_bytes is None:
            raise ValueError(f"{self.name} tells neither its FLOP nor its bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that is missing, and why."""

    name: str
    reason: str


Measurements = Generator[Measurement | Skipped, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A benchmark.

    Attributes:
        name: of the module, of ``--op`` and of the recorded file.
        description: one line.
        sources: files of its kernels relative to ``hyscale_kernels``, with those they import; none where the kernel is
            a library's. Results are stale once one of them changes.
        dtypes: types of the inputs it is measured with.
        cases: shapes, all with the same keys.
        trial: values in place of a case's that a CPU is done with at once; tests run them.
        measure: (shape, dtype, device) -> measurements, one at a time. What it holds between two of them, memory or a
            context manager, lasts while they are timed. May raise CannotRun, which skips the rest of the case.
        samples: runs that are timed unless ``--samples`` says otherwise.
    """

    name: str
    description: str
    dtypes: tuple[str, ...]
    cases: tuple[Case, ...]
    trial: Shape
    measure: Callable[[Shape, str, str], Measurements]
    sources: tuple[str, ...] = field(default=())
    samples: int = 20


def peer(name: str, module: str) -> ModuleType | Skipped:
    """An optional library to compare with, or the notice that the row ``name`` is skipped; yield that one as it is."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return Skipped(name=name, reason=f"{module} is not installed")
        return Skipped(name=name, reason=f"{module} does not import: {error}")
    # A library that is installed but does not fit the rest fails in ways of its own.
    except Exception as error:
        return Skipped(name=name, reason=f"{module} does not import: {type(error).__name__}: {error}")
