"""Reads YAML into nodes that know their line; anything unusual is refused with a message.

PyYAML supplies the syntax (its event stream). What the events mean is decided here: YAML 1.2
scalars, no tags, no merge keys, no duplicate keys, bounded depth, size and number of values.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hyscale_model.errors import InputError
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.scalars import Scalar
from hyscale_model.scenario.tree import LIMIT_DEPTH, TreeBuilder

LIMIT_BYTES = 1 << 20

_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# The longer marks first: UTF-16's is a prefix of UTF-32's.
_FOREIGN_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# What PyYAML says -> what to do about it.
_HINTS = (
    ("mapping values are not allowed", "text that contains ': ' in quotes, one key a line"),
    ("cannot start any token", "spaces for indentation, and quotes around text that starts with a special character"),
    ("could not find expected ':'", "'key: value' on each line"),
    ("unclosed", "a closing quote or bracket"),
    ("unexpected end of stream", "a closing quote or bracket"),
    ("<stream end>", "a closing quote or bracket"),
    ("while parsing a flow", "',' between entries and a closing bracket"),
    ("while parsing a block", "the same indentation for all keys of a mapping"),
)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file.

    Attributes:
        root: its contents with positions.
        file: the name that messages use.
    """

    root: Node
    file: str

    @property
    def data(self) -> dict[str, Any]:
        """The contents as plain dictionaries, lists and scalars."""
        plain: dict[str, Any] = self.root.plain()
        return plain

    def line(self, path: tuple[str | int, ...]) -> int | None:
        """The line of the value at a path of keys and indices; None where there is no such value."""
        node = self.root.find(path)
        return None if node is None else node.line


def load(path: str | os.PathLike[str]) -> Document:
    """The mapping in a YAML file.

    Raises:
        InputError: the file cannot be read, or is not one mapping in the YAML this tool accepts.
    """
    return loads(read_bytes(path), os.fspath(path))


def loads(text: str | bytes, file: str) -> Document:
    """The mapping in a YAML text; ``file`` is what messages call it.

    Raises:
        InputError: the text is not one mapping in the YAML this tool accepts.
    """
    root = parse(text, file)
    if root is None or root.value is None:
        raise InputError("the file is empty", file, expected="a mapping, such as 'schema_version: 1'")
    if not root.is_mapping:
        found = "a list" if root.is_list else "a single value"
        raise InputError(f"the file holds {found}", file, root.line, expected="a mapping of 'key: value'")
    return Document(root, file)


def parse(text: str | bytes, file: str) -> Node | None:
    """The value in a YAML text, be it a mapping, a list or a scalar; None where there is none.

    Raises:
        InputError: the text is not YAML that this tool accepts.
    """
    text = _decode(text, file)
    builder = TreeBuilder(file)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error, file) from None
    return builder.root


def parse_value(text: str, file: str) -> Node:
    """The value in a short text that has no lines, such as what follows ``=`` in ``--set``."""
    node = parse(text, file)
    return _without_lines(node) if node is not None else Node(None, file)


def read_bytes(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> bytes:
    """The contents of a file of at most ``limit`` bytes.

    Raises:
        InputError: it is not there, is a directory, cannot be read or is too large.
    """
    file = os.fspath(path)
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(limit + 1)
    except FileNotFoundError:
        raise InputError("there is no such file", file) from None
    except IsADirectoryError:
        raise InputError("this is a directory", file, expected="a file") from None
    except PermissionError:
        raise InputError("the file may not be read (permission denied)", file) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the file cannot be read ({reason})", file) from None
    if len(content) > limit:
        raise InputError(f"the file is larger than {limit} bytes", file, expected=f"at most {limit >> 20} MiB")
    return content


def _decode(text: str | bytes, file: str) -> str:
    if len(text) > LIMIT_BYTES:
        raise InputError(f"the text is larger than {LIMIT_BYTES} bytes", file, expected="at most 1 MiB")
    if isinstance(text, bytes):
        text = decode(text, file)
    text = text.removeprefix("\ufeff")
    bad = _UNPRINTABLE.search(text)
    if bad:
        code = f"U+{ord(bad.group()):04X}"
        line = text.count("\n", 0, bad.start()) + 1
        raise InputError(f"there is a control character ({code}) in the text", file, line, expected="plain text")
    return text


def decode(content: bytes, file: str) -> str:
    """UTF-8 text from bytes.

    Raises:
        InputError: they are something else, which the message names.
    """
    for mark, encoding in _FOREIGN_MARKS:
        if content.startswith(mark):
            raise InputError(f"the file is {encoding} text", file, expected="UTF-8 text")
    if b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise InputError("the file is binary", file, line, expected="UTF-8 text")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise InputError(f"the file is not UTF-8 text (byte 0x{byte:02x})", file, line, expected="UTF-8") from None


def _events(text: str) -> Iterator[Any]:
    return yaml.parse(text, Loader=_LOADER)


def _syntax_error(error: yaml.YAMLError, file: str) -> InputError:
    message = str(error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark is not None else None
    if "nesting depth" in message:
        return InputError("the values are nested too deeply", file, line, expected=f"at most {LIMIT_DEPTH} levels")
    context, problem = getattr(error, "context", None), getattr(error, "problem", None)
    detail = " ".join(part for part in (context, problem) if part) or "it cannot be read"
    expected = next((hint for sign, hint in _HINTS if sign in detail), None)
    return InputError(f"this is not YAML: {detail}", file, line, expected=expected)


def _without_lines(node: Node) -> Node:
    value: dict[Scalar, Node] | list[Node] | Scalar = node.value
    if isinstance(value, dict):
        value = {key: _without_lines(child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_without_lines(child) for child in value]
    return Node(value, node.file)
