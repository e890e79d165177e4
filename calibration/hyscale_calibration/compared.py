"""A profile's measurements beside what its own fits say of them, and the rates that the fits promise at other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hyscale_calibration.fit import Samples
from hyscale_calibration.fits import PARTS, samples_by_family
from hyscale_calibration.fitted import peaks_of
from hyscale_calibration.profile_file import validated
from hyscale_calibration.work import Work
from hyscale_model.rates.law import Law, Peaks, seconds

# Sizes of a curve, from the smallest to the largest measured and by this factor beyond on either side.
SIZES, BEYOND = 41, 4.0


def compared(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Every measured point with its predicted time, and curves of the rate over the size.

    Points on part of the SMs are left out: they test the rule of transfer, not the fit. The interval of 80 % is that
    which predictions use. A curve is the law at the work of the point of middling rate, made smaller and larger evenly;
    whole turns of the SMs are left out of it.

    Args:
        data: a profile with fits.
        where: its name for messages.

    Returns:
        ``{"points": [{"id", "family", "part", "precision", "measured_s", "predicted_s", "low_s", "high_s", "flops",
        "bytes"}], "curves": {family: [{"precision", "flops": [...], "bytes": [...], "seconds": [...],
        "inside": (least, most measured size)}]},
        "peaks": {"bf16", "fp8", "hbm"}}``

    Raises:
        ProfileError: the profile is damaged.
        InputError: the catalogue does not have its GPU.
    """
    profile = validated(data, where)
    peaks = peaks_of(str(profile["gpu"]))
    points: list[dict[str, Any]] = []
    curves: dict[str, list[dict[str, Any]]] = {}
    for family, parts in samples_by_family(profile["measurements"], peaks.sms).items():
        entry = profile["fits"]["families"].get(family)
        if entry is None:
            continue
        law, spread = Law.parse(entry["coefficients"]), float(np.exp(entry["spread"]))
        whole: list[Work] = []
        for part in PARTS[:2]:
            samples, ids = parts[part]
            if not ids:
                continue
            predicted = _seconds(law, samples.work, peaks)
            whole += samples.work
            points += [
                {
                    "id": name,
                    "family": family,
                    "part": part,
                    "precision": "fp8" if work.fp8 else "bf16",
                    "measured_s": float(measured),
                    "predicted_s": float(said),
                    "low_s": float(said / spread),
                    "high_s": float(said * spread),
                    "flops": float(work.flops),
                    "bytes": float(work.hbm_bytes + work.passed_bytes),
                }
                for name, work, measured, said in zip(ids, samples.work, samples.seconds, predicted, strict=True)
            ]
        curves[family] = [_curve(law, peaks, name, found) for name, found in _by_precision(whole).items()]
    return {"points": points, "curves": curves, "peaks": {**peaks.tensor, "hbm": peaks.hbm}}


def _seconds(law: Law, work: Sequence[Work], peaks: Peaks) -> np.ndarray:
    samples = Samples(list(work), [peaks.sms] * len(work), np.ones(len(work)))
    return seconds(law, samples.workload(tuple(law.clocks)), peaks)


def _by_precision(work: Sequence[Work]) -> dict[str, list[Work]]:
    found: dict[str, list[Work]] = {}
    for each in work:
        found.setdefault("fp8" if each.fp8 else "bf16", []).append(each)
    return found


def _curve(law: Law, peaks: Peaks, precision: str, work: Sequence[Work]) -> dict[str, Any]:
    rates = np.array([_size(each) for each in work]) / _seconds(law, work, peaks)
    middle = work[int(np.argsort(rates)[len(work) // 2])]
    sizes = [_size(each) / _size(middle) for each in work]
    low, high = min(sizes), max(sizes)
    scales = np.geomspace(low / BEYOND, high * BEYOND, SIZES)
    scaled = [_times(middle, float(scale)) for scale in scales]
    return {
        "precision": precision,
        "flops": [each.flops for each in scaled],
        "bytes": [each.hbm_bytes + each.passed_bytes for each in scaled],
        "seconds": _seconds(law, scaled, peaks).tolist(),
        "inside": (low * _size(middle), high * _size(middle)),
    }


def _size(work: Work) -> float:
    return work.flops or work.hbm_bytes + work.passed_bytes


def _times(work: Work, factor: float) -> Work:
    return replace(
        work,
        flops=factor * work.flops,
        hbm_bytes=factor * work.hbm_bytes,
        passed_bytes=factor * work.passed_bytes,
        units={unit: factor * amount for unit, amount in work.units.items()},
        turns=None,
        unit_turns={},
    )
