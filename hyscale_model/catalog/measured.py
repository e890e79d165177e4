"""Profiles that were measured: the user's own, and those shipped with the calibration; found, never imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.locations import user_profile_directory

KIND = "measured"
# Fields of a cluster that collectives inside a node tell.
LINKS = ("nvlink_efficiency", "nvlink_latency_s", "nvlink_ramp_s_per_root_byte")
LEAST_LATENCY_S = 1e-9
SUFFIX = ".json"
_PACKAGE = "hyscale_calibration"


def folders() -> list[Path]:
    """Where profiles are looked for, the user's first; folders that exist."""
    # Importing the package of the measurements is for those who measure.
    package = find_spec(_PACKAGE)
    shipped = [Path(place) / "profiles" for place in (package.submodule_search_locations or [])] if package else []
    return [folder for folder in (user_profile_directory(), *shipped) if folder.is_dir()]


def paths() -> dict[str, Path]:
    """Name and file of each measured profile; the user's goes before a shipped one of the same name."""
    found: dict[str, Path] = {}
    for folder in folders():
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            found.setdefault(file.name.removesuffix(SUFFIX), file)
    return found


def read(path: Path) -> Mapping[str, Any]:
    """The contents of a measured profile.

    Raises:
        InputError: it cannot be read, is damaged, or is no measured profile.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path), field="profile") from None


@lru_cache(maxsize=16)
def _read(path: Path, _written: int) -> Mapping[str, Any]:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", file=str(path), field="profile", expected="a profile") from None


def parse(text: str, where: str) -> Mapping[str, Any]:
    """The contents of a measured profile given as text.

    Raises:
        InputError: it is damaged, or no measured profile; ``where`` is what the message calls it.
    """
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        reason, line = (error.msg, error.lineno) if isinstance(error, json.JSONDecodeError) else ("too deep", None)
        raise InputError(f"not JSON ({reason}): the file is damaged or cut short", where, line, "profile") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise InputError("no measured profile", file=where, field="kind", expected=KIND)
    return data


def usable() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and contents of those profiles that can be read, in the order in which they are looked for."""
    for name, path in paths().items():
        try:
            yield name, read(path)
        except InputError:
            # What is damaged is told to whoever asks for it by name.
            continue


def for_gpu(gpu: str) -> str | None:
    """The name of a fitted profile measured on this very GPU, the user's first; None where there is none."""
    return next((name for name, data in usable() if data.get("gpu") == gpu and data.get("fits")), None)


def file_of(profile: str) -> Path | None:
    """The file of a measured profile by its name, or by the path of the file itself; None for other profiles."""
    return paths().get(profile) or (Path(profile) if profile.endswith(SUFFIX) else None)


def links(profile: str, gpu: str, gpus_per_node: int, nvlink_bytes_per_s: float) -> dict[str, float]:
    """What a profile measured of collectives over a whole node of so many GPUs, as ``LINKS``; empty if it did not.

    The all-gather stands for all of them, as it does for the efficiency that is assumed by default.

    Args:
        profile: its name, or the path of its file.
        gpu: name in the catalogue of the GPU that the profile has to be of.
        nvlink_bytes_per_s: the peak of that GPU in one direction, which the efficiency is of.

    Raises:
        InputError: the profile cannot be read, or its collectives are damaged.
    """
    path = file_of(profile)
    if path is None or not path.is_file() or gpus_per_node < 2:
        return {}
    data = read(path)
    if data.get("gpu") != gpu:
        return {}
    try:
        for group in data.get("collectives", {}).get("groups", ()):
            if group["backend"] == "nccl" and group["ranks"] == group["ranks_per_node"] == gpus_per_node:
                found = group["fits"]["all_gather"]
                return {
                    "nvlink_efficiency": min(1.0, found["bus_bytes_per_s"] / nvlink_bytes_per_s),
                    # A ring takes one step fewer than there are ranks. A fit may leave nothing, which no scenario may.
                    "nvlink_latency_s": max(found["latency_s"], LEAST_LATENCY_S) / (gpus_per_node - 1),
                    "nvlink_ramp_s_per_root_byte": found["ramp_s_per_sqrt_byte"],
                }
    except (AttributeError, KeyError, TypeError):
        expected = "groups as hyscale calibrate --op collectives writes them"
        raise InputError("its collectives are damaged", str(path), field="collectives", expected=expected) from None
    return {}
