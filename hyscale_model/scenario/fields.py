"""The scenario's schema as paths: which fields there are, what each accepts, and how to say so."""

from __future__ import annotations

import difflib
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from hyscale_model.errors import InputError
from hyscale_model.scenario.scalars import shorten
from hyscale_model.scenario.schema import Layout, Scenario, System, Training

# The parts of a scenario whose numbers and names may be drawn or swept.
VARIABLE_SECTIONS = ("model", "cluster", "layout", "workload", "training", "systems")

# Mappings of the schema whose keys are fields of another class.
OVERRIDES: Mapping[tuple[type, str], type] = {(System, "layout"): Layout, (System, "training"): Training}


# Characters of a list of names in a message.
LIMIT_LISTED = 600

# Stands for the name of every system in a path.
ALL_SYSTEMS = "*"


@dataclass(frozen=True, slots=True)
class FieldType:
    """One field of one class of the schema."""

    owner: type
    name: str

    @property
    def annotation(self) -> Any:
        """The field's annotation with its bounds."""
        return hints(self.owner)[self.name]

    def describe(self) -> str:
        """What the field accepts, in words."""
        return describe(self.annotation)

    def is_whole(self) -> bool:
        """Whether the field is a whole number, which a continuous range cannot be drawn for."""
        return _whole_or_number(self.annotation) == "whole"

    def is_number(self) -> bool:
        """Whether the field is a number of any kind."""
        return _whole_or_number(self.annotation) is not None

    def accept(self, value: Any) -> Any:
        """``value`` as the field would hold it.

        Raises:
            ValueError: the field does not accept it.
        """
        try:
            return _adapter(self.owner, self.name).validate_python(value)
        except ValidationError:
            raise ValueError(self.describe()) from None


@cache
def hints(owner: type) -> dict[str, Any]:
    """Field name -> annotation of a class of the schema."""
    return get_type_hints(owner, include_extras=True)


@cache
def families() -> dict[str, type]:
    """``model_type`` -> class of the schema, for every family of models."""
    return {
        model_type: kind
        for kind in groups(hints(Scenario)["model"])
        for model_type in get_args(bare(hints(kind)["model_type"]))
    }


@cache
def _adapter(owner: type, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(hints(owner)[name])


def bare(annotation: Any) -> Any:
    """An annotation without ``Annotated``."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation itself."""
    annotation_ = bare(annotation)
    if get_origin(annotation_) in (Union, types.UnionType):
        return get_args(annotation_)
    return (annotation,)


def groups(annotation: Any) -> tuple[type, ...]:
    """The classes of the schema an annotation names: one, or several of a union."""
    return tuple(kind for kind in map(bare, members(annotation)) if is_dataclass(kind) and isinstance(kind, type))


def is_group(annotation: Any) -> bool:
    """Whether a value is always a group of fields, never a name, a number or nothing."""
    return len(groups(annotation)) == len(members(annotation))


def field_type(path: str, systems: Collection[str], model_type: str | None = None) -> FieldType:
    """The field at a dotted path that may be drawn or swept, such as ``layout.pp`` or ``systems.mine.table_rows``.

    ``systems.*.table_rows`` is that field of every system. ``model_type`` is that of the model, whose family alone has
    fields then; without one every family has.

    Raises:
        InputError: there is no such field; the nearest one is named. Only problem, field and expected are set.
    """
    section, *rest = path.split(".")
    if section not in VARIABLE_SECTIONS:
        raise _unknown(path, "", section, VARIABLE_SECTIONS)
    owners: tuple[type, ...]
    if section == "systems":
        # The name of a system may itself hold dots.
        remainder = path.removeprefix("systems").removeprefix(".")
        offered = [ALL_SYSTEMS, *systems]
        matching = [known for known in offered if remainder == known or remainder.startswith(known + ".")]
        name = max(matching, key=len, default=None)
        if name is None:
            raise _unknown(path, "systems.", rest[0] if rest else "", systems)
        owners, prefix = (System,), f"systems.{name}."
        rest = [part for part in remainder.removeprefix(name).split(".") if part]
    else:
        owners, prefix = groups(hints(Scenario)[section]), f"{section}."
        if section == "model" and model_type in families():
            owners = (families()[model_type],)
    while rest:
        part = rest.pop(0)
        owner = next((kind for kind in owners if part in hints(kind) and part != "name"), None)
        if owner is None:
            raise _unknown(path, prefix, part, [n for kind in owners for n in hints(kind) if n != "name"])
        annotation = hints(owner)[part]
        deeper = groups(annotation) if is_group(annotation) else tuple(filter(None, [OVERRIDES.get((owner, part))]))
        if not deeper and rest:
            raise InputError(f"{prefix}{part} has no fields of its own", field=path, expected=f"{prefix}{part}")
        if not deeper:
            return FieldType(owner, part)
        owners, prefix = deeper, f"{prefix}{part}."
    options = [name for kind in owners for name in hints(kind) if name != "name"]
    raise InputError(
        f"{prefix[:-1]} is a group of fields", field=path, expected=f"one of its fields: {', '.join(options)}"
    )


def _unknown(path: str, prefix: str, part: str, options: Iterable[str]) -> InputError:
    return InputError(
        f"there is no field {shorten(path)!r}", field=shorten(path), expected=suggest(part, options, prefix)
    )


def suggest(word: str, options: Iterable[str], prefix: str = "") -> str:
    """The nearest of ``options`` first, then all of them."""
    options = list(dict.fromkeys(options))
    if not options:
        return "nothing here"
    close = nearest(word, options)
    if len(options) == 1:
        return prefix + options[0]
    listed = _listed(options)
    return f"{prefix}{close} (one of {listed})" if close else f"one of {listed}"


def _listed(options: list[str]) -> str:
    """Options one after another, as many as a person would read."""
    text = ", ".join(options)
    if len(text) <= LIMIT_LISTED:
        return text
    shown = text[:LIMIT_LISTED].rpartition(", ")[0]
    return f"{shown} and {len(options) - shown.count(', ') - 1} more"


def nearest(word: object, options: Iterable[str]) -> str | None:
    """The option a misspelt ``word`` most likely meant."""
    by_lower = {option.lower(): option for option in options}
    asked = str(word)[:80].lower()
    # h20 means a version of h20, not h200, which differs in fewer letters.
    versions = [option for option in by_lower if asked and option.startswith(asked + "-")]
    close = versions or difflib.get_close_matches(asked, by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else None


def bounds(annotation: Any) -> dict[str, Any]:
    """The limits of an annotated value: any of ge, gt, le, lt and min_length."""
    found: dict[str, Any] = {}
    if get_origin(annotation) is Annotated:
        for entry in get_args(annotation)[1:]:
            for limit in getattr(entry, "metadata", ()):
                found.update(
                    {key: getattr(limit, key) for key in ("ge", "gt", "le", "lt", "min_length") if hasattr(limit, key)}
                )
    return found


def _whole_or_number(annotation: Any) -> str | None:
    kinds = {bare(member) for member in members(annotation)}
    if int in kinds:
        return "whole"
    return "number" if float in kinds else None


def choices(annotation: Any) -> tuple[str, ...]:
    """The names an annotation allows, if it lists any."""
    kinds = [bare(member) for member in members(annotation)]
    return tuple(str(option) for kind in kinds if get_origin(kind) is Literal for option in get_args(kind))


def describe(annotation: Any) -> str:
    """What an annotation accepts, in words: type, bounds and allowed values."""
    options = members(annotation)
    if len(options) > 1 and is_group(annotation):
        return f"a mapping with model_type ({', '.join(families())}) and the fields of that family"
    if len(options) > 1:
        return " or ".join(describe(option) for option in options)
    kind, known = bare(annotation), bounds(annotation)
    if kind is type(None):
        return "null"
    if get_origin(kind) is Literal:
        return " or ".join(str(option) for option in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is str:
        return "text that is not empty" if known.get("min_length") else "text"
    if kind in (int, float):
        limits = [
            f"{words} {known[key]:g}"
            for key, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
            if key in known
        ]
        name = "a whole number" if kind is int else "a number"
        return " ".join([name, " and ".join(limits)]) if limits else name
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if len(items) == 2 and items[1] is not Ellipsis:
            return f"a list of two, each {describe(items[0])}"
        name = "a list that is not empty" if known.get("min_length") else "a list"
        return name if items[0] is Any or groups(items[0]) else f"{name}, each {describe(items[0])}"
    if is_dataclass(kind) and isinstance(kind, type):
        return f"a mapping with {', '.join(hints(kind))}"
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        return "a mapping"
    return "a value"


def assign(scenario: Scenario, path: str, value: Any) -> Scenario:
    """The scenario with one field, named by its dotted path, set to ``value``."""
    if path.startswith("systems."):
        remainder = path.removeprefix("systems.")
        named = {
            system.name: remainder.removeprefix(f"{name}.")
            for system in scenario.systems
            for name in (system.name, ALL_SYSTEMS)
            if remainder.startswith(f"{name}.")
        }
        systems = tuple(
            _assign(system, named[system.name].split("."), value) if system.name in named else system
            for system in scenario.systems
        )
        return replace(scenario, systems=systems)
    changed: Scenario = _assign(scenario, path.split("."), value)
    return changed


def _assign(target: Any, parts: list[str], value: Any) -> Any:
    head, *rest = parts
    if isinstance(target, Mapping):
        return {**target, head: value}
    return replace(target, **{head: _assign(getattr(target, head), rest, value) if rest else value})


def field_names(owner: type) -> tuple[str, ...]:
    """The names of a class's fields in order."""
    return tuple(entry.name for entry in fields(owner))
