"""Turns resolved plain data into a ``Scenario`` and what pydantic finds into messages for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from hyscale_model import catalog
from hyscale_model.scenario.documents import DOCUMENTS, FORMS, FORMS_IN_WORDS
from hyscale_model.scenario.fields import (
    OVERRIDES,
    FieldType,
    bare,
    choices,
    describe,
    families,
    groups,
    hints,
    members,
    nearest,
    suggest,
)
from hyscale_model.scenario.models import Model
from hyscale_model.scenario.node import Node, Path
from hyscale_model.scenario.problems import Problems
from hyscale_model.scenario.references import REFERENCES
from hyscale_model.scenario.scalars import shorten, show
from hyscale_model.scenario.schema import Scenario

_UNKNOWN = ("unexpected_keyword_argument", "invalid_key")
_UNKNOWN_FAMILY = ("union_tag_invalid", "union_tag_not_found")


@cache
def scenario_adapter() -> TypeAdapter[Scenario]:
    """The validator of a whole scenario."""
    return TypeAdapter(Scenario)


@cache
def model_adapter() -> TypeAdapter[Model]:
    """The validator of a model of any family, which takes a while to build."""
    return TypeAdapter(Model)


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
    place = _locate(location)
    path, annotation = place.path, place.annotation
    node = root.nearest(path)
    field = dotted(path, root) or None
    if kind in _UNKNOWN:
        keys = _keys(path, place.owner)
        key = str(path[-1])
        meant = nearest(key, keys)
        if meant is not None:
            explained.add((*path[:-1], meant))
        problems.add(f"unknown key {shorten(key)!r}", node, field, suggest(key, keys))
    elif kind == "missing":
        if path not in explained:
            problems.add(f"{path[-1]} is missing", root.nearest(path[:-1]), field, _expected(path, annotation))
    elif kind in _UNKNOWN_FAMILY:
        _family(path, root, problems)
    elif annotation is None or not path:
        # A check across fields, each of which is reported on its own where that is possible.
        if not problems:
            problems.add("the fields do not fit together", node, field)
    elif kind == "too_short" and node.value:
        # A list counts as short when its elements are refused, which is reported for each of them.
        return
    elif place.other and node.is_mapping:
        # A mapping is meant for the alternative with fields, which are reported one by one.
        return
    else:
        found = root.find(path)
        value = found.plain() if found is not None else None
        problems.add(f"{show(value)} is not accepted here", node, field, _expected(path, annotation, value))


def _family(path: Path, root: Node, problems: Problems) -> None:
    """A model whose ``model_type`` does not say of which family it is."""
    node = root.nearest(path)
    stated = node.child("model_type")
    field = dotted((*path, "model_type"), root)
    if stated is not None:
        word = stated.plain()
        problems.add(f"there is no family {show(word)}", stated, field, suggest(str(word), families()))
        return
    keys = node.value if node.is_mapping else {}
    close = nearest("model_type", [key for key in keys if isinstance(key, str) and "type" in key])
    problem = f"unknown key {shorten(close)!r} where model_type is missing" if close else "model_type is missing"
    problems.add(problem, node, field, suggest("", families()))


def _expected(path: Path, annotation: Any, value: Any = None) -> str:
    text = FORMS_IN_WORDS if path == DOCUMENTS else describe(annotation)
    names = REFERENCES.get(tuple(str(part) for part in path))
    if names is not None:
        return f"a name from the catalogue ({', '.join(catalog.names(names))}) or {text}"
    if isinstance(value, str):
        close = nearest(value, choices(annotation))
        return f"{text}; nearest is {close}" if close else text
    return text


def _keys(path: Path, owner: type | None) -> list[str]:
    names = list(hints(owner)) if owner is not None else []
    parent = tuple(str(part) for part in path[:-1])
    if parent in REFERENCES or (len(parent) == 2 and parent[0] == "systems") or not parent:
        names.append("extends")
    if parent == ("model",):
        names.append("hf_config")
    if parent == DOCUMENTS:
        names.extend(FORMS)
    return names


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the file an error of pydantic is.

    Attributes:
        path: the part of pydantic's location that is a path of the file.
        annotation: what stands there; None for a key that is unknown.
        owner: the class around it.
        other: whether the error is about an alternative without fields of a union that has one with fields.
    """

    path: Path
    annotation: Any
    owner: type | None
    other: bool = False


def _locate(location: tuple[str | int, ...]) -> _Place:
    annotation: Any = Scenario
    owner: type | None = None
    path: list[str | int] = []
    for index, part in enumerate(location):
        if _is_labelled(annotation):
            # Pydantic names the alternative it tried, which is no key of the file.
            chosen = _alternative(annotation, part)
            if chosen is None or index == len(location) - 1:
                return _Place(tuple(path), annotation, owner, chosen is None and bool(groups(annotation)))
            annotation = chosen
            continue
        kinds = groups(annotation)
        if kinds:
            owner = kinds[0]
            path.append(part)
            if part not in hints(owner):
                return _Place(tuple(path), None, owner)
            annotation = hints(owner)[str(part)]
            continue
        inner = _element(annotation, part)
        if inner is None:
            break
        path.append(part)
        annotation = inner
    return _Place(tuple(path), annotation, owner)


def _is_labelled(annotation: Any) -> bool:
    """Whether pydantic's locations name one of several alternatives; "or nothing" is none of them."""
    return len([kind for kind in members(annotation) if bare(kind) is not type(None)]) > 1


def _alternative(annotation: Any, label: str | int) -> type | None:
    """The class a label stands for: by the tag of the union, or by its name."""
    kinds = groups(annotation)
    tagged = families().get(str(label))
    if tagged in kinds:
        return tagged
    return next((kind for kind in kinds if kind.__name__ == label), None)


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
