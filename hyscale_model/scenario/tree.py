"""Builds nodes from YAML events, without recursion, and refuses what a scenario never needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from hyscale_model.errors import InputError
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.scalars import Scalar, resolve_plain, shorten, show

LIMIT_DEPTH = 50
LIMIT_NODES = 50_000

# Below these the keys are values themselves: ``choices: {true: 0.5, false: 0.5}``, ``histogram: {1024: 5}``.
TYPED_KEYS = frozenset({"choices", "histogram"})

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_NO_KEY = object()


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is still open."""

    value: dict[Any, Node] | list[Node]
    line: int
    anchor: str | None
    typed_keys: bool = False
    key: Any = _NO_KEY
    key_line: int = 0
    size: int = 1
    key_lines: dict[Any, int] = field(default_factory=dict)


class TreeBuilder:
    """Takes YAML events one by one; ``root`` is the result, None for an empty document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        """Adds one event.

        Raises:
            InputError: it is one of the things that are refused.
        """
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open({}, event, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open([], event, line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, line)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._error("a second document starts here", line, "one document a file, without '---' inside")

    def _error(self, problem: str, line: int, expected: str | None = None) -> InputError:
        keys = [str(frame.key) for frame in self._stack if frame.key is not _NO_KEY]
        return InputError(problem, self.file, line, shorten(".".join(keys)) or None, expected)

    def _scalar(self, event: Any, line: int) -> None:
        if _CONTROL.search(event.value):
            raise self._error("there is a control character in this text", line, "plain text")
        frame = self._stack[-1] if self._stack else None
        is_key = frame is not None and isinstance(frame.value, dict) and frame.key is _NO_KEY
        if is_key and event.value == "<<" and event.implicit[0]:
            raise self._error("merge keys ('<<') are not supported", line, "'extends: name' to build on another entry")
        value = self._value(event, line)
        if is_key:
            self._key(value, line)
        else:
            self._add(Node(value, self.file, line), 1)
        if event.anchor:
            self._anchors[event.anchor] = (Node(value, self.file, line), 1)

    def _value(self, event: Any, line: int) -> Scalar:
        text: str = event.value
        tag = event.tag
        try:
            if tag is None:
                return resolve_plain(text) if event.implicit[0] else text
            kind = tag.removeprefix(_CORE)
            if tag == "!" or (kind == "str" and tag != kind):
                return text
            if tag != kind and kind in _SCALAR_TAGS:
                value = resolve_plain(text)
                if type(value) in _SCALAR_TAGS[kind]:
                    return float(value) if kind == "float" else value  # type: ignore[arg-type]
                raise self._error(f"{text!r} is not of the type its tag !!{kind} says", line, "no tag")
        except ValueError as error:
            raise self._error(str(error), line, "a finite number") from None
        raise self._tag_error(tag, line)

    def _tag_error(self, tag: str, line: int) -> InputError:
        shown = tag.replace(_CORE, "!!")
        return self._error(f"the tag {shorten(shown)} is not supported", line, "a plain value, without a tag")

    def _key(self, key: Scalar, line: int) -> None:
        frame = self._stack[-1]
        if not isinstance(key, str) and not (frame.typed_keys and key is not None):
            raise self._error(f"the key is {show(key)}", line, "a key that is text, if need be in quotes")
        if key in frame.key_lines:
            first = frame.key_lines[key]
            frame.key = key
            raise self._error(
                f"the key {shorten(str(key))} is given twice, on lines {first} and {line}", line, "each key once"
            )
        frame.key_lines[key] = line
        frame.key, frame.key_line = key, line

    def _open(self, value: dict[Any, Node] | list[Node], event: Any, line: int) -> None:
        wanted = _CORE + ("map" if isinstance(value, dict) else "seq")
        if event.tag not in (None, "!", wanted):
            raise self._tag_error(event.tag, line)
        if len(self._stack) >= LIMIT_DEPTH:
            raise self._error("the values are nested too deeply", line, f"at most {LIMIT_DEPTH} levels")
        self._no_key_here(line)
        parent = self._stack[-1] if self._stack else None
        typed = parent is not None and isinstance(parent.key, str) and parent.key in TYPED_KEYS
        if event.anchor:
            self._anchors[event.anchor] = None
        self._stack.append(_Frame(value, line, event.anchor, typed))

    def _no_key_here(self, line: int) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is _NO_KEY:
            raise self._error("the key is a list or a mapping", line, "a key that is text")

    def _close(self) -> None:
        frame = self._stack.pop()
        node = Node(frame.value, self.file, frame.line)
        if frame.anchor:
            self._anchors[frame.anchor] = (node, frame.size)
        self._add(node, frame.size)

    def _alias(self, name: Any, line: int) -> None:
        if name not in self._anchors:
            raise self._error(f"the alias *{shorten(name)} refers to nothing", line, f"an earlier '&{shorten(name)}'")
        target = self._anchors[name]
        if target is None:
            raise self._error(f"the alias *{shorten(name)} contains itself", line, "a value that is complete")
        node, size = target
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is _NO_KEY:
            if node.is_mapping or node.is_list:
                self._no_key_here(line)
            self._key(node.value, line)
        else:
            self._add(Node(node.value, self.file, line), size)

    def _add(self, node: Node, size: int) -> None:
        """Puts a finished value where it belongs; ``size`` counts it with aliases written out."""
        frame = self._stack[-1] if self._stack else None
        line = node.line or 0
        if frame is None:
            self.root = node
            return
        frame.size += size
        if sum(open_frame.size for open_frame in self._stack) > LIMIT_NODES:
            raise self._error("the file holds too many values", line, f"at most {LIMIT_NODES}, aliases written out")
        if isinstance(frame.value, list):
            frame.value.append(node)
        else:
            frame.value[frame.key] = Node(node.value, self.file, frame.key_line)
            frame.key = _NO_KEY
