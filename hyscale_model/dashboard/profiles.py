"""Measured profiles that a page may look at: those of this machine by name, and those that a browser sends along."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hyscale_model.catalog import measured
from hyscale_model.dashboard.offer import UPLOAD
from hyscale_model.errors import InputError
from hyscale_model.rates.load import checked

KIND = "profile"


class KnownProfiles:
    """Profiles of the user's directory, shipped ones and uploads.

    Args:
        uploads: what the browser keeps: key -> ``{"name", "text", "kind"}``.
    """

    def __init__(self, uploads: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._uploads = {key: kept for key, kept in (uploads or {}).items() if kept.get("kind") == KIND}

    def names(self) -> dict[str, str]:
        """Names of profiles that were fitted, with what people call them."""
        known = {name: name for name, data in measured.usable() if data.get("fits")}
        return known | {f"{UPLOAD}{key}": f"{kept['name']} (uploaded)" for key, kept in self._uploads.items()}

    def compared(self, name: str) -> Mapping[str, Any]:
        """Points of a profile beside what its fits say of them, and what else there is to tell of it.

        Raises:
            InputError: there is no such profile, or it is damaged.
        """
        if name.startswith(UPLOAD):
            kept = self._uploads.get(name.removeprefix(UPLOAD))
            if kept is None:
                problem = "this address belongs to a profile uploaded in another browser or session"
                raise InputError(problem, expected="the same file, uploaded again")
            return of_text(str(kept["text"]), str(kept["name"]))
        path = measured.paths().get(name)
        if path is None:
            raise InputError(f"there is no profile {name[:80]!r}", expected=f"one of {', '.join(measured.paths())}")
        return _of_file(name, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _of_file(name: str, _written: int) -> Mapping[str, Any]:
    path = measured.paths()[name]
    return _compared(measured.read(path), str(path))


@lru_cache(maxsize=8)
def of_text(text: str, name: str) -> Mapping[str, Any]:
    """The same of a profile given as text.

    Raises:
        InputError: it is damaged or no profile.
    """
    return _compared(measured.parse(text, name), name)


def _summary(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a page tells of a profile beside its points, each part looked at once so that none is missing later."""
    fits = data["fits"]
    return {
        "name": str(data["name"]),
        "gpu": str(data["gpu"]),
        "measured": len(data["measurements"]),
        "failed": len(data["failed"]),
        "machines": [
            f"{each['name']}, torch {each.get('torch')}, Triton {each.get('triton')}"
            for each in data["machines"].values()
        ],
        "held_out": _errors(fits["held_out"]),
        "families": {
            str(name): {
                "fit": int(entry["fit"]["n"]),
                "held_out": _errors(entry["held_out"]),
                "spread": float(entry["spread"]),
            }
            for name, entry in fits["families"].items()
        },
        "unfitted": {str(name): str(reason) for name, reason in fits["unfitted"].items()},
    }


def _errors(entry: Mapping[str, Any]) -> dict[str, Any]:
    if not int(entry["n"]):
        return {"n": 0}
    names = ("median", "p95", "worst", "coverage")
    return {"n": int(entry["n"]), **{name: float(entry[name]) for name in names}, "worst_id": str(entry["worst_id"])}


def _compared(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    # What cannot be predicted with is told as the command line tells it.
    checked(data, where)
    try:
        from hyscale_calibration.compared import compared
        from hyscale_calibration.profile_file import ProfileError
    except ImportError as error:
        raise InputError(f"comparing needs a package that is not installed: {error}") from None
    try:
        return {**compared(data, where), **_summary(data)}
    except ProfileError as error:
        raise InputError(str(error)) from None
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        problem = f"a measurement cannot be read: {type(error).__name__}: {error}"
        raise InputError(problem, where, field="measurements", expected="what hyscale calibrate writes") from None
