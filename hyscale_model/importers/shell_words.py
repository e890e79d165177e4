"""Cuts a launch script into commands and words; quotes and lines are kept, nothing is expanded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r"[A-Za-z_][A-Za-z0-9_]*"

_OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", "\n", ";", "&", "|", "(", ")", "{", "}")
# What ends a word of a command.
_ENDS = " \t\n;&|"
_ARRAY_ENDS = " \t\n)"


@dataclass(slots=True)
class Piece:
    """A run of characters of one word under one kind of quotes."""

    text: str
    quote: str = ""


@dataclass(slots=True)
class RawWord:
    """A word before expansion; ``array`` holds the words between the parentheses of ``NAME=( ... )``."""

    line: int
    pieces: list[Piece] = field(default_factory=list)
    array: list[RawWord] | None = None

    def start(self) -> str:
        """The part without quotes that the word begins with."""
        return self.pieces[0].text if self.pieces and not self.pieces[0].quote else ""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, or an operator such as ``;`` or ``&&``, and its place in the text."""

    word: RawWord | None
    operator: str
    begin: int
    end: int
    line: int

    @property
    def keyword(self) -> str:
        """The word as it is written, where it has no quotes."""
        return self.word.start() if self.word is not None and len(self.word.pieces) == 1 else ""


class Scanner:
    """Reads a script once, character by character."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.line = 1
        # How many brackets of a subshell are open: they end a word.
        self.subshells = 0
        self._ahead: Token | None = None
        self._after = (0, 1)

    def peek(self) -> Token | None:
        """The next word or operator, left where it is; None at the end."""
        if self._ahead is None:
            begin, line = self.at, self.line
            self._ahead = self._token()
            self._after = (self.at, self.line)
            self.at, self.line = begin, line
        return self._ahead

    def take(self) -> Token | None:
        """The next word or operator."""
        token = self.peek()
        self.at, self.line = self._after
        self._ahead = None
        return token

    def patterns(self) -> list[RawWord]:
        """The patterns of one branch of ``case``, up to the bracket that closes them; none at ``esac`` or the end."""
        self._ahead = None
        found: list[RawWord] = []
        opened = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "\n|" or (char == "(" and not found and not opened):
                opened = opened or char == "("
                self._next()
            elif char == ")" or char in ";&":
                self._next()
                break
            elif not self._blank(char, brackets=False):
                word = self._word(_ENDS + ")")
                if not found and not opened and word.start() == "esac":
                    break
                found.append(word)
        return found

    def _token(self) -> Token | None:
        while self.at < len(self.text) and self._blank(self.text[self.at], brackets=False):
            pass
        if self.at >= len(self.text):
            return None
        begin, line = self.at, self.line
        if self.text.startswith("((", begin) and (end := self._double_end()):
            word = RawWord(line, [Piece(self._take(end))])
            return Token(word, "", begin, self.at, line)
        operator = next((each for each in _OPERATORS if self.text.startswith(each, begin)), "")
        if operator in ("(", ")", "{", "}") and self.text.startswith("{", begin + 1):
            operator = ""
        if operator:
            self._take(begin + len(operator))
            return Token(None, operator, begin, self.at, line)
        word = self._word(_ENDS + (")" if self.subshells else ""))
        if self.at == begin:
            # No word begins here, such as at the bracket of ``){``: every call must move on.
            return Token(None, self._next(), begin, self.at, line)
        return Token(word, "", begin, self.at, line)

    def _double_end(self) -> int:
        """Where ``((`` closes, within its line; 0 where it does not."""
        depth = 0
        for at in range(self.at, len(self.text)):
            if self.text[at] == "\n":
                break
            depth += (self.text[at] == "(") - (self.text[at] == ")")
            if depth == 0:
                return at + 1 if self.text[at - 1] == ")" else 0
        return 0

    def _next(self) -> str:
        char = self.text[self.at]
        self.at += 1
        self.line += char == "\n"
        return char

    def _blank(self, char: str, brackets: bool = True) -> bool:
        """Skips white space, a continued line, a comment or, if told so, a bracket; false where a word starts."""
        if char in " \t" or self.text.startswith("\\\n", self.at):
            self._next()
            if char == "\\":
                self._next()
            return True
        if char == "#":
            while self.at < len(self.text) and self.text[self.at] != "\n":
                self._next()
            return True
        if brackets and char in "(){}" and not self.text.startswith("{", self.at + 1):
            self._next()
            return True
        return False

    def _word(self, ends: str) -> RawWord:
        word = RawWord(self.line)
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                break
            if char in ends:
                break
            if char == "(" and ends != _ARRAY_ENDS and re.fullmatch(rf"{NAME}\+?=", word.start()):
                self._next()
                word.array = self._array()
                break
            if char in "'\"":
                word.pieces.append(self._quoted(self._next()))
            elif char == "\\":
                self._next()
                word.pieces.append(Piece(self._next() if self.at < len(self.text) else "", "'"))
            elif char == "$" or char == "`":
                self._plain(word, self._substitution())
            else:
                self._plain(word, self._next())
        return word

    def _plain(self, word: RawWord, text: str) -> None:
        if word.pieces and not word.pieces[-1].quote:
            word.pieces[-1].text += text
        else:
            word.pieces.append(Piece(text))

    def _substitution(self) -> str:
        """``$NAME``, ``${...}``, ``$(...)`` or a command in back quotes, as it is written."""
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            return self._take(end + 1 if end > 0 else len(self.text))
        opening = self.text[self.at + 1 : self.at + 2]
        if opening not in "({" or not opening:
            return self._next()
        closing, depth, at = {"(": ")", "{": "}"}[opening], 0, self.at + 1
        while at < len(self.text):
            depth += (self.text[at] == opening) - (self.text[at] == closing)
            at += 1
            if depth == 0:
                break
        return self._take(at)

    def _take(self, end: int) -> str:
        taken = self.text[self.at : end]
        self.line += taken.count("\n")
        self.at = end
        return taken

    def _quoted(self, quote: str) -> Piece:
        text = ""
        while self.at < len(self.text) and self.text[self.at] != quote:
            if quote == '"' and self.text.startswith("\\\n", self.at):
                self._next()
                self._next()
                text += " "
            elif (
                quote == '"' and self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$")
            ):
                self._next()
                text += self._next()
            elif quote == '"' and self.text[self.at] in "$`":
                text += self._substitution()
            else:
                text += self._next()
        if self.at < len(self.text):
            self._next()
        return Piece(text, quote)

    def _array(self) -> list[RawWord]:
        words: list[RawWord] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "\n" or self._blank(self.text[self.at]):
                if self.at < len(self.text) and self.text[self.at] == "\n":
                    self._next()
                continue
            words.append(self._word(_ARRAY_ENDS))
        if self.at < len(self.text):
            self._next()
        return words
