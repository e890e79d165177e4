"""Measure an operation: check each measurement, then time it, and tell about it at once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from hyscale_calibration.benches.operation import CannotRun, Case, CheckFailed, Measurement, Operation, Skipped
from hyscale_calibration.benches.record import record, row
from hyscale_calibration.benches.table import Table, describe

# How the notice of what an interrupted run did not measure begins.
INTERRUPTED = "interrupted"


class Device(Protocol):
    """What runs and times measurements; see ``device.Gpu``."""

    name: str

    def description(self) -> dict[str, Any]:
        """What a measurement depends on besides its shape."""

    def milliseconds(self, run: Callable[[], object], samples: int) -> list[float]:
        """Times of single runs."""

    def peak_bytes(self, run: Callable[[], object]) -> int:
        """Memory at the peak of one run beyond what was allocated before."""


class Failed(Exception):
    """A measurement that is wrong or ended in an error; the message names its case."""


def measure(
    operation: Operation,
    cases: Sequence[Case],
    dtypes: Iterable[str],
    *,
    device: Device,
    ceilings: Mapping[str, float | None],
    samples: int | None = None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Everything there is to record of an operation; interrupted, what was measured until then, and what was not.

    Raises:
        Failed: a check failed, an error came up, or nothing could be measured.
        KeyboardInterrupt: interrupted before anything was measured.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    samples = samples or operation.samples
    table = Table([case.shape for case in cases], ceilings)
    say(f"{operation.name}: {operation.description}")
    for line in table.head():
        say(line)
    dtypes = tuple(dtypes)
    left = [(case, dtype) for case in cases for dtype in dtypes]
    try:
        while left:
            for result in _measure_case(operation, *left[0], device, samples):
                if isinstance(result, Skipped):
                    skipped.append(result)
                    say(f"SKIPPED {result.name}: {result.reason}")
                else:
                    rows.append(result)
                    say(table.line(result))
            del left[0]
    except KeyboardInterrupt:
        # An hour of measuring is not lost for the last minute.
        if not rows:
            raise
        missing = ", ".join(f"{case.name} ({dtype})" for case, dtype in left)
        skipped.append(Skipped(name=operation.name, reason=f"{INTERRUPTED}: all or part of {missing}"))
        say(f"SKIPPED {skipped[-1].name}: {skipped[-1].reason}")
    if not rows:
        raise Failed(f"{operation.name}: nothing could be measured")
    return record(operation, device.description(), ceilings, rows, skipped)


def _measure_case(
    operation: Operation, case: Case, dtype: str, device: Device, samples: int
) -> Iterable[dict[str, Any] | Skipped]:
    """Rows of one case. What it holds on the device is free again afterwards."""
    where = f"{operation.name}, {case.name}, {dtype}"
    try:
        # Closed even when a check fails, so that a measurement's context managers end.
        with closing(operation.measure(case.shape, dtype, device.name)) as measurements:
            for found in measurements:
                if isinstance(found, Skipped):
                    yield found
                    continue
                where = f"{operation.name}, {case.name}, {dtype}, {found.name} at {describe(found.shape)}"
                yield _measure_one(found, dtype, device, samples)
    except CannotRun as error:
        yield Skipped(name=operation.name, reason=f"{dtype}, {describe(case.shape)}: {error}")
    except CheckFailed as error:
        raise Failed(f"{where}: check failed: {error}") from error
    except Exception as error:
        details = "".join(traceback.format_exception(error))
        raise Failed(f"{where}: {type(error).__name__}: {error}\n{details}") from error


def _measure_one(measurement: Measurement, dtype: str, device: Device, samples: int) -> dict[str, Any] | Skipped:
    try:
        checked = measurement.check()
        times = device.milliseconds(measurement.run, samples)
        return row(measurement, dtype, times, device.peak_bytes(measurement.run), checked)
    except CannotRun as error:
        return Skipped(name=measurement.name, reason=f"{dtype}, {describe(measurement.shape)}: {error}")
