"""A value of a file together with where it stands: what all of the input side works on.

Nodes are never changed once made, so aliases, catalogue entries and merges may share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hyscale_model.prediction import Origin

Path: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a ``dict`` of nodes or a ``list`` of nodes, with its place.

    Attributes:
        value: the scalar, or the nodes by key or index.
        file: the file, or a description such as ``--set``.
        line: 1-based; the line of the key where the node is the value of one.
        origin: where the value comes from; ``None`` means that the user gave it here.
    """

    value: Any
    file: str
    line: int | None = None
    origin: Origin | None = None

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping of nodes."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether the value is a list of nodes."""
        return isinstance(self.value, list)

    def plain(self) -> Any:
        """The value as dictionaries, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def child(self, key: str | int) -> Node | None:
        """The node under one key or index, if there is one."""
        if isinstance(self.value, dict):
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None

    def find(self, path: Sequence[str | int]) -> Node | None:
        """The node at a path, if there is one."""
        node: Node | None = self
        for key in path:
            node = node.child(key) if node is not None else None
        return node

    def nearest(self, path: Sequence[str | int]) -> Node:
        """The node at a path, or else its closest ancestor: where to look for what is missing."""
        node = self
        for key in path:
            child = node.child(key)
            if child is None:
                break
            node = child
        return node

    def given(self) -> Origin:
        """The origin of this value."""
        if self.origin is not None:
            return self.origin
        return Origin("given", self.file if self.line is None else f"{self.file}:{self.line}")

    def with_value(self, value: Any) -> Node:
        """Another value in the same place."""
        return Node(value, self.file, self.line, self.origin)

    def with_child(self, key: str, child: Node) -> Node:
        """This mapping with one more, or another, child."""
        return self.with_value({**self.value, key: child})

    def without(self, *keys: str) -> Node:
        """This mapping without some of its keys."""
        return self.with_value({key: child for key, child in self.value.items() if key not in keys})

    def with_origin(self, origin: Origin) -> Node:
        """This node and all below it with another origin."""
        value = self.value
        if isinstance(value, dict):
            value = {key: child.with_origin(origin) for key, child in value.items()}
        elif isinstance(value, list):
            value = [child.with_origin(origin) for child in value]
        return Node(value, self.file, self.line, origin)


def node_of(value: Any, file: str, origin: Origin | None = None) -> Node:
    """Nodes for plain data that has no positions, such as parsed JSON."""
    if isinstance(value, Mapping):
        value = {key: node_of(child, file, origin) for key, child in value.items()}
    elif isinstance(value, (list, tuple)):
        value = [node_of(child, file, origin) for child in value]
    return Node(value, file, None, origin)
