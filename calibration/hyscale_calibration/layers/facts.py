"""Entries of the model's catalogue, read without the rest of the model, which a measuring machine need not have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


def values_of(kind: str, name: str) -> dict[str, Any]:
    """The values of an entry with those of the entries it extends.

    Args:
        kind: ``models`` or ``systems``; name: of the entry, which is the stem of its file.

    Raises:
        ValueError: there is no such entry; the message names those there are.
    """
    entry = _entry(kind, name)
    base = values_of(kind, entry["extends"]) if "extends" in entry else {}
    return {**base, **entry["values"]}


def one_rank() -> Mapping[str, Any]:
    """Which layers are measured as which systems: ``rows`` and ``systems`` of the catalogue's file."""
    return _entry("layers", "one-rank")


def across_ranks() -> Mapping[str, Any]:
    """Which layers several GPUs share, and as what: ``rows`` and ``variants`` of the catalogue's file."""
    return _entry("layers", "across-ranks")


@cache
def _entry(kind: str, name: str) -> Mapping[str, Any]:
    import yaml

    folder = files("hyscale_model").joinpath("catalog", kind)
    names = sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))
    if name not in names:
        raise ValueError(f"there is no {name!r} among the {kind} of the catalogue: {', '.join(names)}")
    found: Mapping[str, Any] = yaml.safe_load(folder.joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    return found
