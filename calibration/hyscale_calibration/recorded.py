"""Recorded results of benchmarks, ``results/<gpu>/<operation>.json``, and which of them are of other kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from hyscale_calibration.kernel_hash import hash_of_sources

# Holds what was predicted of GPUs, not what was measured.
PREDICTED = "predicted"


def recorded_results() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name, ``<gpu>/<operation>``, and content of each recorded result, in the order of their names."""
    for folder in sorted((files("hyscale_calibration") / "results").iterdir(), key=lambda each: each.name):
        if folder.is_dir() and folder.name != PREDICTED:
            for file in sorted(folder.iterdir(), key=lambda each: each.name):
                if file.name.endswith(".json"):
                    name = f"{folder.name}/{file.name.removesuffix('.json')}"
                    yield name, json.loads(file.read_text(encoding="utf-8"))


def is_stale(record: Mapping[str, Any]) -> bool:
    """Whether the kernels a result was recorded with differ from those installed, or are no longer there.

    Raises:
        ModuleNotFoundError: ``hyscale_kernels`` is not installed.
    """
    try:
        return bool(record["kernel_hash"] != hash_of_sources(record["sources"]))
    except FileNotFoundError:
        return True


def stale_profiles() -> dict[str, list[str]]:
    """Shipped profiles with the operations that they measured with other kernels than those installed.

    Raises:
        ModuleNotFoundError: ``hyscale_kernels`` is not installed.
    """
    from hyscale_calibration.profile_file import stale_operations

    found = {}
    for file in sorted((files("hyscale_calibration") / "profiles").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".json"):
            stale = stale_operations(json.loads(file.read_text(encoding="utf-8")))
            if stale:
                found[file.name.removesuffix(".json")] = stale
    return found


def stale_results() -> list[str]:
    """Names of the recorded results that should be measured again, for their kernels changed.

    Raises:
        ModuleNotFoundError: ``hyscale_kernels`` is not installed.
    """
    return [name for name, record in recorded_results() if is_stale(record)]
