"""Expands the words of a script: variables, arrays, defaults and arithmetic. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hyscale_model.errors import InputError
from hyscale_model.importers.shell_arithmetic import arithmetic
from hyscale_model.importers.shell_words import NAME, Piece, RawWord

LIMIT_TEXT = 1 << 20
LIMIT_WORDS = 20_000
_LIMIT_NESTING = 10

# Stands in a word for what is not known: UNKNOWN + name + UNKNOWN.
UNKNOWN = "\0"

ASSIGNMENT = re.compile(rf"({NAME})(\+?)=")
_VARIABLE = re.compile(
    rf"\$\{{(?P<sign>[!#]?)(?P<braced>{NAME}|[0-9@*#?])(?:\[[^\]]*\])?(?P<default>:?[-=+][^${{}}]*)?"
    rf"(?P<rest>[^${{}}]*)\}}|\$(?P<plain>{NAME}|[0-9@*#?])"
)
_MARK = re.compile(f"{UNKNOWN}([^{UNKNOWN}]*){UNKNOWN}")
# What the script does not set and its caller may leave unset: variables and its own arguments.
_UNSET = re.compile(rf"{NAME}|[0-9@*#]")
# Set in every shell, to something that only a running one knows.
_ALWAYS_SET = frozenset({"HOME", "HOSTNAME", "PATH", "PWD", "RANDOM", "SECONDS", "UID", "USER"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command after expansion, and the line it stands on."""

    text: str
    line: int

    @property
    def unknown(self) -> str | None:
        """The name of what is not known in this word."""
        return self.text.split(UNKNOWN)[1] if self.text.count(UNKNOWN) > 1 else None


Variables = dict[str, list[Word]]


def known(text: str) -> str | None:
    """The text with what is unset taken as empty; None where it depends on what only a running shell knows."""
    for name in _MARK.findall(text):
        if not _UNSET.fullmatch(name) or name in _ALWAYS_SET:
            return None
    return _MARK.sub(lambda match: "0" if match.group(1) == "#" else "", text)


def assign(word: RawWord, match: re.Match[str], variables: Variables) -> None:
    """Carries out ``NAME=value``, ``NAME+=value`` or either with an array.

    Raises:
        InputError: the value grows without bound.
    """
    name, adds = match.groups()
    if word.array is not None:
        value = [each for item in word.array for each in expand(item, variables)]
    else:
        pieces = [Piece(word.pieces[0].text[match.end() :]), *word.pieces[1:]]
        # An assignment does not split its value; a use without quotes does.
        value = [Word("".join(substitute(piece, variables) for piece in pieces), word.line)]
    if adds and name in variables:
        old = variables[name]
        joined = word.array is None and len(old) == 1
        value = [Word(old[0].text + value[0].text, old[0].line)] if joined else [*old, *value]
    if len(value) > LIMIT_WORDS:
        raise InputError("the arrays of the script grow too long", expected="a script that names its arguments")
    variables[name] = value


def expand(word: RawWord, variables: Variables) -> Iterator[Word]:
    """A word as the words it becomes: unquoted variables are split, arrays give one word an element."""
    current, started = "", False
    for piece in word.pieces:
        whole = _VARIABLE.fullmatch(piece.text) if piece.quote != "'" else None
        name = _whole_name(whole)
        if name in variables and len(word.pieces) == 1 and (not piece.quote or "[@]" in piece.text):
            for item in variables[name]:
                texts = item.text.split() if not piece.quote else [item.text]
                # Arguments in one long text are where the text is; those of an array have lines of their own.
                yield from (Word(text, item.line) for text in texts)
            return
        text = substitute(piece, variables)
        started = started or bool(piece.quote) or bool(text)
        if piece.quote or ("$" not in piece.text and "`" not in piece.text):
            current += text
            continue
        parts = re.split(r"(\s+)", text)
        for index, part in enumerate(parts):
            if index % 2 and current:
                yield Word(current, word.line)
                current = ""
            elif not index % 2:
                current += part
    if started and (current or any(piece.quote for piece in word.pieces)):
        yield Word(current, word.line)


def _whole_name(whole: re.Match[str] | None) -> str:
    """The variable that a word consists of, where its value is taken as it is."""
    if whole is None or whole.group("sign") or whole.group("default") or whole.group("rest"):
        return ""
    return whole.group("braced") or whole.group("plain")


def joined(word: RawWord, variables: Variables) -> str:
    """A word as one text, as between ``[[`` and ``]]``."""
    return "".join(substitute(piece, variables) for piece in word.pieces)


def substitute(piece: Piece, variables: Variables) -> str:
    """The text of a piece with its variables and arithmetic replaced.

    Raises:
        InputError: it grows without bound.
    """
    if piece.quote == "'":
        return piece.text
    text = piece.text
    # The innermost first, as in ${A:-${B}}.
    for _ in range(_LIMIT_NESTING):
        changed = _VARIABLE.sub(lambda match: _value(match, variables), text)
        if len(changed) > LIMIT_TEXT:
            raise InputError("the variables of the script grow too long", expected="a script that names its arguments")
        if changed == text:
            break
        text = changed
    return _computed(text, variables)


def _value(match: re.Match[str], variables: Variables) -> str:
    name, default, rest = match.group("braced") or match.group("plain"), match.group("default") or "", match["rest"]
    words = variables.get(name)
    text = None if words is None else " ".join(word.text for word in words)
    if match.group("sign"):
        return _length_of(match, words)
    if default:
        return _defaulted(name, default, text)
    if not text and name not in variables:
        return f"{UNKNOWN}{name}{UNKNOWN}"
    return _changed(name, text or "", rest or "")


def _length_of(match: re.Match[str], words: list[Word] | None) -> str:
    """``${#NAME}``; ``${!NAME}`` and what else is unusual is not known."""
    if match.group("sign") == "#" and not match.group("rest"):
        if "[" in match.group():
            return str(len(words or []))
        text = known(words[0].text if words else "")
        if text is not None:
            return str(len(text))
    return f"{UNKNOWN}{_shown(match.group())}{UNKNOWN}"


def _defaulted(name: str, default: str, text: str | None) -> str:
    """``${NAME:-default}`` and its kin; a value that hangs on what is unset counts as empty."""
    sign, other = default.lstrip(":")[:1], default.lstrip(":")[1:].strip("\"'")
    is_set = text is not None and (known(text) != "" if default.startswith(":") else True)
    if sign == "+":
        return other if is_set else ""
    return text if is_set and text is not None else other


def _changed(name: str, text: str, rest: str) -> str:
    """``${NAME,,}`` and ``${NAME^^}``; other changes of a value are not carried out."""
    if not rest or rest.startswith((":?", "?")):
        return text
    if rest in (",,", "^^"):
        return text.lower() if rest == ",," else text.upper()
    return f"{UNKNOWN}{_shown(name + rest)}{UNKNOWN}"


def _shown(text: str) -> str:
    """An expression as part of a mark, in which no variable may be found again."""
    return "".join(re.sub(f"[{UNKNOWN}$`{{}}]", "", text).split())[:40]


def _computed(text: str, variables: Variables) -> str:
    """``$((...))`` as its number; any other substitution as unknown, a comment in back quotes as nothing."""

    def lookup(name: str) -> str | None:
        words = variables.get(name)
        return words[0].text if words else None

    found, at = "", 0
    while (start := text.find("$(", at)) >= 0:
        end = _closing(text, start + 1)
        if end < 0:
            break
        if start and text[start - 1] == UNKNOWN:
            # The value of a variable in which this is marked already.
            found, at = found + text[at : end + 1], end + 1
            continue
        inside, value = text[start + 2 : end], None
        is_sum = inside.startswith("(") and inside.endswith(")") and _closing(inside, 0) == len(inside) - 1
        if is_sum:
            value = arithmetic(inside[1:-1], lookup)
        shown = f"$(({_shown(inside[1:-1])}))" if is_sum else "$(...)"
        found += text[at:start] + (f"{UNKNOWN}{shown}{UNKNOWN}" if value is None else str(value))
        at = end + 1
    text = re.sub(r"`\s*#[^`]*`", "", found + text[at:])
    return re.sub(r"`[^`]*`", f"{UNKNOWN}$(...){UNKNOWN}", text)


def _closing(text: str, at: int) -> int:
    """Where the bracket that opens at ``at`` closes; -1 where it does not."""
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return -1
