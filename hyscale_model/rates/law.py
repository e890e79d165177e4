"""The time of a kernel as a function of its work: one form, which calibrations fit and predictions use.

    t = lag_s + launches x launch_s + P + max(T, C, G, A, L, S, B) + serial (the others of these)
    T = q x FLOP / (tensor peak x fraction) x (1 + sustained x)     by precision
    C, G, A, L = q x sum of amount x clocks / (SMs x clock)         by unit: CUDA cores, rows by index, atomics, chains
                                                                    of dependent steps
    S = amount x clocks / clock                                     of a program that works alone
    B, P = bytes / (HBM peak x fraction)                            beside the rest; in kernels before and after it
    q = time of whole turns of the SMs over that of work spread evenly
    x = T / (T + SUSTAINED_S): tensor cores at work for milliseconds draw so much power that clocks fall

T, C, G, A and L scale with the SMs in use. ``lag_s`` is of measurements alone: how far the host that queued a run was
behind the device. A training step keeps its host ahead, so predictions leave it out. Needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyscale_model.arrays import Number

PRECISIONS = ("bf16", "fp8")
# What units of work use, if not the CUDA cores: the path of rows that are read by index, and of atomic additions; steps
# that wait for each other; a program that works alone.
PATHS: Mapping[str, str] = {
    "gathered_bytes": "gather",
    "fresh_bytes": "gather",
    "atomics": "atomics",
    "shared_atomics": "atomics",
    "steps": "chain",
    "again": "alone",
}
# The CUDA cores; a path that a single program takes, so that one SM does its work.
CORES, ALONE = "cores", "alone"
# Of tensor work, half of whose clock loss a kernel shows on its own. In a step it shows all of it.
SUSTAINED_S = 3e-3
_SINGLE = ("hbm", "launch_s", "lag_s", "serial", "sustained")


def together(serial: Number, *times: Number) -> Number:
    """Time of resources that a kernel uses side by side: max + serial x (sum - max).

    ``serial`` is the share of the shorter times that nothing hides: 0 with perfect overlap, 1 with none.
    """
    longest, total = times[0], times[0]
    for time in times[1:]:
        longest, total = np.maximum(longest, time), total + time
    return longest + serial * (total - longest)


def by_path(units: Sequence[str]) -> dict[str, list[int]]:
    """Places of the units that use each path; paths in the order of their first unit."""
    found: dict[str, list[int]] = {}
    for place, unit in enumerate(units):
        found.setdefault(PATHS.get(unit, CORES), []).append(place)
    return found


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
        sustained: what tensor work takes longer once clocks have fallen; 0 where there is none.
        lag_s: of one measurement.
    """

    tensor: Mapping[str, float]
    clocks: Mapping[str, float]
    hbm: float
    launch_s: float
    serial: float
    sustained: float = 0.0
    lag_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Coefficients by name."""
        return {
            **{f"tensor.{precision}": value for precision, value in self.tensor.items()},
            **{f"clocks.{unit}": value for unit, value in self.clocks.items()},
            **{name: getattr(self, name) for name in _SINGLE if name != "sustained" or self.tensor},
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
        needed = set(_SINGLE) if kinds["tensor"] else set(_SINGLE) - {"sustained"}
        if set(single) != needed:
            raise ValueError(
                f"has {', '.join(sorted(single)) or 'nothing'} where {', '.join(sorted(needed))} should be"
            )
        return cls(tensor=kinds["tensor"], clocks=kinds["clocks"], **single)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Work of several runs, each attribute ``[runs]``; ``units``: ``[runs, units]`` in the order of a law's clocks.

    Attributes:
        precision: index into ``PRECISIONS``.
        passed_bytes: in kernels before and after, with nothing beside them.
        turns: whole turns of the SMs over work spread evenly, 1 or more.
        sms: SMs each run may use.
    """

    flops: np.ndarray
    precision: np.ndarray
    hbm_bytes: np.ndarray
    passed_bytes: np.ndarray
    units: np.ndarray
    launches: np.ndarray
    turns: np.ndarray
    sms: np.ndarray


def seconds(law: Law, work: Workload, peaks: Peaks) -> np.ndarray:
    """Times ``[runs]`` of runs on all or on some of a GPU's SMs, as they are measured."""
    rates = np.array([(peaks.tensor.get(name) or np.inf) * law.tensor.get(name, np.inf) for name in PRECISIONS])
    tensor = work.turns * work.flops / (rates[work.precision] * work.sms / peaks.sms)
    tensor = tensor * (1 + law.sustained * tensor / (tensor + SUSTAINED_S))
    clocks = np.array(list(law.clocks.values()))
    paths = [
        work.turns * (work.units[:, places] @ clocks[places]) / (peaks.hz * (1 if path == ALONE else work.sms))
        for path, places in by_path(tuple(law.clocks)).items()
    ]
    kernel: np.ndarray = together(law.serial, tensor, *paths, work.hbm_bytes / (peaks.hbm * law.hbm))
    return law.lag_s + work.launches * law.launch_s + work.passed_bytes / (peaks.hbm * law.hbm) + kernel
