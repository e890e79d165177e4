"""A calibration: measures the points of a plan that are missing in a profile and writes each one down at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from hyscale_calibration import profile_file
from hyscale_calibration.benches.record import median_and_spread
from hyscale_calibration.machine import Failed, Machine, Measured
from hyscale_calibration.point import Point
from hyscale_calibration.profile_file import ProfileError


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What progress is told of: a result, how many points are through, and about how long the rest takes."""

    point: Point
    result: Measured | Failed
    done: int
    total: int
    left_s: float


@dataclass(slots=True)
class Session:
    """Measures into one profile.

    Args:
        machine: what measures.
        path: the profile's file; exists only if ``resume`` was said.
        say: is told each step.
        clock: seconds, for time limits.
    """

    machine: Machine
    path: Path
    say: Callable[[Step], None]
    clock: Callable[[], float] = time.monotonic
    profile: dict[str, Any] = field(default_factory=dict)
    _machine_key: str = ""

    def begin(self, operations: Sequence[str], *, resume: bool) -> None:
        """A new profile, or the one that is there.

        Raises:
            ProfileError: there is one and ``resume`` was not said, it cannot be read, or it is of another GPU or of
                other kernels.
        """
        identity = self.machine.identity()
        self._machine_key = profile_file.machine_key(identity)
        hashes = profile_file.kernel_hashes(operations)
        if not self.path.exists():
            name = self.path.name.removesuffix(".json")
            self.profile = profile_file.empty(name, profile_file.catalogue_name(identity))
        else:
            if not resume:
                raise ProfileError(f"{self.path}: exists; --resume continues it, --output names another file")
            self.profile = profile_file.read(self.path)
            for other in self.profile["machines"].values():
                if (other["name"], other["sms"]) != (identity["name"], identity["sms"]):
                    raise ProfileError(
                        f"{self.path}: holds {other['name']} with {other['sms']} SMs, this is {identity['name']} with "
                        f"{identity['sms']}; name another file with --output"
                    )
            changed = [
                name for name, now in hashes.items() if name in (held := self.profile["kernels"]) and held[name] != now
            ]
            if changed:
                raise ProfileError(
                    f"{self.path}: {', '.join(changed)} was measured with kernels that changed since; "
                    "name another file with --output, or take out those measurements"
                )
        self.profile["machines"][self._machine_key] = identity
        self.profile["kernels"] |= hashes
        profile_file.write(self.path, self.profile)

    def run(self, points: Sequence[Point], *, max_seconds: float | None = None) -> bool:
        """Measure what is missing, in order; whether all of it was.

        A point that failed before is tried again. No case begins that would end behind ``max_seconds`` by its
        estimate and the pace so far.

        Raises:
            MachineLost: the machine can measure nothing more; what was measured is written.
        """
        known = {entry["id"] for entry in self.profile["measurements"]}
        missing = [point for point in points if point.id not in known]
        cases = [tuple(group) for _, group in groupby(missing, key=lambda point: point.case)]
        began, estimated, done = self.clock(), 0.0, 0
        for case in cases:
            needed = sum(point.estimate_s for point in case)
            spent = self.clock() - began
            pace = spent / estimated if estimated > 0 else 1.0
            if max_seconds is not None and spent + needed * max(pace, 0.2) > max_seconds:
                return False
            for point, result in self.machine.measure(case):
                done += 1
                estimated += point.estimate_s
                self._keep(point, result)
                spent = self.clock() - began
                pace = spent / estimated if estimated > 0 else 1.0
                left = sum(other.estimate_s for other in missing[done:]) * pace
                self.say(Step(point=point, result=result, done=done, total=len(missing), left_s=left))
        return True

    def _keep(self, point: Point, result: Measured | Failed) -> None:
        profile = self.profile
        profile["failed"] = [entry for entry in profile["failed"] if entry["id"] != point.id]
        if isinstance(result, Failed):
            profile["failed"].append({"id": point.id, "message": result.message})
        else:
            profile["measurements"].append(
                {
                    "id": point.id,
                    "operation": point.operation,
                    "row": point.row,
                    "dtype": point.dtype,
                    "shape": dict(point.shape),
                    "sms": point.sms,
                    "part": point.part,
                    "machine": self._machine_key,
                    **median_and_spread(result.times_ms),
                    "peak_bytes": result.peak_bytes,
                    **result.found,
                }
            )
        profile_file.write(self.path, profile)
