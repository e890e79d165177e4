"""Small languages inside Megatron-LM arguments: lists of layer types, and layouts of a pipeline."""

from __future__ import annotations

import re

LIMIT_ITEMS = 5000

_LIST = re.compile(r"\s*(\[|\]|\(|\)|\+|\*|,|\d{1,6})")
_LAYOUT = re.compile(r"\s*(\(|\)|\||\*\d{1,4}|[A-Za-z]|,)")


def layer_pattern(text: str) -> list[int] | None:
    """``([0]*3+[1]*58)`` as a list of its numbers; None where it is written in another way."""
    tokens = _tokens(_LIST, text)
    if tokens is None:
        return None
    parser = _Lists(tokens)
    found = parser.total()
    return found if parser.done and found is not None and len(found) <= LIMIT_ITEMS else None


def pipeline_layout(text: str) -> list[str] | None:
    """``Et*3|(tt|)*2,m|L`` as the letters of each stage; None where it is written in another way."""
    tokens = _tokens(_LAYOUT, text)
    if tokens is None:
        return None
    found = _repeat(tokens, 0, 0)
    if found is None or found[1] != len(tokens):
        return None
    return found[0].split("|")


def _tokens(pattern: re.Pattern[str], text: str) -> list[str] | None:
    text = text.strip()
    found: list[str] = []
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None or len(found) > LIMIT_ITEMS:
            return None
        found.append(match.group(1))
        at = match.end()
    return found or None


def _repeat(tokens: list[str], at: int, depth: int) -> tuple[str, int] | None:
    """Letters and bars up to a closing bracket, products written out."""
    text = ""
    while at < len(tokens) and tokens[at] != ")":
        token = tokens[at]
        at += 1
        if token == ",":
            continue
        if token.startswith("*"):
            return None
        piece = token
        if token == "(":
            inner = _repeat(tokens, at, depth + 1) if depth < 20 else None
            if inner is None or inner[1] >= len(tokens):
                return None
            piece, at = inner[0], inner[1] + 1
        if at < len(tokens) and tokens[at].startswith("*"):
            piece *= int(tokens[at][1:])
            at += 1
        text += piece
        if len(text) > LIMIT_ITEMS:
            return None
    return (text, at) if (depth > 0) == (at < len(tokens)) else None


class _Lists:
    """Sums and products of lists of numbers."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @property
    def done(self) -> bool:
        """Whether all tokens are read."""
        return self.at == len(self.tokens)

    def _take(self, token: str) -> bool:
        if not self.done and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def _number(self) -> int | None:
        if not self.done and self.tokens[self.at].isdigit():
            self.at += 1
            return int(self.tokens[self.at - 1])
        return None

    def total(self) -> list[int] | None:
        """One sum."""
        found = self._product()
        while found is not None and self._take("+"):
            more = self._product()
            found = None if more is None or len(found) + len(more) > LIMIT_ITEMS else found + more
        return found

    def _product(self) -> list[int] | None:
        found = self._item()
        while found is not None and self._take("*"):
            times = self._number()
            found = None if times is None or len(found) * times > LIMIT_ITEMS else found * times
        return found

    def _item(self) -> list[int] | None:
        if self._take("("):
            self.depth += 1
            found = self.total() if self.depth < 20 else None
            return found if found is not None and self._take(")") else None
        if not self._take("["):
            return None
        items: list[int] = []
        while (number := self._number()) is not None:
            items.append(number)
            if not self._take(","):
                break
        return items if self._take("]") else None
