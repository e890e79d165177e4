"""Fit the law of a family of kernels to measured times, and say how sure its predictions are.

Least squares of the logarithm of time over the logarithms of the coefficients, so that a microsecond and a second
count alike. Coefficients that the points say little about stay near where kernels usually are: each has a weak prior,
whose spread is a factor. ``predict`` gives an interval of 80 % from the residuals of the fit, each with its own point
left out, widened by what the covariance of the coefficients adds at that point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyscale_calibration.profile_file import short
from hyscale_calibration.work import Work
from hyscale_model.rates.law import ALONE, PATHS, PRECISIONS, Law, Peaks, Workload, seconds

INTERVAL = 0.8
# Scatter of single points that is expected; weighs points against priors.
NOISE = 0.04
# Scatter around the law of a family that few points tell of, and how many points that counts for.
USUAL_SCATTER, USUAL_POINTS = 0.08, 3.0
# Usual value, spread as a factor, and bounds of a coefficient by the first part of its name. Clocks have no usual
# value: they start at a share of the measured times.
PRIORS: Mapping[str, tuple[float, float, float, float]] = {
    "tensor": (0.75, 1.5, 0.02, 1.0),
    "hbm": (0.88, 1.15, 0.05, 1.0),
    "launch_s": (4e-6, 1.4, 1e-6, 1e-5),
    "lag_s": (1e-5, 5.0, 1e-8, 3e-4),
    "serial": (0.2, 2.5, 0.01, 1.0),
    "sustained": (0.03, 3.0, 1e-3, 0.5),
}
# Of runs in which the host waits for the device: they lag by all that it queues after that.
WAITING_LAG = (1e-3, 3.0, 1e-8, 1e-2)
CLOCKS_SPREAD = 100.0
_STARTS = (0.05, 0.3, 0.8)
# Of all the time in one unit at most, so that others are not lost from the start.
_MOST = 1e3


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured runs of one family: work of each, SMs it used and seconds it took."""

    work: Sequence[Work]
    sms: Sequence[int]
    seconds: np.ndarray

    def units(self) -> tuple[str, ...]:
        """Units of work that occur, in order."""
        return tuple(dict.fromkeys(unit for work in self.work for unit, amount in work.units.items() if amount > 0))

    def precisions(self) -> tuple[str, ...]:
        """Precisions whose tensor cores are used."""
        used = {bool(work.fp8) for work in self.work if work.flops > 0}
        return tuple(name for index, name in enumerate(PRECISIONS) if bool(index) in used)

    def workload(self, units: Sequence[str]) -> Workload:
        """As arrays."""
        return Workload(
            flops=np.array([work.flops for work in self.work]),
            precision=np.array([int(work.fp8) for work in self.work]),
            hbm_bytes=np.array([work.hbm_bytes for work in self.work]),
            units=np.array(
                [[_amount(work, unit, sms) for unit in units] for work, sms in zip(self.work, self.sms, strict=True)]
            ).reshape(len(self.work), len(units)),
            passed_bytes=np.array([work.passed_bytes for work in self.work]),
            launches=np.array([work.launches for work in self.work]),
            turns=np.array(
                [1.0 if work.turns is None else work.turns(sms) for work, sms in zip(self.work, self.sms, strict=True)]
            ),
            sms=np.array(self.sms, dtype=float),
        )


def _amount(work: Work, unit: str, sms: float) -> float:
    turns = work.unit_turns.get(unit)
    return work.units.get(unit, 0.0) * (1.0 if turns is None else turns(sms))


class LawFit:
    """The law of one family.

    Args:
        peaks: of the GPU that was measured.

    Attributes:
        law_: coefficients; names_: of the logarithms behind them; covariance_: of those, ``[names, names]``.
        spread_: half the width of the interval in the logarithm of time, at a point the fit knows well.
    """

    def __init__(self, peaks: Peaks) -> None:
        self.peaks = peaks

    def fit(self, samples: Samples) -> LawFit:
        """Fit to the samples.

        Raises:
            ValueError: there are fewer than two.
        """
        from scipy.optimize import least_squares

        if len(samples.work) < 2:
            raise ValueError(f"a law needs two points at least, there are {len(samples.work)}")
        self.units_, precisions = samples.units(), samples.precisions()
        self.names_ = (
            *(f"tensor.{name}" for name in precisions),
            *(f"clocks.{unit}" for unit in self.units_),
            "hbm",
            "launch_s",
            "lag_s",
            "serial",
            *(("sustained",) if precisions else ()),
        )
        work = samples.workload(self.units_)
        measured = np.log(samples.seconds)
        # Clocks of a unit with which it alone would take as long as some point did: it cannot take more.
        clocks = samples.seconds * self.peaks.hz
        whole = np.array(
            [
                ((clocks if PATHS.get(unit) == ALONE else clocks * work.sms)[amount > 0] / amount[amount > 0]).min()
                for unit, amount in zip(self.units_, work.units.T, strict=True)
            ]
        )
        lag = WAITING_LAG if any(each.waits for each in samples.work) else PRIORS["lag_s"]
        centre, spread, low, high = self._priors(whole, lag)

        def residuals(theta: np.ndarray) -> np.ndarray:
            misfit = (np.log(seconds(self._law(theta), work, self.peaks)) - measured) / NOISE
            return np.concatenate([misfit, (theta - centre) / spread])

        best = None
        for share in _STARTS:
            start = centre.copy()
            for index, name in enumerate(self.names_):
                if name.startswith("clocks."):
                    start[index] += np.log(share)
            found = least_squares(
                residuals, np.clip(start, low + 1e-6, high - 1e-6), bounds=(low, high), x_scale=spread
            )
            if best is None or found.cost < best.cost:
                best = found
        assert best is not None
        self.theta_ = best.x
        self.law_ = self._law(best.x)
        count = len(measured)
        unscaled = np.linalg.inv(best.jac.T @ best.jac)
        rows = best.jac[:count]
        leverage = np.clip(np.einsum("ij,jk,ik->i", rows, unscaled, rows), 0.0, 0.95)
        misfit = best.fun[:count] * NOISE
        degrees = max(count - leverage.sum(), 0.0)
        known = USUAL_POINTS * USUAL_SCATTER**2 + (misfit**2).sum()
        self.scatter_ = float(np.sqrt(known / (USUAL_POINTS + degrees)))
        self.covariance_ = unscaled * (self.scatter_ / NOISE) ** 2
        self._unscaled = unscaled
        without = np.abs(misfit) / (1 - leverage) / np.sqrt(1 + leverage)
        self.spread_ = max(_spread(without, self.scatter_, degrees), 1e-4)
        return self

    def predict(self, samples: Samples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds of runs, and the ends of the interval of 80 %; each ``[runs]``."""
        work = samples.workload(self.units_)
        nominal = seconds(self.law_, work, self.peaks)
        step = 1e-4
        slopes = np.stack(
            [
                (np.log(seconds(self._law(self.theta_ + step * unit), work, self.peaks)) - np.log(nominal)) / step
                for unit in np.eye(len(self.theta_))
            ],
            axis=1,
        )
        added = np.einsum("ij,jk,ik->i", slopes / NOISE, self._unscaled, slopes / NOISE)
        width = self.spread_ * np.sqrt(1 + added)
        return nominal, nominal * np.exp(-width), nominal * np.exp(width)

    def _law(self, theta: np.ndarray) -> Law:
        values = dict(zip(self.names_, np.exp(theta), strict=True))
        return Law.parse({name: float(value) for name, value in values.items()})

    def _priors(
        self, whole: np.ndarray, lag: tuple[float, float, float, float]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        rows = []
        unit = 0
        for name in self.names_:
            kind = name.partition(".")[0]
            if kind == "clocks":
                value = float(whole[unit])
                rows.append((value, CLOCKS_SPREAD, value / _MOST, value * 2))
                unit += 1
            else:
                rows.append(lag if kind == "lag_s" else PRIORS[kind])
        centre, spread, low, high = (np.log(np.array(column)) for column in zip(*rows, strict=True))
        return centre, spread, low, high

    def as_json(self) -> dict[str, Any]:
        """Coefficients with the covariance of their logarithms, and half the width of the interval."""
        return {
            "coefficients": {name: short(value) for name, value in self.law_.as_json().items()},
            "covariance_of_logarithms": {
                "names": list(self.names_),
                "values": [[short(value) for value in row] for row in self.covariance_],
            },
            "spread": short(self.spread_),
        }


def _spread(errors: np.ndarray, scatter: float, degrees: float) -> float:
    """The quantile of errors that an interval has to hold; from their scatter where there are few."""
    from scipy.stats import t

    normal = scatter * float(t.ppf((1 + INTERVAL) / 2, USUAL_POINTS + degrees))
    count = len(errors)
    # The quantile of few values is no quantile: their scatter stands in for it, less and less.
    weight = count / (count + 10.0)
    return weight * float(np.quantile(errors, INTERVAL)) + (1 - weight) * normal
