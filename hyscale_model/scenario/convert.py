"""Turns resolved plain data into a ``Scenario`` and what pydantic finds into messages for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from hyscale_model import catalog
from hyscale_model.scenario.fields import (
    OVERRIDES,
    FieldType,
    bare,
    choices,
    describe,
    groups,
    hints,
    members,
    nearest,
    suggest,
)
from hyscale_model.scenario.node import Node, Path
from hyscale_model.scenario.problems import Problems
from hyscale_model.scenario.references import REFERENCES
from hyscale_model.scenario.scalars import shorten, show
from hyscale_model.scenario.schema import Scenario

_UNKNOWN = ("unexpected_keyword_argument", "invalid_key")


@cache
def scenario_adapter() -> TypeAdapter[Scenario]:
    """The validator of a whole scenario."""
    return TypeAdapter(Scenario)


def to_scenario(root: Node, problems: Problems) -> Scenario | None:
    """The scenario, or None when something is wrong, which ``problems`` then holds."""
    _check_system_overrides(root, problems)
    try:
        return scenario_adapter().validate_python(root.plain())
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        # Unknown keys first: one that is nearly a missing one explains that it is missing.
        details.sort(key=lambda detail: detail["type"] not in _UNKNOWN)
        explained: set[Path] = set()
        for detail in details:
            if problems.full:
                break
            _translate(detail["type"], detail["loc"], root, problems, explained)
        return None


def dotted(path: Sequence[str | int], root: Node) -> str:
    """A path as ``--set`` would take it: systems by name, other lists by index."""
    parts = [str(part) for part in path]
    if len(path) > 1 and path[0] == "systems":
        name = root.find((*path[:2], "name"))
        if name is not None and isinstance(name.value, str):
            parts[1] = name.value
    return ".".join(parts)


def _check_system_overrides(root: Node, problems: Problems) -> None:
    """Layout and training fields of a system, which the schema keeps as plain mappings."""
    systems = root.child("systems")
    for index, system in enumerate(systems.value if systems is not None and systems.is_list else []):
        for (_, group), owner in OVERRIDES.items():
            table = system.child(group) if system.is_mapping else None
            if table is None or not table.is_mapping:
                continue
            for key, node in table.value.items():
                field = dotted(("systems", index, group, key), root)
                if key not in hints(owner):
                    problems.add(f"unknown key {shorten(str(key))!r}", node, field, suggest(str(key), hints(owner)))
                    continue
                target = FieldType(owner, key)
                try:
                    target.accept(node.plain())
                except ValueError:
                    problems.add(f"{show(node.plain())} is not accepted here", node, field, target.describe())


def _translate(
    kind: str, location: tuple[str | int, ...], root: Node, problems: Problems, explained: set[Path]
) -> None:
    path, annotation, owners = _locate(location)
    node = root.nearest(path)
    field = dotted(path, root) or None
    if kind in _UNKNOWN:
        key = str(path[-1])
        meant = nearest(key, _keys(path, owners))
        if meant is not None:
            explained.add((*path[:-1], meant))
        problems.add(f"unknown key {shorten(key)!r}", node, field, suggest(key, _keys(path, owners)))
    elif kind == "missing":
        if path not in explained:
            problems.add(f"{path[-1]} is missing", root.nearest(path[:-1]), field, _expected(path, annotation))
    elif annotation is None or not path:
        # A check across fields, each of which is reported on its own where that is possible.
        if not problems:
            problems.add("the fields do not fit together", node, field)
    elif kind == "too_short" and node.value:
        # A list counts as short when its elements are refused, which is reported for each of them.
        return
    else:
        found = root.find(path)
        value = found.plain() if found is not None else None
        problems.add(f"{show(value)} is not accepted here", node, field, _expected(path, annotation, value))


def _expected(path: Path, annotation: Any, value: Any = None) -> str:
    text = describe(annotation)
    names = REFERENCES.get(tuple(str(part) for part in path))
    if names is not None:
        return f"a name from the catalogue ({', '.join(catalog.names(names))}) or {text}"
    if isinstance(value, str):
        close = nearest(value, choices(annotation))
        return f"{text}; nearest is {close}" if close else text
    return text


def _keys(path: Path, owners: tuple[type, ...]) -> list[str]:
    names = [name for owner in owners for name in hints(owner)]
    parent = tuple(str(part) for part in path[:-1])
    if parent in REFERENCES or (len(parent) == 2 and parent[0] == "systems") or not parent:
        names.append("extends")
    if parent == ("model",):
        names.append("hf_config")
    return names


def _locate(location: tuple[str | int, ...]) -> tuple[Path, Any, tuple[type, ...]]:
    """The part of pydantic's location that is a path of the file, its annotation, and the classes around it."""
    annotation: Any = Scenario
    owners: tuple[type, ...] = ()
    path: list[str | int] = []
    for part in location:
        owners = groups(annotation)
        if owners:
            path.append(part)
            owner = next((kind for kind in owners if part in hints(kind)), None)
            if owner is None:
                # An unknown key, or the tag of an alternative, neither of which is in the schema.
                return tuple(path), None, owners
            annotation = hints(owner)[str(part)]
            continue
        inner = _element(annotation, part)
        if inner is None:
            break
        path.append(part)
        annotation = inner
    return tuple(path), annotation, owners


def _element(annotation: Any, part: str | int) -> Any:
    """The annotation of one element of a list or mapping; None where ``part`` is not an element."""
    for member in members(annotation):
        kind = bare(member)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is tuple and isinstance(part, int):
            return arguments[0]
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return arguments[1]
    return None
