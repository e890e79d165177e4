"""Fits of every family of a profile's measurements, and how well they predict what they have not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hyscale_calibration.fit import LawFit, Samples
from hyscale_calibration.profile_file import short
from hyscale_calibration.work import CHOOSING, CHOSEN, Work, chosen, work_of
from hyscale_model.rates.law import Peaks

# What a fit has to reach over all held-out points of a profile.
ERROR_BARS = {"median": 0.04, "p95": 0.12}
COVERAGE_BAR = (0.7, 0.9)
PARTS = ("fit", "held_out", "transfer")
# Half the width of the interval of 80 % that predictions give to scaling by SMs and clock (``transfer`` of profiles).
TRANSFER_SPREAD = 0.13


def samples_by_family(
    measurements: Iterable[Mapping[str, Any]], sms: int
) -> dict[str, dict[str, tuple[Samples, list[str]]]]:
    """Samples and ids of each family and part; families without a law are left out."""
    rows: dict[str, dict[str, list[tuple[str, Work, int, float]]]] = {}
    for entry in (*measurements, *choices(measurements)):
        work = entry.get("work") or work_of(entry["row"], entry["dtype"], entry["shape"])
        if work is not None:
            parts = rows.setdefault(work.family, {part: [] for part in PARTS})
            parts[entry["part"]].append((entry["id"], work, entry["sms"] or sms, entry["median_ms"] * 1e-3))
    return {
        family: {
            part: (
                Samples([row[1] for row in found], [row[2] for row in found], np.array([row[3] for row in found])),
                [row[0] for row in found],
            )
            for part, found in parts.items()
        }
        for family, parts in sorted(rows.items())
    }


def choices(measurements: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The steps from marked keys to a selection, added up where all were measured on the same inputs."""
    from hyscale_calibration.point import part_of

    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in measurements:
        if entry["row"] in CHOOSING:
            groups.setdefault(entry["id"].replace(entry["row"], "hytopk.choose"), {})[entry["row"]] = entry
    found = []
    for name, steps in groups.items():
        first = next(iter(steps.values()))
        work = chosen(first["dtype"], first["shape"])
        if work is not None and len(steps) == len(CHOOSING):
            found.append(
                {
                    "id": name,
                    "work": work,
                    "part": "transfer" if first["sms"] else part_of(name),
                    "sms": first["sms"],
                    "median_ms": sum(step["median_ms"] for step in steps.values()),
                }
            )
    return found


def errors_of(fit: LawFit, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Predicted over measured less 1, and whether the interval holds the measured time; each ``[runs]``."""
    if not samples.work:
        return np.zeros(0), np.zeros(0, dtype=bool)
    nominal, low, high = fit.predict(samples)
    return nominal / samples.seconds - 1, (low <= samples.seconds) & (samples.seconds <= high)


def transfer_errors(
    fit: LawFit | None, parts: Mapping[str, tuple[Samples, list[str]]], peaks: Peaks
) -> tuple[np.ndarray, list[str]]:
    """Errors of times on part of the SMs, predicted from the measured time of the same point on all of them.

    The rule of transfer says by how much time grows; what the law misses at the point itself is not its fault. Without
    a law all of the time is taken to scale.
    """
    whole = {
        name: seconds
        for part in ("fit", "held_out")
        for name, seconds in zip(parts[part][1], parts[part][0].seconds, strict=True)
    }
    errors, names = [], []
    samples, ids = parts["transfer"]
    for work, sms, seconds, name in zip(samples.work, samples.sms, samples.seconds, ids, strict=True):
        before = whole.get(name.partition("@")[0])
        if before is None:
            continue
        growth = peaks.sms / sms
        if fit is not None:
            (on_part, on_all), _, _ = fit.predict(Samples([work, work], [sms, peaks.sms], np.ones(2)))
            growth = on_part / on_all
        errors.append(before * growth / seconds - 1)
        names.append(name)
    return np.array(errors), names


def told(errors: np.ndarray, inside: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """How far predictions are from what was measured."""
    if not len(errors):
        return {"n": 0}
    size = np.abs(errors)
    return {
        "n": len(errors),
        "median": short(np.median(size)),
        "p95": short(np.quantile(size, 0.95)),
        "worst": short(errors[size.argmax()]),
        "worst_id": names[int(size.argmax())],
        "bias": short(np.median(errors)),
        "coverage": short(inside.mean()),
    }


def fit_all(measurements: Sequence[Mapping[str, Any]], peaks: Peaks) -> dict[str, Any]:
    """``{"families": {name: fit}, "held_out": over all families, "transfer": ..., "unfitted": {name: reason}}``."""
    families: dict[str, Any] = {}
    unfitted: dict[str, str] = {}
    pooled: dict[str, list[tuple[np.ndarray, np.ndarray, list[str]]]] = {part: [] for part in PARTS}
    for family, parts in samples_by_family(measurements, peaks.sms).items():
        samples, _ = parts["fit"]
        fit = None
        try:
            fit = LawFit(peaks).fit(samples)
        except ValueError as error:
            unfitted[family] = str(error)
        moved, moved_names = transfer_errors(fit, parts, peaks)
        width = np.hypot(TRANSFER_SPREAD, fit.spread_ if fit is not None else 0.0)
        found = {"transfer": (moved, np.abs(np.log1p(moved)) <= width, moved_names)}
        if fit is not None:
            found |= {part: (*errors_of(fit, parts[part][0]), parts[part][1]) for part in ("fit", "held_out")}
            taken = np.concatenate([parts[part][0].seconds for part in ("fit", "held_out")])
            families[family] = {
                **fit.as_json(),
                **{part: told(*found[part]) for part in PARTS},
                "measured_s": [float(taken.min()), float(taken.max())],
            }
        # Sums of steps repeat what their steps say.
        if family != CHOSEN:
            for part, errors in found.items():
                pooled[part].append(errors)
    return {
        "families": families,
        "unfitted": unfitted,
        **{
            part: told(
                np.concatenate([each[0] for each in errors] or [np.zeros(0)]),
                np.concatenate([each[1] for each in errors] or [np.zeros(0, dtype=bool)]),
                [name for each in errors for name in each[2]],
            )
            for part, errors in pooled.items()
        },
    }


def missed_bars(held_out: Mapping[str, Any]) -> list[str]:
    """What bars the held-out points miss, as sentences."""
    if not held_out["n"]:
        return ["no point was held out"]
    missed = [
        f"{name} of held-out errors is {held_out[name]:.1%}, the bar is {bar:.0%}"
        for name, bar in ERROR_BARS.items()
        if held_out[name] > bar
    ]
    low, high = COVERAGE_BAR
    if not low <= held_out["coverage"] <= high:
        missed.append(f"the 80 % interval holds {held_out['coverage']:.0%}, the bar is {low:.0%} to {high:.0%}")
    return missed
