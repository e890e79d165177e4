"""Decides the conditions of a script that its text alone decides: ``[ ... ]``, ``[[ ... ]]``, ``case`` patterns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from hyscale_model.importers.shell_arithmetic import arithmetic
from hyscale_model.importers.shell_expand import Variables, joined, known, substitute
from hyscale_model.importers.shell_words import Piece, RawWord

_NUMBERS = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<="}
_TEXTS = frozenset({"=", "==", "!=", "<", ">", "=~", "-ef", "-nt", "-ot"})
_UNARY = re.compile(r"-[a-zA-Z]")
_LIMIT_DEPTH = 20

Item = RawWord | str


def matches(subject: str | None, pattern: RawWord, variables: Variables) -> bool | None:
    """Whether a text is of a pattern with ``*``, ``?`` and ``[...]``; None where either is not known."""
    text = ""
    for piece in pattern.pieces:
        part = known(substitute(piece, variables))
        if part is None:
            return None
        # Quotes take away the meaning of these characters.
        text += re.sub(r"([*?\[])", r"[\1]", part) if piece.quote else part
    if text == "*":
        return True
    return None if subject is None else fnmatch.fnmatchcase(subject, text)


def decide(items: Sequence[Item], variables: Variables, double: bool) -> bool | None:
    """Whether the words between brackets hold; None where only a running shell knows.

    Args:
        items: words, and operators such as ``&&`` as text.
        variables: what the script has set so far.
        double: whether the brackets are ``[[`` and ``]]``.
    """
    test = _Test(items, variables, double)
    found = test.either()
    return found if test.at == len(test.items) else None


def is_true(expression: str, variables: Variables) -> bool | None:
    """Whether the arithmetic of ``(( ... ))`` is other than 0."""
    text = known(substitute(Piece(expression), variables))
    value = None if text is None else arithmetic(text, lambda name: _first(name, variables))
    return None if value is None else bool(value)


def _first(name: str, variables: Variables) -> str | None:
    """What a variable holds in arithmetic, where an unset one is 0."""
    words = variables.get(name)
    return (known(words[0].text) if words else "") or (None if words and known(words[0].text) is None else "0")


class _Test:
    """Sums, products and negations of comparisons, each true, false or not known."""

    def __init__(self, items: Sequence[Item], variables: Variables, double: bool) -> None:
        self.items = items
        self.variables = variables
        self.double = double
        self.at = 0
        self.depth = 0

    def _operator(self, ahead: int = 0) -> str:
        """The item as it is written, unless it has quotes."""
        if self.at + ahead >= len(self.items):
            return ""
        item = self.items[self.at + ahead]
        if isinstance(item, str):
            return item
        return item.pieces[0].text if len(item.pieces) == 1 and not item.pieces[0].quote else ""

    def _take(self, *wanted: str) -> bool:
        if self._operator() in wanted:
            self.at += 1
            return True
        return False

    def either(self) -> bool | None:
        """One condition or several with ``||``."""
        found = self._both()
        while self._take("||", "-o"):
            other = self._both()
            found = True if found or other else None if None in (found, other) else False
        return found

    def _both(self) -> bool | None:
        found = self._not()
        while self._take("&&", "-a"):
            other = self._not()
            found = False if False in (found, other) else None if None in (found, other) else True
        return found

    def _not(self) -> bool | None:
        self.depth += 1
        if self.depth > _LIMIT_DEPTH:
            return None
        if self._take("!"):
            found = self._not()
            found = None if found is None else not found
        elif self._take("("):
            found = self.either()
            found = found if self._take(")") else None
        else:
            found = self._comparison()
        self.depth -= 1
        return found

    def _text(self) -> str | None:
        item = self.items[self.at]
        self.at += 1
        return item if isinstance(item, str) else known(joined(item, self.variables))

    def _comparison(self) -> bool | None:
        if self.at >= len(self.items):
            return None
        between = self._operator(1)
        if self.at + 2 < len(self.items) and (between in _NUMBERS or between in _TEXTS):
            return self._compared()
        unary = self._operator()
        if _UNARY.fullmatch(unary) and self.at + 1 < len(self.items):
            self.at += 1
            text = self._text()
            if unary == "-v":
                return text in self.variables
            return None if unary not in ("-z", "-n") or text is None else bool(text) == (unary == "-n")
        text = self._text()
        return None if text is None else bool(text)

    def _compared(self) -> bool | None:
        left, operator = self._text(), self._operator()
        self.at += 1
        right = self.items[self.at]
        if operator in ("=", "==", "!=") and self.double and isinstance(right, RawWord):
            self.at += 1
            same = matches(left, right, self.variables)
            return None if same is None else same == (operator != "!=")
        other = self._text()
        if left is None or other is None:
            return None
        if operator in ("=", "==", "!="):
            return (left == other) == (operator != "!=")
        return self._numbers(left, _NUMBERS[operator], other) if operator in _NUMBERS else None

    def _numbers(self, left: str, operator: str, right: str) -> bool | None:
        if not self.double and not (left.strip() and right.strip()):
            # "integer expression expected": the test fails.
            return False
        return is_true(f"({left or 0}) {operator} ({right or 0})", self.variables)
