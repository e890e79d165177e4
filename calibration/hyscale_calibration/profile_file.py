"""The file of a profile: what was measured, of what, with what; JSON that is versioned, diffs well and merges.

::

    {"schema_version": 1, "kind": "measured", "name": ..., "gpu": catalogue name or null,
     "machines": {key: identity}, "kernels": {operation: hash of its kernels},
     "collectives": {"measured": false, "reason": ...} or {"measured": true, "groups": [...]},
     "measurements": [{"id", "operation", "row", "dtype", "shape", "sms", "part", "machine", "median_ms", ...}],
     "failed": [{"id", "message"}],
     "fits": {family: ...}}

Measurements and failures stand one a line, in the order of their ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hyscale_calibration.benches import registry
from hyscale_calibration.kernel_hash import hash_of_sources
from hyscale_model.whole import replacing

SCHEMA_VERSION = 1
KIND = "measured"
# Lists that have an entry a line.
_LISTS = ("measurements", "failed")
_KEYS = ("schema_version", "kind", "name", "gpu", "machines", "kernels", "collectives", *_LISTS, "fits")
_NEEDED = {"measurements": ("id", "row", "dtype", "shape", "sms", "part", "machine", "median_ms"), "failed": ("id",)}
NOT_MEASURED = {"measured": False, "reason": "one GPU; run under torchrun to measure them"}

# What torch calls a GPU, exactly, and its memory in GiB where the name is not enough -> name in the catalogue.
_CATALOGUE = {
    ("NVIDIA H100 80GB HBM3", None): "h100",
    ("NVIDIA H200", None): "h200",
    ("NVIDIA H800", None): "h800",
    ("NVIDIA H20", 96): "h20-96",
    ("NVIDIA H20", 141): "h20-141",
    ("NVIDIA H20-3e", None): "h20-141",
    ("NVIDIA A100-SXM4-80GB", None): "a100",
    ("NVIDIA B200", None): "b200",
    ("NVIDIA B300 SXM6 AC", None): "b300",
}
# Reported memory lies a little below the nominal one.
_MEMORY_SLACK = 0.1


class ProfileError(ValueError):
    """A profile that cannot be used; the message names the file, what is wrong and what would be right."""


def catalogue_name(identity: Mapping[str, Any]) -> str | None:
    """The catalogue's name of a GPU; None of one that it does not have."""
    for (name, nominal), found in _CATALOGUE.items():
        gibibytes = identity["memory_bytes"] / 2**30
        if identity["name"] == name and (nominal is None or abs(gibibytes / nominal - 1) < _MEMORY_SLACK):
            return found
    return None


def machine_key(identity: Mapping[str, Any]) -> str:
    """What measurements call the machine they were made on: a hash of its identity."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def empty(name: str, gpu: str | None) -> dict[str, Any]:
    """A profile without measurements."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "name": name,
        "gpu": gpu,
        "machines": {},
        "kernels": {},
        "collectives": dict(NOT_MEASURED),
        "measurements": [],
        "failed": [],
        "fits": {},
    }


def dumps(profile: Mapping[str, Any]) -> str:
    """The text of a profile, the same for equal contents."""
    parts = []
    for key in _KEYS:
        if key in _LISTS:
            lines = [json.dumps(each, allow_nan=False) for each in sorted(profile[key], key=lambda each: each["id"])]
            text = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"
        else:
            text = json.dumps(profile[key], indent=1, allow_nan=False, sort_keys=key != "fits").replace("\n", "\n ")
        parts.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def short(value: float) -> float:
    """A number as profiles have it, with four digits: more of them differ from computer to computer, and none of them
    means anything."""
    return float(f"{value:.4g}")


def write(path: Path, profile: Mapping[str, Any]) -> None:
    """Write a profile whole or not at all: an interruption leaves the one before."""
    with replacing(path) as unfinished:
        unfinished.write_text(dumps(profile), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A profile from its file.

    Raises:
        ProfileError: it cannot be read, is cut short, is no profile, or of another version.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProfileError(
            f"{path}:{error.lineno}: not JSON ({error.msg}): the file is damaged or cut short. It is left as it is; "
            "measure into another file, or repair it"
        ) from None
    return validated(data, str(path))


def validated(data: Any, where: str) -> dict[str, Any]:
    """The data if they are a measured profile of this version.

    Raises:
        ProfileError: they are not.
    """
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ProfileError(f"{where}: no measured profile: it lacks kind: {KIND}")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise ProfileError(
            f"{where}: schema version {data.get('schema_version')!r}, this program reads and writes {SCHEMA_VERSION}: "
            "measure again, or use the version of hyscale-model that wrote it"
        )
    missing = [key for key in _KEYS if key not in data]
    if missing:
        raise ProfileError(f"{where}: lacks {', '.join(missing)}")
    for key, needed in _NEEDED.items():
        for number, entry in enumerate(data[key]):
            lacking = [name for name in needed if not isinstance(entry, dict) or name not in entry]
            if lacking:
                raise ProfileError(f"{where}: {key}[{number}] lacks {', '.join(lacking)}")
    collectives = data["collectives"]
    if not isinstance(collectives, dict) or (collectives.get("measured") and not collectives.get("groups")):
        raise ProfileError(f"{where}: collectives are measured but have no groups: measure them again")
    for entry in data["measurements"]:
        if not entry["median_ms"] > 0:
            raise ProfileError(f"{where}: {entry['id']} took {entry['median_ms']} ms, which no kernel does")
    return data


def kernel_hashes(operations: Iterable[str]) -> dict[str, str | None]:
    """Hash of the installed kernels of each operation; None where they are a library's."""
    return {name: hash_of_sources(registry.load(name).sources) for name in sorted(set(operations))}


def stale_operations(profile: Mapping[str, Any]) -> list[str]:
    """Operations whose installed kernels are not those that were measured, or that no longer exist."""
    stale = []
    for name, measured in profile["kernels"].items():
        try:
            (now,) = kernel_hashes([name]).values() if name in registry.NAMES else (None,)
        except FileNotFoundError:
            now = None
        if name not in registry.NAMES or now != measured:
            stale.append(name)
    return stale


def merged(profiles: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """One profile of several of one GPU, given as (name for messages, contents); without fits.

    Of a point that several have, the measurement of more samples stays, then the shorter one, so that the order does
    not matter. What failed in one and was measured in another is measured.

    Raises:
        ProfileError: they are of different GPUs, or of different kernels.
    """
    given = list(profiles)
    first, result = given[0]
    # One that holds collectives alone does not know its GPU.
    gpu = next((profile["gpu"] for _, profile in given if profile["gpu"] is not None), None)
    result = empty(result["name"], gpu)
    best: dict[str, Mapping[str, Any]] = {}
    failed: dict[str, Mapping[str, Any]] = {}
    cards: dict[tuple[Any, ...], str] = {}
    for where, profile in given:
        for identity in profile["machines"].values():
            cards.setdefault((identity["name"], identity["sms"]), where)
        for operation, kernels in profile["kernels"].items():
            known = result["kernels"].setdefault(operation, kernels)
            if known != kernels:
                raise ProfileError(
                    f"{where}: {operation} was measured with other kernels than in {first}: measure it again in one of "
                    "them (hyscale doctor tells which is stale)"
                )
        result["machines"] |= profile["machines"]
        for entry in profile["measurements"]:
            known = best.setdefault(entry["id"], entry)
            if _rank(entry) < _rank(known):
                best[entry["id"]] = entry
        failed |= {entry["id"]: entry for entry in profile["failed"]}
        for group in profile["collectives"].get("groups", ()):
            result["collectives"] = with_group(result["collectives"], group)
    if len(cards) > 1:
        told = " and ".join(f"{name} with {sms} SMs ({where})" for (name, sms), where in cards.items())
        raise ProfileError(f"profiles of different GPUs cannot be merged: {told}")
    result["measurements"] = list(best.values())
    result["failed"] = [entry for name, entry in failed.items() if name not in best]
    return result


def with_group(collectives: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    """Measured collectives with those of another group of ranks; of the same ranks the faster measurement stays."""
    groups: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for each in (*collectives.get("groups", ()), group):
        key = (each["ranks"], each["ranks_per_node"], each["backend"])
        groups[key] = min(groups.get(key, each), each, key=_group_rank)
    return {"measured": True, "groups": [groups[key] for key in sorted(groups)]}


def _group_rank(group: Mapping[str, Any]) -> tuple[Any, ...]:
    return sum(row["median_s"] for row in group["rows"]), json.dumps(group, sort_keys=True)


def _rank(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (-entry.get("samples", 0), entry["median_ms"], json.dumps(entry, sort_keys=True))
