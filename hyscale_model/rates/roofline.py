"""Seconds of operations on a GPU: the roofline of a profile, with draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from hyscale_model.arrays import Number, maximum
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.prediction import ORIGINS, Origin
from hyscale_model.rates.cost import Coefficients, Cost, varies_over_points_only
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.law import ALONE, SUSTAINED_S, by_path, together
from hyscale_model.rates.profile import Family, Profile, Rate
from hyscale_model.rates.transfer import transferred_tensor
from hyscale_model.scenario.schema import Gpu

RESOURCES = ("tensor", "sm", "hbm")
_UNCERTAIN = {origin: place for place, origin in enumerate(ORIGINS)}

# Filling and emptying a tile of a product takes as long as so many steps of its sum in 16 bit on an SM of 4,096 FLOP a
# clock, twice as many in 8 bit: DeepGEMM on H800 keeps 1,470, 1,166 and 748 TFLOP/s at depths of 16,384, 1,536 and 512
# (deepseek-ai/DeepGEMM PR #73), cuBLAS BF16 on H100 721 and 674 at 8,192 and 2,048 (AIConfigurator gemm tables).
EDGE_DEPTH = 250
EDGE_FLOP_PER_SM_CLOCK = 4096
# The depth that rates of products are stated for.
REFERENCE_DEPTH = 4096


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


@dataclass(frozen=True)
class _Resources:
    """What a family uses: seconds per FLOP, per unit of work in the SMs and per byte, and of a launch.

    ``sm``: paths through the SMs that run side by side, each with its units of an operation's ``units``; the unit None
    is its ``sm_work``. Turns count only where ``turns``; ``launch`` numbers the coefficient of a launch.
    """

    tensor: _Scaled | None
    sm: tuple[tuple[tuple[str | None, _Scaled], ...], ...]
    hbm: _Scaled
    launch_s: np.ndarray
    launch: int
    serial: np.ndarray
    turns: bool

    @cached_property
    def is_drawn_alone(self) -> bool:
        """Whether rates vary over draws, and not over points."""
        scaled = [self.hbm, *([self.tensor] if self.tensor else []), *(each for path in self.sm for _, each in path)]
        return all(each.values.shape[0] == 1 for each in scaled)

    def used(
        self, operation: Operation, sms: int, flops: Number
    ) -> list[tuple[str, tuple[tuple[_Scaled, Number], ...]]]:
        """Coefficients and amounts by resource, with its name in ``RESOURCES``."""
        moved = operation.hbm_bytes - operation.passed_bytes if self.turns else operation.hbm_bytes
        turns = operation.turns(sms) if self.turns and operation.turns is not None else None
        found: list[tuple[str, tuple[tuple[_Scaled, Number], ...]]] = [("hbm", ((self.hbm, moved),))]
        if self.tensor:
            found.append(("tensor", ((self.tensor, flops if turns is None else flops * turns),)))
        for path in self.sm:
            amounts = [(each, _amount(operation, unit)) for unit, each in path]
            found.append(("sm", tuple(amounts if turns is None else [(each, turns * part) for each, part in amounts])))
        return found


def _amount(operation: Operation, unit: str | None) -> Number:
    if unit is None:
        return operation.flops if operation.sm_work is None else operation.sm_work
    units = operation.units() if operation.units is not None else {}
    try:
        return units[unit]
    except KeyError:
        raise UnpricedError(
            f"an operation of {operation.family} does not say its {unit}, by which the profile prices it",
            field="profile",
            expected=f"a profile whose law of {operation.family} knows {', '.join(units) or 'no units'}",
        ) from None


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a profile, sampled.

    Apart from ``Rates``, which hold operations: those that keep it would else hold themselves, and their arrays.
    """

    profile: Profile
    draws: Draws

    def __call__(self, name: str) -> np.ndarray:
        """The factor of that name, shape (1, draws + 1)."""
        try:
            rate = self.profile.factors[name]
        except KeyError:
            raise UnpricedError(f"profile {self.profile.name} has no factor {name}", field="profile") from None
        return _sampled(rate, f"factor.{name}", self.draws)


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
        self.factor = Factors(profile, draws)
        self.coefficients = Coefficients(draws.width)
        self.serial = self.factor("serial_share")
        self._in_step = self.factor("step_over_kernels")
        self._edge = EDGE_DEPTH * gpu.bf16_flops / (gpu.sms * gpu.boost_hz) / EDGE_FLOP_PER_SM_CLOCK
        self._inverse: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        self._origins: dict[tuple[str, str, str], Origin] = {}
        # By family and precision; a precision that is drawn counts by the identity of its array, which is held.
        self._known: dict[tuple[str, Any], tuple[Number, _Resources]] = {}
        # Operations count by identity, and are held.
        self._uses: dict[Operation, tuple[_Resources, list[tuple[str, tuple[tuple[_Scaled, Number], ...]]]]] = {}
        self._hbm = self._scale(1.0 / (gpu.hbm_bytes_per_s * self._sample("hbm", profile.hbm)), self.serial)
        self._launch_s = self.factor("launch_s")
        self._launch = self.coefficients.register(self._in_step * self._launch_s)

    def _sample(self, name: str, rate: Rate) -> np.ndarray:
        return _sampled(rate, name, self.draws)

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

    def _used(self, operation: Operation) -> tuple[_Resources, list[tuple[str, tuple[tuple[_Scaled, Number], ...]]]]:
        """What an operation's family uses, with coefficients and amounts by resource, worked out once.

        A fitted law has what tiles lose at their ends in units of its own.
        """
        if operation not in self._uses:
            resources = self._resources(operation)
            flops = operation.flops if resources.turns else self._flops(operation)
            self._uses[operation] = resources, resources.used(operation, self.gpu.sms, flops)
        return self._uses[operation]

    def cost(self, operation: Operation) -> Cost:
        """Seconds of an operation in a step: linear where one resource binds at every point and draw."""
        resources, by_resource = self._used(operation)
        used = [amounts for _, amounts in by_resource]
        launches = operation.launches
        passed = operation.passed_bytes if resources.turns else 0.0
        amounts = [amount for resource in used for _, amount in resource]
        if resources.is_drawn_alone and varies_over_points_only(launches, passed, *amounts):
            binding = _binding(used)
            if binding is not None:
                linear = {
                    each.whole if resource is binding else each.serial: amount
                    for resource in used
                    for each, amount in resource
                }
                linear[resources.launch] = launches
                if resources.turns:
                    linear[resources.hbm.whole] = passed + (operation.hbm_bytes - passed) * (binding is used[0])
                    if binding is not used[0]:
                        linear[resources.hbm.serial] = operation.hbm_bytes - passed
                return Cost(linear)
        kernel = together(
            resources.serial, *(sum(amount * each.values for each, amount in resource) for resource in used)
        )
        kernel = kernel + passed * resources.hbm.values
        return Cost(rest=self._in_step * (kernel + launches * resources.launch_s))

    def seconds(self, operations: Sequence[Operation], points: int = 1) -> np.ndarray:
        """Seconds of operations as kernels, shape (operations, points, draws + 1)."""
        costs = [[self.cost(each)] for each in operations]
        return self.coefficients.evaluate(costs, (points, self.draws.width)) / self._in_step

    def alone(self, operation: Operation) -> Operation:
        """The operation as a kernel that is measured by itself, for ``seconds``.

        A step is priced with the clocks that seconds of tensor work leave; what runs by itself lowers them by its own
        time alone, as in ``law.seconds``.
        """
        family = self.profile.family(operation.family)
        resources, _ = self._used(operation)
        if family.fitted is None or resources.tensor is None:
            return operation
        precision = "fp8" if _first(operation.fp8) else "bf16"
        if transferred_tensor(family, self.gpu, self._gpu_named(family.fitted.gpu), precision) is not None:
            return operation
        lost = family.fitted.law.sustained
        turns = 1.0 if operation.turns is None else operation.turns(self.gpu.sms)
        seconds = operation.flops * turns * resources.tensor.nominal / (1 + lost)
        shown = 1 + lost * seconds / (seconds + SUSTAINED_S)
        return replace(operation, flops=operation.flops * shown / (1 + lost))

    def nominal(self, operation: Operation) -> Nominal:
        """Time, floor, what binds and where its rate comes from, at the nominal point."""
        parts, kernel = self._kernel(operation, _first, _first_nominal)
        resource, longest = parts[0] if len(parts) == 1 else max(parts, key=_longest)
        precision = "fp8" if _first(operation.fp8) else "bf16"
        floor = max(
            _first(operation.flops) / _peak(self.gpu, precision),
            _first(operation.hbm_bytes) / self.gpu.hbm_bytes_per_s,
        )
        family = self.profile.family(operation.family)
        if family.fitted is None or not longest:
            origin = self._origin(operation.family, resource, precision)
        else:
            beyond = bool(self._is_beyond(operation, parts, kernel, _first))
            origin = family.fitted.origin_on(self.gpu, resource, beyond)
        return Nominal(_first(self._in_step) * kernel, float(floor), resource, origin)

    def is_beyond(self, operation: Operation) -> Number:
        """Whether a kernel's nominal time lies outside what its law was fitted to: a bool, or one a point ``[points,
        1]``."""
        if operation.family not in self.measured:
            return False
        return self._is_beyond(operation, *self._kernel(operation, _each_first, _each_nominal), _each_first)

    @cached_property
    def measured(self) -> frozenset[str]:
        """Families whose law was fitted on this very GPU."""
        fitted = {name: family.fitted for name, family in self.profile.families.items()}
        return frozenset(name for name, each in fitted.items() if each is not None and each.gpu == self.gpu.name)

    def _is_beyond(
        self,
        operation: Operation,
        parts: Sequence[tuple[str, Number]],
        seconds: Number,
        of: Callable[[Number], Number],
    ) -> Number:
        """Of what ``_kernel`` gives. What has no work or launches nothing is no kernel: a wait for another rank's."""
        fitted = self.profile.family(operation.family).fitted
        if fitted is None or operation.family not in self.measured:
            return False
        is_kernel = (maximum(*(each for _, each in parts)) > 0) & (of(operation.launches) > 0)
        return fitted.is_beyond(seconds) & is_kernel

    def _kernel(
        self, operation: Operation, of: Callable[[Number], Number], rate: Callable[[_Scaled], Number]
    ) -> tuple[list[tuple[str, Number]], Number]:
        """Seconds of a kernel by resource, and in all; ``of``: what is taken of arrays (points, draws), ``rate``: of
        what is scaled."""
        resources, used = self._used(operation)
        parts = [(name, sum([of(amount) * rate(each) for each, amount in amounts])) for name, amounts in used]
        times = [seconds for _, seconds in parts]
        longest = maximum(*times)
        rest = sum(times) - longest
        kernel = longest + of(resources.serial) * rest + of(operation.launches) * of(resources.launch_s)
        if resources.turns:
            kernel = kernel + of(operation.passed_bytes) * rate(resources.hbm)
        return parts, kernel

    def _scale(self, values: np.ndarray, serial_share: np.ndarray) -> _Scaled:
        whole = serial = -1
        if values.shape[0] == 1:
            in_step = self._in_step * values
            whole, serial = (self.coefficients.register(each) for each in (in_step, serial_share * in_step))
        return _Scaled(values, float(values[0, 0]), float(values.min()), float(values.max()), whole, serial)

    def _resources(self, operation: Operation) -> _Resources:
        """What the operation's family uses, at its precision."""
        fp8 = operation.fp8
        drawn = isinstance(fp8, np.ndarray)
        key = (operation.family, id(fp8) if drawn else bool(fp8))
        if key not in self._known:
            build = self._published if self.profile.family(operation.family).fitted is None else self._fitted
            self._known[key] = fp8, build(operation.family, fp8)
        return self._known[key][1]

    def _published(self, name: str, fp8: Number) -> _Resources:
        """By a family's rates on the tensor cores and the SMs; None where it does not use them."""
        if isinstance(fp8, np.ndarray):
            pairs = [self._inverse_rates(name, precision) for precision in ("bf16", "fp8")]
            both = [np.where(fp8 != 0, narrow, wide) for wide, narrow in zip(*pairs, strict=True)]
        else:
            both = list(self._inverse_rates(name, "fp8" if fp8 else "bf16"))
        tensor, sm = (self._scale(values, self.serial) if values.any() else None for values in both)
        return _Resources(
            tensor, (((None, sm),),) if sm else (), self._hbm, self._launch_s, self._launch, self.serial, False
        )

    def _fitted(self, name: str, fp8: Number) -> _Resources:
        """By a family's fitted law, whose error is one factor on all of its coefficients."""
        fitted = self.profile.family(name).fitted
        assert fitted is not None
        law, gpu = fitted.law, self.gpu
        error = self._sample(f"{name}.error", fitted.error)
        serial = np.full((1, 1), law.serial)

        def scaled(seconds: Number) -> _Scaled:
            return self._scale(np.asarray(seconds * error), serial)

        tensor = None
        if law.tensor:
            wide, narrow = (self._fitted_tensor(name, precision) for precision in ("bf16", "fp8"))
            tensor = scaled(
                np.where(fp8 != 0, narrow, wide) if isinstance(fp8, np.ndarray) else (narrow if fp8 else wide)
            )
        rate: Number = gpu.sms * gpu.boost_hz
        if gpu.name != fitted.gpu:
            rate = rate * self.factor("transfer")
        units = tuple(law.clocks)
        sm = tuple(
            tuple(
                (units[place], scaled(law.clocks[units[place]] / (rate / gpu.sms if path == ALONE else rate)))
                for place in places
            )
            for path, places in by_path(units).items()
        )
        hbm = scaled(1.0 / (gpu.hbm_bytes_per_s * law.hbm))
        launch_s = np.asarray(law.launch_s * error)
        launch = self.coefficients.register(self._in_step * launch_s)
        return _Resources(tensor, sm, hbm, launch_s, launch, serial, True)

    def _fitted_tensor(self, name: str, precision: str) -> Number:
        """Seconds per FLOP; a precision that the GPU has not, or was not measured, takes what the other keeps."""
        family = self.profile.family(name)
        assert family.fitted is not None
        kept = family.fitted.law.tensor
        fraction = kept.get(precision, next(iter(kept.values())))
        other = transferred_tensor(family, self.gpu, self._gpu_named(family.fitted.gpu), precision)
        peak = self.gpu.fp8_flops if precision == "fp8" else self.gpu.bf16_flops
        if peak is None:
            return np.inf
        if other is not None:
            return 1.0 / (peak * self._sample(f"{name}.tensor", other))
        # A step goes on for seconds: its tensor cores run at the clock that power leaves them.
        moved = self.factor("transfer") if self.gpu.name != family.fitted.gpu else 1.0
        return (1.0 + family.fitted.law.sustained) / (peak * fraction * moved)

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
    found = origins[0]
    for origin in origins:
        if _UNCERTAIN[origin.origin] > _UNCERTAIN[found.origin]:
            found = origin
    return found


def _peak(gpu: Gpu, precision: str) -> float:
    peak = gpu.bf16_flops if precision == "bf16" else gpu.fp8_flops
    if peak is None:
        raise InputError(f"{gpu.name} has no {precision} tensor rate", field="training.precision", expected="bf16")
    return peak


def _binding(used: Sequence[tuple[tuple[_Scaled, Number], ...]]) -> tuple[tuple[_Scaled, Number], ...] | None:
    """The resource that takes longest at every point and draw, if there is one."""
    if len(used) == 1:
        return used[0]
    least, most = [], []
    numbers = True
    for resource in used:
        low: Number = 0.0
        high: Number = 0.0
        for each, amount in resource:
            low, high = low + amount * each.low, high + amount * each.high
        numbers = numbers and not isinstance(low, np.ndarray)
        least.append(low)
        most.append(high)
    if numbers:
        # Of numbers only the one with the largest least can be it; Python compares them in a hundredth of the time.
        longest = least.index(max(least))
        for index, value in enumerate(most):
            if value > least[longest] and index != longest:
                return None
        return used[longest]
    for index, resource in enumerate(used):
        if all(bool(np.all(least[index] >= other)) for other in most[:index] + most[index + 1 :]):
            return resource
    return None


def _first(value: Number) -> float:
    # A number of Python, whose arithmetic costs a fifth of numpy's.
    return value.item(0) if isinstance(value, np.ndarray) else value


def _longest(part: tuple[str, Number]) -> tuple[Number, int]:
    """What orders resources by time, and equal ones as in ``RESOURCES``."""
    return part[1], -RESOURCES.index(part[0])


_first_nominal = attrgetter("nominal")


def _each_nominal(scaled: _Scaled) -> np.ndarray:
    return scaled.values[:, :1]


def _each_first(value: Number) -> Number:
    """The nominal value of each point."""
    return value[:, :1] if isinstance(value, np.ndarray) else value
