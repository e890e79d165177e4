"""Applies ``--set path=value`` and ``--system NAME`` to a scenario before its names are resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.scenario.documents import FORMS
from hyscale_model.scenario.fields import ALL_SYSTEMS, families, field_names, groups, hints, nearest, suggest
from hyscale_model.scenario.load import parse_value
from hyscale_model.scenario.node import Node, node_of
from hyscale_model.scenario.references import BASES, merge, system_name
from hyscale_model.scenario.scalars import shorten
from hyscale_model.scenario.schema import DocumentLengths, Scenario

SET = "--set"
SYSTEM = "--system"

# Keys of these are dotted paths themselves.
_PATH_KEYED = ("sweep", "zip")


def apply_overrides(root: Node, overrides: Sequence[str]) -> tuple[Node, frozenset[str]]:
    """The scenario with each ``path=value`` laid on it, and the paths that were set.

    Raises:
        InputError: an override is not ``path=value``, its value is not YAML, or there is no such path.
    """
    paths = []
    for text in overrides:
        path, separator, value = text.partition("=")
        path = path.strip()
        if not separator or not path:
            raise InputError(f"{shorten(text)!r} is not path=value", SET, expected="path=value, such as layout.pp=8")
        root = _apply(root, path, _value(value, path))
        paths.append(path)
    return root, frozenset(paths)


def select_systems(root: Node, names: Sequence[str]) -> Node:
    """The scenario with only the named systems, in that order; those it lacks come from the catalogue.

    Raises:
        InputError: a name is neither in the scenario nor in the catalogue.
    """
    if not names:
        return root
    listed = root.child("systems")
    items = listed.value if listed is not None and listed.is_list else []
    known = {name: item for item in items if (name := system_name(item)) is not None}
    offered = [*known, *catalog.names("systems")]
    chosen = []
    for name in dict.fromkeys(names):
        if name not in offered:
            raise InputError(f"there is no system {shorten(name)!r}", SYSTEM, expected=suggest(name, offered))
        chosen.append(known.get(name) or Node(name, SYSTEM))
    place = listed or root
    return root.with_child("systems", place.with_value(chosen))


def _value(text: str, path: str) -> Node:
    try:
        return parse_value(text.strip(), SET)
    except InputError as error:
        raise replace(error, line=None, field=shorten(path)) from None


def _apply(root: Node, path: str, value: Node) -> Node:
    section, _, rest = path.partition(".")
    if section not in field_names(Scenario):
        raise InputError(
            f"there is no field {shorten(path)!r}", SET, None, shorten(path), suggest(section, field_names(Scenario))
        )
    if not rest:
        return root.with_child(section, value)
    if section in _PATH_KEYED:
        return merge(root, _nested([section, rest], value), keep_place=True)
    if section == "systems":
        return _apply_to_system(root, path, rest, value)
    parts = path.split(".")
    _check_path(path, parts, root)
    return merge(root, _nested(parts, value), keep_place=True)


def _check_path(path: str, parts: list[str], root: Node) -> None:
    """Refuses a path into nothing, of which the scenario could only say that a key is unknown."""
    owners: tuple[type, ...] = (Scenario,)
    for index, part in enumerate(parts):
        options = [name for owner in owners for name in hints(owner)]
        inside = [owner for owner in owners if part in hints(owner)]
        extra = FORMS if DocumentLengths in owners else BASES if index == 1 else ()
        if not inside and part not in extra:
            prefix = ".".join(parts[:index])
            expected = suggest(part, options, f"{prefix}." if prefix else "") if options else prefix
            raise InputError(f"there is no field {shorten(path)!r}", SET, None, shorten(path), expected)
        owners = tuple(kind for owner in inside for kind in groups(hints(owner)[part]))
        if parts[: index + 1] == ["model"]:
            owners = _family(root.child("model")) or owners


def _family(model: Node | None) -> tuple[type, ...]:
    """The class of the model, where that is known before names are resolved."""
    for _ in range(len(catalog.names("models")) + 1):
        stated = model.child("model_type") if model is not None else None
        if stated is not None:
            kind = families().get(str(stated.value))
            return (kind,) if kind else ()
        base = model.child("extends") if model is not None and model.is_mapping else model
        if base is None or not isinstance(base.value, str) or base.value not in catalog.names("models"):
            return ()
        entry = catalog.entry("models", base.value)
        model = node_of({"extends": entry.extends, **entry.values}, SET)
    return ()


def _apply_to_system(root: Node, path: str, rest: str, value: Node) -> Node:
    listed = root.child("systems")
    items: list[Node] = listed.value if listed is not None and listed.is_list else []
    names = [name for name in map(system_name, items) if name is not None]
    name = max((name for name in [ALL_SYSTEMS, *names] if rest.startswith(name + ".")), key=len, default=None)
    if listed is None or name is None:
        word = rest.partition(".")[0]
        close = nearest(word, names)
        raise InputError(
            f"there is no system {shorten(word)!r} in the scenario",
            SET,
            None,
            shorten(path),
            f"systems.{close}" if close else f"one of {', '.join(names)}",
        )
    change = _nested(rest.removeprefix(name + ".").split("."), value)
    changed = [
        _change_system(item, own, change) if (own := system_name(item)) and name in (own, ALL_SYSTEMS) else item
        for item in items
    ]
    return root.with_child("systems", listed.with_value(changed))


def _change_system(item: Node, name: str, change: Node) -> Node:
    if not item.is_mapping:
        item = item.with_value({"name": item.with_value(name), "extends": item.with_value(name)})
    return merge(item, change, keep_place=True)


def _nested(parts: Sequence[str], value: Node) -> Node:
    for part in reversed(parts):
        value = Node({part: value}, SET)
    return value
