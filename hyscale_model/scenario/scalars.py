"""Plain YAML scalars by the core schema of YAML 1.2, in which ``no`` is text and ``1e9`` a number."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

Scalar: TypeAlias = "str | int | float | bool | None"

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Python refuses to convert longer digit strings, and no float holds more.
_MAX_DIGITS = 308


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        ValueError: the scalar is a number, but not a finite one that a float can hold.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            if len(text) > _MAX_DIGITS:
                raise ValueError(f"a number of {len(text)} digits is too large")
            return int(text if base == 10 else text[2:], base)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{shorten(text)} is too large a number")
        return value
    return text


def shorten(text: str, limit: int = 60) -> str:
    """``text`` cut to ``limit`` characters, so that one bad value cannot flood a message."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def show(value: object) -> str:
    """A value as a person would name it in a message: ``text 'x'``, ``true``, ``a list``."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return shorten(str(value))
    if isinstance(value, str):
        return f"text {shorten(repr(value))}"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


def written(value: object) -> str:
    """A value of a scenario as ``--set`` takes it; nothing for null."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)
