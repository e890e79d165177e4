"""A profile: what kernels of each family sustain, with a range and a source for every rate.

Form of an operation's time, in three resources that a kernel uses side by side:

    t = launches x launch_s + j (max(T, S, B) + s (T + S + B - max(T, S, B)))
    T = FLOP / (tensor peak x fraction), S = work / SM rate, B = bytes / (HBM peak x fraction)

s is the share of the shorter resources that a kernel does not hide behind the longest (``serial_share``), j what a
step takes over the sum of its kernels (``step_over_kernels``). A published rate of a whole kernel on an anchor GPU
holds both its tensor time and everything else; what the tensor cores do not explain of it is put on the SMs.
S scales to another GPU of the same architecture by SM count x boost clock; T by the tensor peak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.prediction import Origin
from hyscale_model.rates.law import Law
from hyscale_model.scenario.schema import Gpu

SCHEMA_VERSION = 1
# How the time of each resource carries over to another GPU of the architecture; docs/calibration.md has the reasons.
RULES: Mapping[str, str] = {
    "tensor": "scaled by the tensor peak",
    "sm": "scaled by SM count x clock",
    "hbm": "scaled by the bandwidth of its memory",
}


@dataclass(frozen=True, slots=True)
class Rate:
    """A positive number known up to a range, with its origin."""

    value: float
    low: float
    high: float
    origin: Origin

    @classmethod
    def parse(cls, entry: Mapping[str, Any], where: str) -> Rate:
        """Read ``{value, low, high, origin, source}``; InputError when the range does not hold the value."""
        try:
            value, low, high = (float(entry[key]) for key in ("value", "low", "high"))
            origin = Origin(str(entry["origin"]), str(entry["source"]))
        except KeyError as missing:
            raise InputError(
                f"rate lacks {missing}", field=where, expected="value, low, high, origin, source"
            ) from None
        if not 0 < low <= value <= high:
            raise InputError(
                f"range {low:g} to {high:g} does not hold {value:g}", field=where, expected="0 < low <= value <= high"
            )
        return cls(value, low, high, origin)

    def sample(self, uniform: np.ndarray) -> np.ndarray:
        """Map uniforms to the range: log-uniform on each side of the value, which is the median."""
        below = self.low * (self.value / self.low) ** (2.0 * uniform)
        above = self.value * (self.high / self.value) ** (2.0 * uniform - 1.0)
        return np.where(uniform < 0.5, below, above)


@dataclass(frozen=True, slots=True)
class TensorRate:
    """Fraction of the tensor peak that a family keeps.

    Attributes:
        below_flop_per_sm_clock: only for GPUs with fewer BF16 FLOP per SM and clock (H20: 958, H100: 3,784), where
            the tensor cores bind; infinity: all.
        precisions: only for these; empty: all.
        fraction: the fraction.
    """

    below_flop_per_sm_clock: float
    precisions: tuple[str, ...]
    fraction: Rate

    def applies(self, gpu: Gpu, precision: str) -> bool:
        """Whether the entry speaks of this GPU and precision."""
        intensity = gpu.bf16_flops / (gpu.sms * gpu.boost_hz)
        return intensity < self.below_flop_per_sm_clock and (not self.precisions or precision in self.precisions)


@dataclass(frozen=True, slots=True)
class SmRate:
    """Work a second of a whole kernel on the anchor GPU; ``unit``: flop, byte or atomic."""

    gpu: str
    unit: str
    rate: Rate
    fp8_ratio: float


# How far beyond the measured times a law still counts as measured, as a factor.
REACH = 4.0


@dataclass(frozen=True, slots=True)
class Fitted:
    """A law fitted to measurements on one GPU.

    Attributes:
        gpu: the GPU, by catalogue name; source: what was measured, for people.
        law: coefficients; error: measured over predicted time of a kernel.
        measured_s: shortest and longest time that was measured.
    """

    gpu: str
    source: str
    law: Law
    error: Rate
    measured_s: tuple[float, float]

    def is_beyond(self, seconds: Number) -> Number:
        """Whether times of kernels on this GPU lie outside what was measured."""
        low, high = self.measured_s
        return (seconds < low / REACH) | (seconds > high * REACH)

    def origin_on(self, gpu: Gpu, resource: str, beyond: bool) -> Origin:
        """The origin of a time on some GPU, bound by a resource; ``beyond``: outside what was measured on this one."""
        low, high = self.measured_s
        if gpu.name != self.gpu:
            rule = RULES[resource]
            return Origin("transferred", f"{self.source}, on {gpu.name} {rule}")
        if beyond:
            return Origin(
                "transferred", f"extrapolated: {self.source}, kernels of {low * 1e3:.3g} to {high * 1e3:.3g} ms"
            )
        return Origin("measured", self.source)


@dataclass(frozen=True, slots=True)
class Family:
    """Rates of one kernel family; a law that was fitted goes before them."""

    name: str
    tensor: tuple[TensorRate, ...]
    sm: SmRate | None
    fitted: Fitted | None = None

    def tensor_rate(self, gpu: Gpu, precision: str) -> TensorRate | None:
        """First entry for this GPU and precision."""
        return next((entry for entry in self.tensor if entry.applies(gpu, precision)), None)


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates of every family on one architecture."""

    name: str
    architecture: str
    hbm: Rate
    families: Mapping[str, Family]
    factors: Mapping[str, Rate]

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Profile:
        """Build a profile from its file's contents; InputError names what is wrong."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"profile has schema version {data.get('schema_version')}",
                field="schema_version",
                expected=str(SCHEMA_VERSION),
            )
        families = {name: _family(name, entry or {}) for name, entry in _mapping(data, "families").items()}
        factors = {name: Rate.parse(entry, f"factors.{name}") for name, entry in _mapping(data, "factors").items()}
        hbm = Rate.parse(data["hbm"][0], "hbm")
        return cls(str(data["name"]), str(data["architecture"]), hbm, families, factors)

    def family(self, name: str) -> Family:
        """The family of that name; UnpricedError where the profile has none."""
        try:
            return self.families[name]
        except KeyError:
            stem, _, variant = name.partition(".")
            known = sorted(other.partition(".")[2] for other in self.families if other.startswith(f"{stem}."))
            field = "systems.*.backend" if variant else "profile"
            expected = (
                f"one of {', '.join(known)}, or a profile with that rate" if known else "a profile with that family"
            )
            raise UnpricedError(f"profile {self.name} has no rate for {name}", field=field, expected=expected) from None


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, Mapping):
        raise InputError(f"profile lacks {key}", field=key, expected="a mapping")
    return value


def _family(name: str, entry: Mapping[str, Any]) -> Family:
    tensor = tuple(
        TensorRate(
            float(item.get("below_flop_per_sm_clock", math.inf)),
            tuple(item.get("precisions", ())),
            Rate.parse(item, f"families.{name}.tensor[{index}]"),
        )
        for index, item in enumerate(entry.get("tensor", ()))
    )
    raw = entry.get("sm")
    sm = None
    if raw:
        rate = Rate.parse(raw, f"families.{name}.sm")
        sm = SmRate(str(raw["gpu"]), str(raw["unit"]), rate, float(raw.get("fp8_ratio", 1.0)))
    return Family(name, tensor, sm)
