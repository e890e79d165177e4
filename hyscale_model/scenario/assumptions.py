"""What may be drawn or swept: ``assumptions``, ``sweep`` and ``zip``, checked field by field."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.scenario.fields import ALL_SYSTEMS, FieldType, field_type, suggest
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.problems import Problems
from hyscale_model.scenario.references import REFERENCES
from hyscale_model.scenario.scalars import shorten, show


@dataclass(frozen=True, slots=True)
class _Known:
    """What decides which paths there are: the names of the systems, and the family of the model."""

    systems: list[str]
    model_type: str | None

    def field(self, path: str) -> FieldType:
        """The field at a path.

        Raises:
            InputError: there is none.
        """
        return field_type(path, self.systems, self.model_type)


def check_variables(root: Node, pinned: Collection[str], problems: Problems) -> Node:
    """The scenario with its assumptions, sweep and zip checked and brought to the form of the schema.

    ``choices`` given as a mapping become choices and weights. A swept field is no longer drawn, and a
    field that ``--set`` fixes (``pinned``) is neither drawn nor swept.
    """
    model = root.child("model")
    known = _Known(_system_names(root), _text(model, "model_type") if model is not None else None)
    swept: dict[str, Node] = {}
    for section in ("sweep", "zip"):
        table = root.child(section)
        if table is None or not table.is_mapping:
            continue
        checked = {path: _values(section, path, node, known, problems) for path, node in table.value.items()}
        checked = {path: node for path, node in checked.items() if path not in pinned}
        for path, node in checked.items():
            if path in swept:
                problems.add("this field is in sweep and in zip", node, f"{section}.{path}", "one of them")
            swept[path] = node
        if section == "zip":
            _equal_lengths(checked, problems)
        root = root.with_child(section, table.with_value(checked))
    listed = root.child("assumptions")
    if listed is None or not listed.is_list:
        return root
    items = [_assumption(index, item, known, problems) for index, item in enumerate(listed.value)]
    items = [each for item in items for each in _each_system(item, known.systems)]
    _once_each(items, problems)
    fixed = {each for path in (*swept, *pinned) for each in for_each_system(path, known.systems)}
    drawn = [item for item in items if not (item.is_mapping and _text(item, "path") in fixed)]
    return root.with_child("assumptions", listed.with_value(drawn))


def assumed_paths(root: Node) -> frozenset[str]:
    """The paths that the scenario's assumptions speak of, as written."""
    listed = root.child("assumptions")
    items = listed.value if listed is not None and listed.is_list else []
    paths = (_text(item, "path") for item in items if item.is_mapping)
    return frozenset(path for path in paths if path is not None)


def for_each_system(path: str, names: Collection[str]) -> list[str]:
    """``systems.*.field`` as the path of that field in every system; any other path as it is."""
    every = f"systems.{ALL_SYSTEMS}."
    if not path.startswith(every):
        return [path]
    return [f"systems.{name}.{path.removeprefix(every)}" for name in names]


def _each_system(item: Node, names: Collection[str]) -> list[Node]:
    path = _text(item, "path") if item.is_mapping else None
    paths = [path] if path is None else for_each_system(path, names)
    place = item.child("path") if item.is_mapping else None
    if place is None or paths == [path]:
        return [item]
    return [item.with_child("path", place.with_value(each)) for each in paths]


def _system_names(root: Node) -> list[str]:
    systems = root.child("systems")
    items = systems.value if systems is not None and systems.is_list else []
    return [name for item in items if item.is_mapping and (name := _text(item, "name")) is not None]


def _text(node: Node, key: str) -> str | None:
    child = node.child(key)
    return child.value if child is not None and isinstance(child.value, str) else None


def _target(path: Any, at: Node, field: str, known: _Known, problems: Problems) -> FieldType | None:
    if problems.full:
        return None
    try:
        return known.field(str(path))
    except InputError as error:
        problems.take(replace(error, file=at.file, line=at.line, field=field))
        return None


def _accept(target: FieldType, node: Node, field: str, path: str, problems: Problems) -> Node:
    try:
        return node.with_value(target.accept(node.plain()))
    except ValueError:
        problems.add(f"{show(node.plain())} is not a value of {path}", node, field, target.describe())
        return node


def _values(section: str, path: Any, node: Node, known: _Known, problems: Problems) -> Node:
    field = f"{section}.{path}"
    kind = REFERENCES.get(tuple(str(path).split(".")))
    target = None if kind else _target(path, node, field, known, problems)
    if not node.is_list or not node.value:
        problems.add(f"this is {show(node.plain())}", node, field, "a list of values")
        return node.with_value([])
    if kind:
        return node.with_value([_name(kind, item, field, problems) for item in node.value])
    if target is None:
        return node
    return node.with_value([_accept(target, item, field, path, problems) for item in node.value])


def _name(kind: str, node: Node, field: str, problems: Problems) -> Node:
    """The name of an entry of the catalogue, which a sweep may vary like a value."""
    offered = catalog.names(kind)
    if node.value not in offered:
        problems.add(
            f"there is no {kind[:-1]} {shorten(str(node.plain()))!r}", node, field, suggest(str(node.value), offered)
        )
    return node


def _equal_lengths(table: dict[str, Node], problems: Problems) -> None:
    lengths = {path: len(node.value) for path, node in table.items() if node.is_list}
    if len(set(lengths.values())) > 1:
        path, node = list(table.items())[-1]
        shown = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        problems.add(f"the lists differ in length: {shown}", node, f"zip.{path}", "lists of equal length")


def _once_each(items: list[Node], problems: Problems) -> None:
    seen: dict[str, Node] = {}
    for index, item in enumerate(items):
        path = _text(item, "path") if item.is_mapping else None
        if path is None:
            continue
        if path in seen:
            line = seen[path].line
            where = f" (the first on line {line})" if line else ""
            problems.add(f"{path} has two assumptions{where}", item, f"assumptions.{index}.path", "one for each field")
        seen.setdefault(path, item)


def _assumption(index: int, item: Node, known: _Known, problems: Problems) -> Node:
    if not item.is_mapping:
        return item
    field = f"assumptions.{index}"
    reason, path = _text(item, "reason"), _text(item, "path")
    if reason is not None and not reason.strip():
        problems.add("the reason is empty", item.value["reason"], f"{field}.reason", "why the value is not known")
    if path is None:
        return item
    target = _target(path, item.value["path"], f"{field}.path", known, problems)
    choices, limits = item.child("choices"), item.child("range")
    if (choices is None) == (limits is None):
        problem = "neither choices nor range is given" if choices is None else "choices and range are both given"
        problems.add(problem, limits or item, field, "either choices or range")
        return item
    if choices is not None:
        return _choices(item, choices, target, path, field, problems)
    assert limits is not None
    return _range(item, limits, target, path, field, problems)


def _choices(item: Node, choices: Node, target: FieldType | None, path: str, field: str, problems: Problems) -> Node:
    weights = item.child("weights")
    if choices.is_mapping:
        if weights is not None:
            problems.add("weights are given twice", weights, f"{field}.weights", "weights only in choices")
        values = [Node(key, node.file, node.line, node.origin) for key, node in choices.value.items()]
        weights = choices.with_value(list(choices.value.values()))
        item = item.with_child("weights", weights)
    elif choices.is_list:
        values = choices.value
    else:
        problems.add(f"this is {show(choices.value)}", choices, f"{field}.choices", "a list, or a mapping to weights")
        return item
    if not values:
        problems.add("there are no choices", choices, f"{field}.choices", "at least one")
    if target is not None:
        values = [_accept(target, value, f"{field}.choices", path, problems) for value in values]
    if weights is not None:
        _weights(weights, len(values), field, problems)
    return item.with_child("choices", choices.with_value(values))


def _weights(weights: Node, count: int, field: str, problems: Problems) -> None:
    if not weights.is_list or len(weights.value) != count:
        problems.add("weights and choices differ in number", weights, f"{field}.weights", f"a list of {count} weights")
        return
    for node in weights.value:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)) or node.value <= 0:
            problems.add(f"the weight is {show(node.plain())}", node, f"{field}.weights", "a number above 0")


def _range(item: Node, limits: Node, target: FieldType | None, path: str, field: str, problems: Problems) -> Node:
    field = f"{field}.range"
    ends = limits.value if limits.is_list else []
    for node in ends:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            problems.add(f"{show(node.plain())} is not a number", node, field, "a list of two numbers")
            return item
    if len(ends) != 2:
        found = f"a list of {len(ends)}" if limits.is_list else show(limits.plain())
        problems.add(f"this is {found}", limits, field, "a list of two numbers, the lower first")
        return item
    low, high = ends
    if not low.value < high.value:
        problems.add(f"{show(low.value)} is not below {show(high.value)}", limits, field, "the lower end first")
    if target is None:
        return item
    if not target.is_number() or target.is_whole():
        kind = "a whole number" if target.is_number() else "not a number"
        problems.add(f"{path} is {kind}, and a range is continuous", limits, field, "choices instead of range")
        return item
    checked = [_accept(target, node, field, path, problems) for node in ends]
    return item.with_child("range", limits.with_value(checked))
