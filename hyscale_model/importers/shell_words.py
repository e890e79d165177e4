"""Cuts a launch script into commands and words; quotes and lines are kept, nothing is expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

NAME = r"[A-Za-z_][A-Za-z0-9_]*"

_SEPARATORS = frozenset("\n;&|")


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


class Scanner:
    """Reads a script once, character by character."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.line = 1

    def commands(self) -> Iterator[list[RawWord]]:
        """The commands, each as its words."""
        words: list[RawWord] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _SEPARATORS:
                if words:
                    yield words
                words = []
                self._next()
            elif not self._blank(char):
                words.append(self._word(in_array=False))
        if words:
            yield words

    def _next(self) -> str:
        char = self.text[self.at]
        self.at += 1
        self.line += char == "\n"
        return char

    def _blank(self, char: str) -> bool:
        """Skips white space, a continued line or a comment; false where a word starts."""
        if char in " \t" or self.text.startswith("\\\n", self.at):
            self._next()
            if char == "\\":
                self._next()
            return True
        if char == "#":
            while self.at < len(self.text) and self.text[self.at] != "\n":
                self._next()
            return True
        if char in "(){}" and not self.text.startswith("{", self.at + 1):
            self._next()
            return True
        return False

    def _word(self, in_array: bool) -> RawWord:
        word = RawWord(self.line)
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                break
            if char in " \t\n" or (char in ";&|" and not in_array) or (char == ")" and in_array):
                break
            if char == "(" and not in_array and re.fullmatch(rf"{NAME}\+?=", word.start()):
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
            words.append(self._word(in_array=True))
        if self.at < len(self.text):
            self._next()
        return words
