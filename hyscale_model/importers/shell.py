"""Reads a launch script far enough to know the words of its commands: quotes, variables, arrays, continuations.

Nothing is executed. Every branch of the script is read in order, a later assignment replaces an earlier one, and what
only a running shell could know (command substitution, variables from outside) stays marked as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hyscale_model.errors import InputError
from hyscale_model.importers.shell_words import NAME, Piece, RawWord, Scanner

LIMIT_TEXT = 1 << 20
LIMIT_WORDS = 20_000
_LIMIT_NESTING = 10

# Stands in a word for what is not known: UNKNOWN + name + UNKNOWN.
UNKNOWN = "\0"

_ASSIGNMENT = re.compile(rf"({NAME})(\+?)=")
_VARIABLE = re.compile(
    rf"\$\{{!?(?P<braced>{NAME}|[0-9@*#?])(?:\[[^\]]*\])?(?P<default>:?[-=+][^${{}}]*)?[^${{}}]*\}}"
    rf"|\$(?P<plain>{NAME}|[0-9@*#?])"
)
_SKIPPED = frozenset({"then", "else", "do", "export", "local", "declare", "readonly", "exec", "nohup", "time", "!"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command after expansion, and the line it stands on."""

    text: str
    line: int

    @property
    def unknown(self) -> str | None:
        """The name of what is not known in this word."""
        return self.text.split(UNKNOWN)[1] if self.text.count(UNKNOWN) > 1 else None


def commands(text: str) -> list[list[Word]]:
    """The commands of a script as expanded words; assignments are not among them.

    Raises:
        InputError: its variables grow without bound.
    """
    variables: dict[str, list[Word]] = {}
    found = []
    for raw in Scanner(text).commands():
        words = list(raw)
        while words and words[0].start() in _SKIPPED and len(words[0].pieces) == 1:
            words.pop(0)
        while words and (match := _ASSIGNMENT.match(words[0].start())):
            _assign(words.pop(0), match, variables)
        expanded = [word for item in words for word in _expand(item, variables)]
        if expanded:
            found.append(expanded)
    # Arrays of arguments no command takes, as in a file that others source.
    used = {word.text for command in found for word in command}
    return found + [words for words in variables.values() if words and not {word.text for word in words} <= used]


def _assign(word: RawWord, match: re.Match[str], variables: dict[str, list[Word]]) -> None:
    name, adds = match.groups()
    if word.array is not None:
        value = [each for item in word.array for each in _expand(item, variables)]
    else:
        pieces = [Piece(word.pieces[0].text[match.end() :]), *word.pieces[1:]]
        # An assignment does not split its value; a use without quotes does.
        value = [Word("".join(_substitute(piece, variables, word.line) for piece in pieces), word.line)]
    if adds and name in variables:
        old = variables[name]
        joined = word.array is None and len(old) == 1
        value = [Word(old[0].text + value[0].text, old[0].line)] if joined else [*old, *value]
    if len(value) > LIMIT_WORDS:
        raise InputError("the arrays of the script grow too long", expected="a script that names its arguments")
    variables[name] = value


def _expand(word: RawWord, variables: dict[str, list[Word]]) -> Iterator[Word]:
    """A word as the words it becomes: unquoted variables are split, arrays give one word an element."""
    current, started = "", False
    for piece in word.pieces:
        whole = _VARIABLE.fullmatch(piece.text) if piece.quote != "'" else None
        name = (whole.group("braced") or whole.group("plain")) if whole else None
        if name in variables and len(word.pieces) == 1 and (not piece.quote or "[@]" in piece.text):
            for item in variables[name]:
                texts = item.text.split() if not piece.quote else [item.text]
                # Arguments in one long text are where the text is; those of an array have lines of their own.
                yield from (Word(text, item.line) for text in texts)
            return
        text = _substitute(piece, variables, word.line)
        started = started or bool(piece.quote) or bool(text)
        if piece.quote or "$" not in piece.text:
            current += text
            continue
        parts = re.split(r"(\s+)", text)
        for index, part in enumerate(parts):
            if index % 2 and current:
                yield Word(current, word.line)
                current = ""
            elif not index % 2:
                current += part
    if started:
        yield Word(current, word.line)


def _substitute(piece: Piece, variables: dict[str, list[Word]], line: int) -> str:
    if piece.quote == "'":
        return piece.text

    def value(match: re.Match[str]) -> str:
        name, default = match.group("braced") or match.group("plain"), match.group("default") or ""
        if name in variables and variables[name] and (default == "" or "+" not in default[:2]):
            return " ".join(word.text for word in variables[name])
        if default.lstrip(":")[:1] in ("-", "="):
            return default.lstrip(":")[1:].strip("\"'")
        return "" if "+" in default[:2] else f"{UNKNOWN}{name}{UNKNOWN}"

    text = piece.text
    # The innermost first, as in ${A:-${B}}.
    for _ in range(_LIMIT_NESTING):
        changed = _VARIABLE.sub(value, text)
        if len(changed) > LIMIT_TEXT:
            raise InputError("the variables of the script grow too long", expected="a script that names its arguments")
        if changed == text:
            break
        text = changed
    return _computed(text, variables)


def _computed(text: str, variables: dict[str, list[Word]]) -> str:
    """``$((...))`` of plain numbers as a number; any other substitution as unknown."""

    def bare(match: re.Match[str]) -> str:
        words = variables.get(match.group())
        return words[0].text if words else match.group()

    def number(match: re.Match[str]) -> str:
        inner = re.sub(NAME, bare, match.group(1).replace(UNKNOWN, ""))
        result = _integer(inner)
        shown = "".join(inner.replace(UNKNOWN, "").split())[:40]
        return f"{UNKNOWN}$(({shown})){UNKNOWN}" if result is None else str(result)

    text = re.sub(r"\$\(\(([^()]*)\)\)", number, text)
    return re.sub(r"\$\([^()]*\)|`[^`]*`", f"{UNKNOWN}$(...){UNKNOWN}", text)


def _integer(text: str) -> int | None:
    """A sum of products of whole numbers, without parentheses; None for anything else."""
    tokens = re.findall(r"\d{1,15}|[+\-*/%]", text)
    if "".join(tokens) != "".join(text.split()) or len(tokens) % 2 == 0 or len(tokens) > 31:
        return None
    if any(token.isdigit() == bool(index % 2) for index, token in enumerate(tokens)):
        return None
    terms, sign = [0], 1
    terms.append(int(tokens[0]))
    for operator, number in zip(tokens[1::2], map(int, tokens[2::2]), strict=True):
        if operator in "+-":
            sign = 1 if operator == "+" else -1
            terms.append(sign * number)
        elif operator == "*":
            terms[-1] *= number
        elif number == 0:
            return None
        else:
            terms[-1] = terms[-1] // number if operator == "/" else terms[-1] % number
    return sum(terms)
