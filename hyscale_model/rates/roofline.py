"""Seconds of operations on a GPU: the roofline of a profile, with draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.prediction import ORIGINS, Origin
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.profile import Family, Profile, Rate
from hyscale_model.scenario.schema import Gpu

RESOURCES = ("tensor", "sm", "hbm")


def together(serial: Number, *times: np.ndarray) -> np.ndarray:
    """Time of resources that a kernel uses side by side: max + serial x (sum - max).

    ``serial`` is the share of the shorter times that nothing hides: 0 with perfect overlap, 1 with none.
    """
    longest, total = times[0], times[0]
    for time in times[1:]:
        longest, total = np.maximum(longest, time), total + time
    return longest + serial * (total - longest)


def rest_of(whole: np.ndarray, known: np.ndarray, serial: Number) -> np.ndarray:
    """The time x with together(serial, x, known) = whole; 0 where ``known`` alone takes as long."""
    longer = whole - serial * known
    shorter = np.maximum(whole - known, 0.0) / serial
    return np.where(longer >= known, longer, shorter)


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Times of a list of operations.

    Attributes:
        seconds: time of each with launches, arrays that broadcast to (points, draws).
        nominal_s: the same at the nominal point.
        floor_s: nominal lower bound at the peaks of the GPU (tensor peak and HBM peak, launches free).
        binding: index into ``RESOURCES`` of what binds at the nominal point.
        origins: where the binding rate of each operation comes from.
    """

    seconds: tuple[np.ndarray, ...]
    nominal_s: list[float]
    floor_s: list[float]
    binding: list[int]
    origins: tuple[Origin, ...]


class Rates:
    """A profile on one GPU, sampled: factors, and seconds of operations."""

    def __init__(self, profile: Profile, gpu: Gpu, draws: Draws, gpu_named: Callable[[str], Gpu]) -> None:
        if profile.architecture != gpu.architecture:
            raise UnpricedError(
                f"profile {profile.name} holds {profile.architecture} rates, {gpu.name} is {gpu.architecture}",
                field="profile",
                expected=f"a profile of {gpu.architecture}; kept efficiency does not carry over between architectures",
            )
        self.profile, self.gpu, self.draws, self._gpu_named = profile, gpu, draws, gpu_named
        self._inverse: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        # By family and the identity of a precision array, which is held so that no other can take it over.
        self._mixed: dict[tuple[str, int], tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]] = {}
        self.hbm_bytes_per_s = gpu.hbm_bytes_per_s * self._sample("hbm", profile.hbm)
        self.launch_s = self.factor("launch_s")
        self.serial = self.factor("serial_share")

    def _sample(self, name: str, rate: Rate) -> np.ndarray:
        return _sampled(rate, name, self.draws)

    def factor(self, name: str) -> np.ndarray:
        """A sampled factor of the profile, shape (1, draws + 1)."""
        try:
            rate = self.profile.factors[name]
        except KeyError:
            raise UnpricedError(f"profile {self.profile.name} has no factor {name}", field="profile") from None
        return self._sample(f"factor.{name}", rate)

    def peak_flops(self, precision: str) -> float:
        """Tensor peak of the GPU in FLOP/s."""
        return _peak(self.gpu, precision)

    def _inverse_rates(self, name: str, precision: str) -> tuple[np.ndarray, np.ndarray]:
        """Seconds per FLOP on the tensor cores and per unit of SM work, shape (1, draws + 1); 0: not used."""
        key = (name, precision)
        if key not in self._inverse:
            family = self.profile.family(name)
            self._inverse[key] = (
                self._inverse_tensor(family, self.gpu, precision),
                self._inverse_sm(family, precision),
            )
        return self._inverse[key]

    def _inverse_tensor(self, family: Family, gpu: Gpu, precision: str) -> np.ndarray:
        entry = family.tensor_rate(gpu, precision)
        if entry is None:
            return np.zeros((1, 1))
        return 1.0 / (_peak(gpu, precision) * self._sample(f"{family.name}.tensor", entry.fraction))

    def _inverse_sm(self, family: Family, precision: str) -> np.ndarray:
        if family.sm is None:
            return np.zeros((1, 1))
        anchor = self._gpu_named(family.sm.gpu)
        rest: np.ndarray = 1.0 / self._sample(f"{family.name}.sm", family.sm.rate)
        if family.sm.unit == "flop":
            tensor = self._inverse_tensor(family, anchor, "bf16")
            rest = rest_of(rest, tensor, self.serial)
        rest = rest * (anchor.sms * anchor.boost_hz) / (self.gpu.sms * self.gpu.boost_hz)
        if anchor.name != self.gpu.name:
            rest = rest / self.factor("transfer")
        return rest / (family.sm.fp8_ratio if precision == "fp8" else 1.0)

    def times(self, operations: Sequence[Operation]) -> OperationTimes:
        """Seconds, floors and what binds, for all operations at once."""
        inverse = [self._mixed_inverse(operation) for operation in operations]
        computing = [row for row, pair in enumerate(inverse) if pair is not None]
        # Operations that only move bytes need no maximum.
        seconds = [self._streaming(operation) for operation in operations]
        nominal = np.zeros((len(RESOURCES), len(operations)))
        nominal[2] = [_first(operation.hbm_bytes) for operation in operations] / self.hbm_bytes_per_s[0, 0]
        if computing:
            some = [operations[row] for row in computing]
            pairs = [pair for pair in inverse if pair is not None]
            flops = _stack([operation.flops for operation in some])
            tensor = flops * _stack([pair[0] for pair in pairs])
            sm = _stack([op.flops if op.sm_work is None else op.sm_work for op in some]) * _stack([p[1] for p in pairs])
            hbm = _stack([operation.hbm_bytes for operation in some]) / self.hbm_bytes_per_s
            nominal[0, computing], nominal[1, computing] = tensor[:, 0, 0], sm[:, 0, 0]
            for row, value in zip(computing, together(self.serial, tensor, sm, hbm), strict=True):
                seconds[row] = value + operations[row].launches * self.launch_s
        binding: list[int] = nominal.argmax(axis=0).tolist()
        fp8 = [bool(_first(operation.fp8)) for operation in operations]
        peak = np.where(fp8, self.gpu.fp8_flops or np.inf, self.gpu.bf16_flops)
        work = np.array([_first(operation.flops) for operation in operations])
        at_peak = self.hbm_bytes_per_s[0, 0] / self.gpu.hbm_bytes_per_s
        origins = tuple(
            self._origin(operation.family, RESOURCES[resource], "fp8" if narrow else "bf16")
            for operation, resource, narrow in zip(operations, binding, fp8, strict=True)
        )
        return OperationTimes(
            seconds=tuple(seconds),
            nominal_s=[float(value[0, 0]) for value in seconds],
            floor_s=np.maximum(work / peak, nominal[2] * at_peak).tolist(),
            binding=binding,
            origins=origins,
        )

    def _streaming(self, operation: Operation) -> np.ndarray:
        return operation.hbm_bytes / self.hbm_bytes_per_s + operation.launches * self.launch_s

    def _mixed_inverse(self, operation: Operation) -> tuple[np.ndarray, np.ndarray] | None:
        """Seconds per FLOP and per unit of SM work; None for a family that only moves bytes."""
        family = self.profile.family(operation.family)
        if family.sm is None and not family.tensor:
            return None
        fp8 = operation.fp8
        if not isinstance(fp8, np.ndarray):
            return self._inverse_rates(operation.family, "fp8" if fp8 else "bf16")
        key = (operation.family, id(fp8))
        if key not in self._mixed:
            pairs = [self._inverse_rates(operation.family, name) for name in ("bf16", "fp8")]
            mixed = tuple(np.where(fp8 != 0, narrow, wide) for wide, narrow in zip(*pairs, strict=True))
            self._mixed[key] = fp8, (mixed[0], mixed[1])
        return self._mixed[key][1]

    def _origin(self, name: str, resource: str, precision: str) -> Origin:
        family = self.profile.family(name)
        if resource == "sm" and family.sm is not None:
            return family.sm.rate.origin
        if resource == "tensor":
            entry = family.tensor_rate(self.gpu, precision)
            if entry is not None:
                return entry.fraction.origin
        return self.profile.hbm.origin


@lru_cache(maxsize=4096)
def _sampled(rate: Rate, name: str, draws: Draws) -> np.ndarray:
    values = rate.sample(draws.uniform(name))
    values.flags.writeable = False
    return values


def weakest(origins: Sequence[Origin]) -> Origin:
    """The least certain of several origins; its detail is that of the first such one."""
    return max(origins, key=lambda origin: ORIGINS.index(origin.origin))


def _peak(gpu: Gpu, precision: str) -> float:
    peak = gpu.bf16_flops if precision == "bf16" else gpu.fp8_flops
    if peak is None:
        raise InputError(f"{gpu.name} has no {precision} tensor rate", field="training.precision", expected="bf16")
    return peak


def _stack(values: Sequence[Number]) -> np.ndarray:
    """One array of shape (len(values), points, draws) from numbers that broadcast to (points, draws)."""
    arrays = [(index, value) for index, value in enumerate(values) if isinstance(value, np.ndarray)]
    scalars = np.array([0.0 if isinstance(value, np.ndarray) else value for value in values])[:, None, None]
    if not arrays:
        return scalars
    shape = np.broadcast_shapes(*{value.shape for _, value in arrays})
    result = np.empty((len(values), *shape))
    result[:] = scalars
    for index, value in arrays:
        result[index] = value
    return result


def _first(value: Number) -> float:
    return value[0, 0] if isinstance(value, np.ndarray) else value
