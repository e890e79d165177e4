"""Names the origin of every value of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from hyscale_model.prediction import Origin
from hyscale_model.scenario.base import default_reason
from hyscale_model.scenario.fields import field_names
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.schema import Scenario

NOT_GIVEN = "not given"


def leaves(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Every value of a scenario with its dotted path: systems by name, lists by index.

    An empty list or mapping is a value itself.
    """
    yield from ((path, value) for path, value, _, _ in _walk(scenario, None, "", NOT_GIVEN))


def origins(scenario: Scenario, root: Node) -> dict[str, Origin]:
    """Dotted path -> origin of every value in ``leaves``.

    A value of the file is given there, one of the catalogue published by its source, a default assumed
    for its reason. A field that is drawn is assumed for the reason of its assumption.
    """
    found = {
        path: Origin("assumed", reason) if node is None else node.given()
        for path, _, node, reason in _walk(scenario, root, "", NOT_GIVEN)
    }
    found.update({drawn.path: Origin("assumed", drawn.reason) for drawn in scenario.assumptions if drawn.path in found})
    return found


def _walk(value: Any, node: Node | None, path: str, reason: str) -> Iterator[tuple[str, Any, Node | None, str]]:
    prefix = f"{path}." if path else ""
    if is_dataclass(value) and not isinstance(value, type):
        for name in field_names(type(value)):
            why = default_reason(type(value), name) or reason
            yield from _walk(getattr(value, name), node.child(name) if node else None, prefix + name, why)
    elif isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _walk(child, (node.child(key) or node) if node else None, f"{prefix}{key}", reason)
    elif isinstance(value, (tuple, list)) and value:
        for index, child in enumerate(value):
            name = child.name if path == "systems" else str(index)
            yield from _walk(child, (node.child(index) or node) if node else None, prefix + name, reason)
    else:
        yield path, value, node, reason
