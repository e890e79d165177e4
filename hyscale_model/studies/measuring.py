"""What to measure first: which measurement narrows the speed-up most in the time that there is.

The variance of the logarithm of the speed-up is split over the unknowns by draws: V_u = Var(E[log S | u]). A
measurement of families of kernels takes away what their rates explain, and leaves what a fitted law leaves:

    gain = sum over u of V_u - e_f^2 s_f^2        e_f: d log S / d log seconds of family f, s_f: scatter around its law

The one factor by which rates of another GPU may be off acts on families together, so what is left of it falls with the
square of what is not measured: V_t (sum of e over families not measured / sum over all)^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any

import numpy as np

from hyscale_model.batch import draw_assumptions, generic
from hyscale_model.evaluate import Evaluator
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile, profile_of
from hyscale_model.rates.profile import Family, Profile, Rate
from hyscale_model.scenario.schema import Gpu, Scenario, System
from hyscale_model.studies.recording import Recording
from hyscale_model.summary import QUANTILES, quantiles

DRAWS = 4096
# Draws are sorted by an unknown into so many groups of equal size.
GROUPS = 16
TRANSFER = "factor.transfer"
ASSUMED = "assumption."
RESOURCES = ("tensor", "sm", "error")
# Gains below this share of the variance are not worth a measurement.
LEAST_GAIN = 0.005
# What a law leaves is that of the shipped measured profile: the scatter of kernels around it, whatever the GPU.
MEASURED, NUDGE = "h200-sxm", 1.01


@dataclass(frozen=True, slots=True)
class Measurement:
    """Something that can be measured.

    Attributes:
        name: of the operation.
        seconds: about how long it takes on ``gpu``.
        families: kernels whose rates it gives.
        paths: assumptions that it settles.
    """

    name: str
    seconds: float
    families: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()


def measure_first(
    scenario: Scenario,
    pair: Sequence[System],
    measurements: Iterable[Measurement],
    *,
    budget_s: float,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Any]:
    """Measurements in the order in which to make them, the largest gain a second first, as many as the time holds.

    Args:
        scenario: what is to be known; ``pair``: systems whose ratio it is.
        measurements: what could be measured.
        budget_s: seconds for all of them.
        draws, seed: behind the shares of the variance.

    Returns:
        JSON: ``measurements`` with ``gain``, the share of the variance that each takes away behind those before it,
        and whether it is ``chosen``; the speed-up ``now`` and what its interval is expected to be ``then``;
        ``others``: unknowns that none of them settles, with their shares.
    """
    spread, shares = _shares(scenario, pair, draws, seed)
    families = {name.rpartition(".")[0] for name in shares if name.rpartition(".")[2] in RESOURCES}
    remaining = _Remaining(shares, _effects(scenario, pair, families), spread.var)
    measurements = list(measurements)
    paths = {generic(name.removeprefix(ASSUMED)) for name in shares}
    waiting = [each for each in measurements if (each.families & families) or (each.paths & paths)]
    rows, left_s, done = [], budget_s, frozenset[str]()
    while True:
        before = remaining.after(done)
        gains = {each.name: before - remaining.after(done | _settled(each)) for each in waiting}
        fitting = [each for each in waiting if each.seconds <= left_s and gains[each.name] >= LEAST_GAIN]
        if not fitting:
            break
        best = max(fitting, key=lambda each: gains[each.name] / each.seconds)
        rows.append(_row(best, gains[best.name], chosen=True))
        waiting.remove(best)
        left_s -= best.seconds
        done |= _settled(best)
    # What is not chosen is told by what it would add to those that are.
    rest = [_row(each, gains[each.name], chosen=False) for each in waiting]
    kept = sqrt(remaining.after(done))
    middle = spread.quantiles["p50"]
    return {
        "budget_s": budget_s,
        "gpu": scenario.cluster.gpu.name,
        "measurements": rows + sorted(rest, key=lambda row: -row["gain"]),
        "seconds": budget_s - left_s,
        "left": remaining.after(done),
        "now": spread.quantiles,
        "then": {name: middle * (value / middle) ** kept for name, value in spread.quantiles.items()},
        "others": [
            {"input": name.removeprefix(ASSUMED), "share": share}
            for name, share in sorted(shares.items(), key=lambda item: -item[1])
            if share >= LEAST_GAIN and not remaining.is_settled(name, frozenset().union(*map(_settled, measurements)))
        ],
    }


def _settled(measurement: Measurement) -> frozenset[str]:
    return measurement.families | measurement.paths


def _row(measurement: Measurement, gain: float, *, chosen: bool) -> dict[str, Any]:
    gain = max(gain, 0.0)
    return {
        "name": measurement.name,
        "seconds": measurement.seconds,
        "gain": gain,
        "gain_per_minute": 60 * gain / measurement.seconds,
        "chosen": chosen,
    }


@dataclass(frozen=True, slots=True)
class _Spread:
    """The speed-up over draws: variance of its logarithm, and percentiles."""

    var: float
    quantiles: dict[str, float]


def _shares(scenario: Scenario, pair: Sequence[System], draws: int, seed: int) -> tuple[_Spread, dict[str, float]]:
    """The share of the variance of the logarithm of the speed-up that each unknown explains by itself."""
    recording = Recording(draws, seed)
    values = draw_assumptions(scenario, recording)
    before, after = Evaluator(scenario, values, recording, profile_of(scenario)).steps(pair)
    ratio = np.broadcast_to(before.step.seconds / after.step.seconds, (1, draws + 1))
    logs = np.log(ratio[0, 1:])
    found = dict(zip(QUANTILES, (float(each[0]) for each in quantiles(ratio)), strict=True))
    variance = float(logs.var())
    if not variance:
        return _Spread(0.0, found), {}
    shares = {}
    for name, uniform in recording.seen.items():
        groups = np.array_split(logs[np.argsort(uniform, kind="stable")], GROUPS)
        means, within = np.array([[group.mean(), group.var() / len(group)] for group in groups]).T
        # Means of finite groups vary by themselves.
        shares[name] = max(float(means.var() - within.mean()), 0.0) / variance
    total = sum(shares.values())
    # Without interactions shares sum to one; estimates may sum to a little more.
    return _Spread(variance, found), {name: share / max(total, 1.0) for name, share in shares.items()}


@dataclass(frozen=True, slots=True)
class _Effect:
    """d log S / d log seconds of a family, of those that are transferred from another GPU, and its law's scatter."""

    whole: float
    transferred: float
    scatter: float


def _effects(scenario: Scenario, pair: Sequence[System], families: Iterable[str]) -> dict[str, _Effect]:
    profile = profile_of(scenario)
    known = load_profile(MEASURED).families

    def speedup(nudged: Profile) -> float:
        before, after = Evaluator(scenario, {}, Draws(0), nudged).steps(pair)
        return log(float((before.step.seconds / after.step.seconds)[0, 0]))

    start, found = speedup(profile), {}
    for name in families:
        family = profile.family(name)
        slower = [
            replace(profile, families={**profile.families, name: nudged})
            for nudged in (_slower(family), _slower(family, scenario.cluster.gpu))
        ]
        whole, transferred = ((speedup(each) - start) / log(NUDGE) for each in slower)
        law = known[name].fitted if name in known else None
        error = None if law is None else law.error
        # A log-uniform range.
        scatter = 0.0 if error is None else log(error.high / error.low) / sqrt(12)
        found[name] = _Effect(whole, transferred, scatter)
    return found


def _slower(family: Family, gpu: Gpu | None = None) -> Family:
    """A family that takes ``NUDGE`` times as long; with a GPU only where rates come from another."""
    sm, fitted = family.sm, family.fitted
    tensor = family.tensor
    if gpu is None:
        tensor = tuple(replace(each, fraction=_scaled(each.fraction, 1 / NUDGE)) for each in tensor)
    if sm is not None and (gpu is None or sm.gpu != gpu.name):
        sm = replace(sm, rate=_scaled(sm.rate, 1 / NUDGE))
    if fitted is not None and (gpu is None or fitted.gpu != gpu.name):
        fitted = replace(fitted, error=_scaled(fitted.error, NUDGE))
    return replace(family, tensor=tensor, sm=sm, fitted=fitted)


def _scaled(rate: Rate, factor: float) -> Rate:
    return replace(rate, value=rate.value * factor, low=rate.low * factor, high=rate.high * factor)


class _Remaining:
    """The share of the variance that is left once something is settled."""

    def __init__(self, shares: Mapping[str, float], effects: Mapping[str, _Effect], variance: float) -> None:
        self._shares, self._effects, self._variance = shares, effects, variance

    def after(self, settled: frozenset[str]) -> float:
        """With families and assumptions settled."""
        if not self._shares:
            return 0.0
        known = sum(self._gain_of(family) for family in settled & self._effects.keys())
        known += sum(share for name, share in self._shares.items() if generic(name.removeprefix(ASSUMED)) in settled)
        everything = sum(each.transferred for each in self._effects.values())
        rest = sum(each.transferred for name, each in self._effects.items() if name not in settled)
        part = min((rest / everything) ** 2, 1.0) if everything else 1.0
        known += self._shares.get(TRANSFER, 0.0) * (1 - part)
        return max(1.0 - known, 0.0)

    def _gain_of(self, family: str) -> float:
        own = sum(self._shares.get(f"{family}.{resource}", 0.0) for resource in RESOURCES)
        effect = self._effects[family]
        return max(own - (effect.whole * effect.scatter) ** 2 / self._variance, 0.0)

    def is_settled(self, name: str, settled: frozenset[str]) -> bool:
        """Whether an unknown is among those that are settled, at least in part."""
        family = name.rpartition(".")[0]
        return name == TRANSFER or family in settled or generic(name.removeprefix(ASSUMED)) in settled
