"""Seconds of operations on a GPU: the roofline of a profile, with draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.prediction import ORIGINS, Origin
from hyscale_model.rates.cost import Coefficients, Cost, varies_over_points_only
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.profile import Family, Profile, Rate
from hyscale_model.scenario.schema import Gpu

RESOURCES = ("tensor", "sm", "hbm")

# Filling and emptying a tile of a product takes as long as so many steps of its sum in 16 bit on an SM of 4,096 FLOP a
# clock, twice as many in 8 bit: DeepGEMM on H800 keeps 1,470, 1,166 and 748 TFLOP/s at depths of 16,384, 1,536 and 512
# (deepseek-ai/DeepGEMM PR #73), cuBLAS BF16 on H100 721 and 674 at 8,192 and 2,048 (AIConfigurator gemm tables).
EDGE_DEPTH = 250
EDGE_FLOP_PER_SM_CLOCK = 4096
# The depth that rates of products are stated for.
REFERENCE_DEPTH = 4096


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
class Nominal:
    """One operation at the nominal point.

    Attributes:
        seconds: its time in a step.
        floor_s: lower bound at the peaks of the GPU (tensor peak and HBM peak, launches free).
        resource: which of ``RESOURCES`` binds.
        origin: where the rate of that resource comes from.
    """

    seconds: float
    floor_s: float
    resource: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Seconds per unit of work on one resource, shape (1, draws + 1), and its extremes.

    ``whole`` and ``serial`` number the coefficients of an operation in a step that this resource binds, or not;
    a rate that varies over points has none.
    """

    values: np.ndarray
    nominal: float
    low: float
    high: float
    whole: int
    serial: int


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
        self.coefficients = Coefficients(draws.width)
        self.serial = self.factor("serial_share")
        self._in_step = self.factor("step_over_kernels")
        self._edge = EDGE_DEPTH * gpu.bf16_flops / (gpu.sms * gpu.boost_hz) / EDGE_FLOP_PER_SM_CLOCK
        self._inverse: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        self._origins: dict[tuple[str, str, str], Origin] = {}
        # By family and precision; a precision that is drawn counts by the identity of its array, which is held.
        self._scaled: dict[tuple[str, Any], tuple[Number, tuple[_Scaled | None, _Scaled | None]]] = {}
        self._hbm = self._scale(1.0 / (gpu.hbm_bytes_per_s * self._sample("hbm", profile.hbm)))
        self._launch_s = self.factor("launch_s")
        self._launch = self.coefficients.register(self._in_step * self._launch_s)
        self._nominal_factors = tuple(float(each[0, 0]) for each in (self.serial, self._launch_s, self._in_step))

    def _sample(self, name: str, rate: Rate) -> np.ndarray:
        return _sampled(rate, name, self.draws)

    def factor(self, name: str) -> np.ndarray:
        """A sampled factor of the profile, shape (1, draws + 1)."""
        try:
            rate = self.profile.factors[name]
        except KeyError:
            raise UnpricedError(f"profile {self.profile.name} has no factor {name}", field="profile") from None
        return self._sample(f"factor.{name}", rate)

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

    def _flops(self, operation: Operation) -> Number:
        """FLOP of a product as if it were deep: what begins and ends a tile takes the time of ``EDGE_DEPTH`` steps."""
        if isinstance(operation.inverse_depth, float) and not operation.inverse_depth:
            return operation.flops
        edge = self._edge * (1 + operation.fp8)
        return operation.flops * (1 + edge * operation.inverse_depth) / (1 + edge / REFERENCE_DEPTH)

    def cost(self, operation: Operation) -> Cost:
        """Seconds of an operation in a step: linear where one resource binds at every point and draw."""
        tensor, sm = self._resources(operation)
        flops = self._flops(operation)
        work = operation.flops if operation.sm_work is None else operation.sm_work
        used = [(self._hbm, operation.hbm_bytes)]
        used += [(tensor, flops)] if tensor else []
        used += [(sm, work)] if sm else []
        launches = operation.launches
        drawn_alone = all(each.values.shape[0] == 1 for each, _ in used)
        if drawn_alone and varies_over_points_only(launches, *(amount for _, amount in used)):
            binding = _binding(used)
            if binding is not None:
                linear = {each.whole if each is binding else each.serial: amount for each, amount in used}
                linear[self._launch] = launches
                return Cost(linear)
        kernel = together(self.serial, *(amount * each.values for each, amount in used))
        return Cost(rest=self._in_step * (kernel + launches * self._launch_s))

    def seconds(self, operations: Sequence[Operation], points: int = 1) -> np.ndarray:
        """Seconds of operations as kernels, shape (operations, points, draws + 1)."""
        costs = [[self.cost(each)] for each in operations]
        return self.coefficients.evaluate(costs, (points, self.draws.width)) / self._in_step

    def nominal(self, operation: Operation) -> Nominal:
        """Time, floor, what binds and where its rate comes from, at the nominal point."""
        tensor, sm = self._resources(operation)
        flops, hbm_bytes, launches = (_first(v) for v in (operation.flops, operation.hbm_bytes, operation.launches))
        work = flops if operation.sm_work is None else _first(operation.sm_work)
        parts = (
            _first(self._flops(operation)) * tensor.nominal if tensor else 0.0,
            work * sm.nominal if sm else 0.0,
            hbm_bytes * self._hbm.nominal,
        )
        longest = max(parts)
        serial, launch_s, in_step = self._nominal_factors
        seconds = in_step * (longest + serial * (sum(parts) - longest) + launches * launch_s)
        precision = "fp8" if _first(operation.fp8) else "bf16"
        floor = max(flops / _peak(self.gpu, precision), hbm_bytes / self.gpu.hbm_bytes_per_s)
        resource = RESOURCES[parts.index(longest)]
        return Nominal(float(seconds), float(floor), resource, self._origin(operation.family, resource, precision))

    def _scale(self, values: np.ndarray) -> _Scaled:
        whole = serial = -1
        if values.shape[0] == 1:
            in_step = self._in_step * values
            whole, serial = (self.coefficients.register(each) for each in (in_step, self.serial * in_step))
        return _Scaled(values, float(values[0, 0]), float(values.min()), float(values.max()), whole, serial)

    def _resources(self, operation: Operation) -> tuple[_Scaled | None, _Scaled | None]:
        """Tensor cores and SMs as the operation's family uses them; None where it does not."""
        fp8 = operation.fp8
        drawn = isinstance(fp8, np.ndarray)
        key = (operation.family, id(fp8) if drawn else bool(fp8))
        if key not in self._scaled:
            if drawn:
                pairs = [self._inverse_rates(operation.family, name) for name in ("bf16", "fp8")]
                both = [np.where(fp8 != 0, narrow, wide) for wide, narrow in zip(*pairs, strict=True)]
            else:
                both = list(self._inverse_rates(operation.family, "fp8" if fp8 else "bf16"))
            scaled = [self._scale(values) if values.any() else None for values in both]
            self._scaled[key] = fp8, (scaled[0], scaled[1])
        return self._scaled[key][1]

    def _origin(self, name: str, resource: str, precision: str) -> Origin:
        key = (name, resource, precision)
        if key not in self._origins:
            family = self.profile.family(name)
            entry = family.tensor_rate(self.gpu, precision) if resource == "tensor" else None
            if resource == "sm" and family.sm is not None:
                self._origins[key] = family.sm.rate.origin
            else:
                self._origins[key] = self.profile.hbm.origin if entry is None else entry.fraction.origin
        return self._origins[key]


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


def _binding(used: Sequence[tuple[_Scaled, Number]]) -> _Scaled | None:
    """The resource that takes longest at every point and draw, if there is one."""
    if len(used) == 1:
        return used[0][0]
    least = [amount * each.low for each, amount in used]
    most = [amount * each.high for each, amount in used]
    for index, (each, _) in enumerate(used):
        others = most[:index] + most[index + 1 :]
        # A Python comparison where both are numbers: it costs a hundredth.
        if all(
            least[index] >= other
            if not isinstance(least[index], np.ndarray) and not isinstance(other, np.ndarray)
            else bool(np.all(least[index] >= other))
            for other in others
        ):
            return each
    return None


def _first(value: Number) -> float:
    return value[0, 0] if isinstance(value, np.ndarray) else value
