"""The time of a kernel as a function of its work: one form, which calibrations fit and predictions use.

    t = launches x launch_s + max(T, S, B) + serial (T + S + B - max(T, S, B))
    T = q x FLOP / (tensor peak x fraction)           by precision
    S = q x sum of amount x clocks / (SMs x clock)    by unit of work
    B = bytes / (HBM peak x fraction)
    q = ceil(programs / SMs) x SMs / programs         the last turn of the SMs, which few programs share

T and S scale with the SMs in use. Needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyscale_model.arrays import Number

PRECISIONS = ("bf16", "fp8")


def together(serial: Number, *times: Number) -> Number:
    """Time of resources that a kernel uses side by side: max + serial x (sum - max).

    ``serial`` is the share of the shorter times that nothing hides: 0 with perfect overlap, 1 with none.
    """
    longest, total = times[0], times[0]
    for time in times[1:]:
        longest, total = np.maximum(longest, time), total + time
    return longest + serial * (total - longest)


def quantised(programs: Number, sms: Number) -> Number:
    """Time of whole turns of the SMs over that of the work spread evenly; 1 where ``programs`` is 0."""
    count = np.maximum(programs, 1e-9)
    return np.where(np.asarray(programs) > 0, np.ceil(count / sms) * sms / count, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a GPU has: FLOP/s of its tensor cores by precision (None: none), SMs and their clock, bytes/s of HBM."""

    tensor: Mapping[str, float | None]
    sms: int
    hz: float
    hbm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Coefficients of a family of kernels.

    Attributes:
        tensor: fraction of the tensor peak by precision; clocks: SM clocks of one unit of work, by unit.
        hbm: fraction of the HBM peak.
        launch_s: of one launch; serial: share of the shorter resources that is not hidden.
    """

    tensor: Mapping[str, float]
    clocks: Mapping[str, float]
    hbm: float
    launch_s: float
    serial: float

    def as_json(self) -> dict[str, Any]:
        """Coefficients by name."""
        return {
            **{f"tensor.{precision}": value for precision, value in self.tensor.items()},
            **{f"clocks.{unit}": value for unit, value in self.clocks.items()},
            "hbm": self.hbm,
            "launch_s": self.launch_s,
            "serial": self.serial,
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Law:
        """The reverse; ValueError for a coefficient that is missing, unknown or not positive."""
        kinds: dict[str, dict[str, float]] = {"tensor": {}, "clocks": {}}
        single: dict[str, float] = {}
        for name, value in values.items():
            kind, dot, rest = name.partition(".")
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < np.inf:
                raise ValueError(f"{name} is {value!r}, not a positive number")
            if dot and kind in kinds:
                kinds[kind][rest] = float(value)
            else:
                single[name] = float(value)
        if set(single) != {"hbm", "launch_s", "serial"}:
            raise ValueError(f"has {', '.join(sorted(single)) or 'nothing'} where hbm, launch_s and serial should be")
        return cls(tensor=kinds["tensor"], clocks=kinds["clocks"], **single)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Work of several runs, each attribute ``[runs]``; ``units``: ``[runs, units]`` in the order of a law's clocks.

    Attributes:
        precision: index into ``PRECISIONS``.
        sms: SMs each run may use.
    """

    flops: np.ndarray
    precision: np.ndarray
    hbm_bytes: np.ndarray
    units: np.ndarray
    launches: np.ndarray
    programs: np.ndarray
    sms: np.ndarray


def seconds(law: Law, work: Workload, peaks: Peaks) -> np.ndarray:
    """Times ``[runs]`` of runs on all or on some of a GPU's SMs."""
    rates = np.array([(peaks.tensor.get(name) or np.inf) * law.tensor.get(name, np.inf) for name in PRECISIONS])
    turns = quantised(work.programs, work.sms)
    tensor = turns * work.flops / (rates[work.precision] * work.sms / peaks.sms)
    clocks = np.array(list(law.clocks.values()))
    sm = turns * (work.units @ clocks) / (work.sms * peaks.hz) if len(clocks) else np.zeros_like(tensor)
    hbm = work.hbm_bytes / (peaks.hbm * law.hbm)
    kernel: np.ndarray = together(law.serial, tensor, sm, hbm)
    return work.launches * law.launch_s + kernel
