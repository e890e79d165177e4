"""Profiles with their fits: what a calibration ends with, and what merging profiles begins again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_calibration.fits import fit_all
from hyscale_calibration.profile_file import ProfileError
from hyscale_model.errors import InputError
from hyscale_model.rates.law import Peaks
from hyscale_model.rates.load import gpu_named


def peaks_of(gpu: str) -> Peaks:
    """What the catalogue says of a GPU."""
    known = gpu_named(gpu)
    tensor = {"bf16": known.bf16_flops, "fp8": known.fp8_flops}
    return Peaks(tensor=tensor, sms=known.sms, hz=known.boost_hz, hbm=known.hbm_bytes_per_s)


def with_fits(profile: Mapping[str, Any], gpu: str | None = None) -> dict[str, Any]:
    """The profile with fits of all that it measured.

    Args:
        profile: as ``profile_file`` reads it.
        gpu: catalogue name, where the profile knows none.

    Raises:
        ProfileError: the catalogue does not have the GPU.
    """
    name = profile["gpu"] or gpu
    if name is None:
        cards = sorted({identity["name"] for identity in profile["machines"].values()})
        raise ProfileError(
            f"{', '.join(cards)} is not in the catalogue, so its peaks are not known; say which GPU of "
            "hyscale catalog gpus it is like with --gpu"
        )
    try:
        peaks = peaks_of(name)
    except InputError as error:
        raise ProfileError(str(error)) from None
    return {**profile, "gpu": name, "fits": fit_all(profile["measurements"], peaks)}
