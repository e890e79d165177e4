"""Profiles and anchor GPUs by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hyscale_model import catalog
from hyscale_model.catalog import measured
from hyscale_model.errors import InputError
from hyscale_model.rates.measured import parse_measured
from hyscale_model.rates.profile import Profile
from hyscale_model.scenario.fields import suggest
from hyscale_model.scenario.load import load
from hyscale_model.scenario.schema import Gpu, Scenario


@lru_cache(maxsize=64)
def gpu_named(name: str) -> Gpu:
    """A GPU of the catalogue; InputError with the nearest name otherwise."""
    return Gpu(name=name, **catalog.entry("gpus", name).values)


# The shipped rates of an architecture other than Hopper, where a scenario asks for the published ones; and of what a
# measured profile has no fit of.
PUBLISHED = "published"


def load_profile(name: str, architecture: str = "hopper") -> Profile:
    """A measured or shipped profile by name, or a profile file by path.

    ``published`` stands for that of the architecture.

    Raises:
        InputError: there is no such profile, or it cannot be used.
    """
    if name == PUBLISHED and f"{name}-{architecture}" in catalog.names("profiles"):
        return _shipped(f"{name}-{architecture}")
    if name not in catalog.names("profiles"):
        file = measured.file_of(name)
        if file is not None:
            return _measured(file)
        if Path(name).suffix in (".yaml", ".yml"):
            return Profile.parse(load(name).data)
    try:
        return _shipped(name)
    except InputError as error:
        offered = suggest(name, (*catalog.names("profiles"), *measured.paths()))
        raise replace(error, field="profile", expected=offered) from None


def _measured(path: Path) -> Profile:
    return _parsed(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=16)
def _parsed(path: Path, _written: int) -> Profile:
    return checked(measured.read(path), str(path))


def checked(data: Mapping[str, Any], where: str) -> Profile:
    """The rates of a measured profile given by its contents.

    Raises:
        InputError: it cannot be used, as ``load_profile`` says of its file; ``where`` is what messages call it.
    """
    return parse_measured(data, _shipped(PUBLISHED), where)


def profile_of(scenario: Scenario) -> Profile:
    """The profile a scenario names, for the architecture of its GPU."""
    return load_profile(scenario.profile, scenario.cluster.gpu.architecture)


@lru_cache(maxsize=8)
def _shipped(name: str) -> Profile:
    return Profile.parse(catalog.document("profiles", name).data)
