"""What a page asks: a scenario and what differs from it. Everything in it comes from a browser and is checked here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hyscale_model.batch import generic
from hyscale_model.errors import InputError
from hyscale_model.scenario.fields import field_type
from hyscale_model.scenario.load import parse_value
from hyscale_model.scenario.scalars import shorten
from hyscale_model.scenario.schema import Assumption, System

# Names of catalogue entries in place of whole groups of fields.
NAMED = ("model", "cluster", "cluster.gpu")
# A page has fewer controls than this; an address with more is no question.
LIMIT_CHANGES = 256
LIMIT_TEXT = 200


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the model, as a key of caches.

    Attributes:
        scenario: its name as ``Offer`` knows it.
        changes: (path, value as ``--set`` takes it), in order.
        ranges: (path of an assumption, its new ends or choices).
        systems: names of the systems to compare; none: those of the scenario.
    """

    scenario: str
    changes: tuple[tuple[str, str], ...] = ()
    ranges: tuple[tuple[str, tuple[str, ...]], ...] = ()
    systems: tuple[str, ...] = ()

    @classmethod
    def from_page(cls, data: Any, default: str = "") -> Question:
        """A question from what the browser sent: ``{"scenario", "set", "range", "systems"}``.

        Args:
            data: what it sent.
            default: the scenario of a page that names none.

        Raises:
            InputError: it asks for something that no control of a page could ask for.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("scenario") or default, str):
            raise InputError("the address names no scenario", expected="?scenario=name")
        changes, ranges = _texts(data.get("set")), _texts(data.get("range"))
        systems = data.get("systems") or ()
        if isinstance(systems, str) or not isinstance(systems, Sequence) or len(systems) > LIMIT_CHANGES:
            raise InputError("the systems are no list of names", field="systems")
        return cls(
            scenario=data.get("scenario") or default,
            changes=tuple((path, _scalar(path, text)) for path, text in changes.items()),
            ranges=tuple((path, tuple(text.split(","))) for path, text in ranges.items()),
            systems=tuple(str(name) for name in systems),
        )

    @property
    def structure(self) -> Question:
        """The same question without what leaves the fields of the scenario as they are."""
        return Question(self.scenario, tuple(each for each in self.changes if each[0] in NAMED), (), self.systems)

    def overrides(self, assumptions: Sequence[Assumption]) -> tuple[str, ...]:
        """The changes as ``--set`` takes them; ``assumptions`` are those of the scenario itself.

        Raises:
            InputError: a range belongs to no assumption.
        """
        found = [f"{path}={value}" for path, value in self.changes]
        if not self.ranges:
            return tuple(found)
        drawn = {generic(each.path): _plain(each) for each in assumptions}
        for path, values in self.ranges:
            if path not in drawn:
                raise InputError(f"nothing is assumed about {shorten(path)!r}", field="range")
            entry, numbers = drawn[path], [_value(path, text) for text in values]
            if len(set(values)) == 1:
                # One value left is no longer unknown.
                found.append(f"{path}={values[0]}")
                del drawn[path]
            elif "range" in entry:
                entry["range"] = numbers
            else:
                entry |= _chosen(path, entry, numbers)
        return (*found, f"assumptions={json.dumps(list(drawn.values()))}")


def _texts(data: Any) -> dict[str, str]:
    data = data or {}
    if not isinstance(data, Mapping) or len(data) > LIMIT_CHANGES:
        raise InputError(f"there are more than {LIMIT_CHANGES} changes, or they are no mapping", field="set")
    return {str(path): str(value) for path, value in data.items()}


def _scalar(path: str, text: str) -> str:
    """The value of a change. Only fields that hold one value can be set, so nothing can name a file."""
    if path not in NAMED:
        if path.startswith("systems."):
            name = path.rpartition(".")[2]
            if name not in {entry.name for entry in fields(System)} - {"name", "layout", "training"}:
                raise InputError("no control sets this field", field=shorten(path))
        else:
            field_type(path, ())
    _value(path, text)
    return text


def _value(path: str, text: str) -> Any:
    node = parse_value(text.strip(), path) if len(text) <= LIMIT_TEXT and "\n" not in text else None
    if node is None or node.is_mapping or node.is_list:
        raise InputError(f"{shorten(text)!r} is not one value", field=shorten(path), expected="a number or a name")
    return node.value


def _plain(assumption: Assumption) -> dict[str, Any]:
    found: dict[str, Any] = {"path": generic(assumption.path), "reason": assumption.reason}
    for key in ("choices", "weights", "range"):
        if getattr(assumption, key) is not None:
            found[key] = list(getattr(assumption, key))
    return found


def _chosen(path: str, entry: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    known = entry["choices"]
    unknown = [value for value in values if value not in known]
    if unknown:
        raise InputError(f"{unknown[0]} is not among the choices of {path}", field="range", expected=str(known))
    kept: dict[str, Any] = {"choices": [choice for choice in known if choice in values]}
    if entry.get("weights"):
        pairs = zip(known, entry["weights"], strict=True)
        kept["weights"] = [weight for choice, weight in pairs if choice in values]
    return kept
