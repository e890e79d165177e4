"""Whole-number arithmetic as a shell has it in ``$((...))``."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(\d{1,15}|[A-Za-z_][A-Za-z0-9_]*|\*\*|&&|\|\||[=!<>]=|[-+*/%<>()?:!])")
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"))
_LIMIT_TOKENS = 200
_LIMIT_DEPTH = 20
_LIMIT_VALUE = 10**15


def arithmetic(text: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of an expression; None where it is malformed, too large, or names what ``lookup`` does not know."""
    return _evaluate(text, lookup, 0)


def _evaluate(text: str, lookup: Callable[[str], str | None], depth: int) -> int | None:
    tokens: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) > _LIMIT_TOKENS:
            return None
        tokens.append(match.group(1))
        at = match.end()
    try:
        parser = _Parser(tokens, lookup, depth)
        found = parser.choice()
    except _NoValueError:
        return None
    return found if parser.at == len(tokens) else None


class _NoValueError(Exception):
    """The expression has no value that is known."""


class _Parser:
    def __init__(self, tokens: list[str], lookup: Callable[[str], str | None], depth: int) -> None:
        self.tokens = tokens
        self.lookup = lookup
        self.depth = depth
        self.at = 0

    def _take(self, *wanted: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def choice(self) -> int:
        """``condition ? one : other``, or what binds closer."""
        self.depth += 1
        if self.depth > _LIMIT_DEPTH:
            raise _NoValueError
        found = self._level(0)
        if self._take("?"):
            one = self.choice()
            if not self._take(":"):
                raise _NoValueError
            other = self.choice()
            found = one if found else other
        self.depth -= 1
        return found

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        found = self._level(level + 1)
        while operator := self._take(*_LEVELS[level]):
            found = _bounded(_apply(operator, found, self._level(level + 1)))
        return found

    def _power(self) -> int:
        base = self._sign()
        if not self._take("**"):
            return base
        exponent = self._power()
        if not 0 <= exponent <= 64:
            raise _NoValueError
        return _bounded(base**exponent)

    def _sign(self) -> int:
        signs = []
        while sign := self._take("-", "+", "!"):
            signs.append(sign)
        found = self._atom()
        for sign in reversed(signs):
            found = {"-": -found, "+": found, "!": int(not found)}[sign]
        return found

    def _atom(self) -> int:
        if self._take("("):
            found = self.choice()
            if not self._take(")"):
                raise _NoValueError
            return found
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        self.at += 1
        if token.isdigit():
            return int(token)
        text = self.lookup(token) if token[:1].isalpha() or token[:1] == "_" else None
        # A variable may hold an expression of its own.
        value = None if text is None or self.depth > _LIMIT_DEPTH else _evaluate(text, self.lookup, self.depth + 5)
        if value is None:
            raise _NoValueError
        return value


def _bounded(value: int) -> int:
    if abs(value) > _LIMIT_VALUE:
        raise _NoValueError
    return value


def _apply(operator: str, left: int, right: int) -> int:
    if operator in "/%":
        if right == 0:
            raise _NoValueError
        # A shell rounds towards zero.
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    results = {
        "||": int(bool(left or right)),
        "&&": int(bool(left and right)),
        "==": int(left == right),
        "!=": int(left != right),
        "<": int(left < right),
        ">": int(left > right),
        "<=": int(left <= right),
        ">=": int(left >= right),
        "+": left + right,
        "-": left - right,
        "*": left * right,
    }
    return results[operator]
