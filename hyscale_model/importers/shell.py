"""Reads a launch script far enough to know the words of its commands: quotes, variables, arrays, continuations.

Nothing is executed. Of ``if``, ``case``, ``&&`` and loops the branch is read that applies, with unset variables taken
as empty and the script called without arguments. What only a running shell could know (command substitution, files)
stays marked as unknown; the branches that depend on it are all read in order, and this is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hyscale_model.errors import InputError
from hyscale_model.importers.shell_expand import ASSIGNMENT, UNKNOWN, Variables, Word, assign, expand, joined, known
from hyscale_model.importers.shell_tests import Item, decide, is_true, matches
from hyscale_model.importers.shell_words import RawWord, Scanner, Token

__all__ = ["UNKNOWN", "Script", "Undecided", "Word", "commands", "read_script"]

_SKIPPED = frozenset({"then", "else", "do", "exec", "nohup", "time"})
_DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
_SUCCEEDING = frozenset({":", "echo", "printf", "export", "local", "declare", "readonly", "typeset", "set", "shift"})
_BRACKETS = frozenset("(){}")
_LIMIT_DEPTH = 60


@dataclass(frozen=True, slots=True)
class Undecided:
    """A condition that the text of the script does not decide.

    Attributes:
        text: the construct and its condition as written.
        line: where it stands.
        variables: those whose value depends on it.
    """

    text: str
    line: int
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """What is read of a script.

    Attributes:
        commands: as expanded words.
        undecided: conditions on which they depend in an unknown way.
        passed: variables that branches set which do not apply.
    """

    commands: list[list[Word]]
    undecided: tuple[Undecided, ...]
    passed: frozenset[str]


def commands(text: str) -> list[list[Word]]:
    """The commands of a script as expanded words; assignments are not among them.

    Raises:
        InputError: as in ``read_script``.
    """
    return read_script(text).commands


def read_script(text: str) -> Script:
    """The commands of a script that apply, and what could not be decided.

    Raises:
        InputError: its variables grow without bound, or its commands are nested too deep.
    """
    reader = _Reader(text)
    while reader.scanner.peek() is not None:
        reader.block(frozenset(), active=True)
    # Arrays of arguments no command takes, as in a file that others source.
    used = {part for command in reader.found for word in command for part in word.text.split()}
    unused = [
        words
        for words in reader.variables.values()
        if words and not {part for word in words for part in word.text.split()} <= used
    ]
    return Script(reader.found + unused, tuple(reader.undecided), frozenset(reader.passed))


class _Reader:
    """Goes through the script once; with ``active`` false a part is only passed over."""

    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self.variables: Variables = {}
        self.found: list[list[Word]] = []
        self.undecided: list[Undecided] = []
        self.passed: set[str] = set()
        self.status: bool | None = True
        self.depth = 0

    def block(self, stops: Iterable[str], active: bool) -> str:
        """Reads up to one of some keywords or operators, and returns it; "" at the end of the script."""
        while (token := self.scanner.peek()) is not None:
            if token.operator in stops or token.keyword in stops:
                self.scanner.take()
                return token.operator or token.keyword
            if token.operator and token.operator not in "({":
                self.scanner.take()
                continue
            self.status = self._chain(active)
        return ""

    def _operator(self) -> str:
        token = self.scanner.peek()
        return token.operator if token is not None else ""

    def _skip_lines(self) -> None:
        while self._operator() == "\n":
            self.scanner.take()

    def _text(self, begin: int) -> str:
        return self.scanner.text[begin : self.scanner.at].strip(" \t\n;&|")

    def _chain(self, active: bool) -> bool | None:
        """Commands with ``&&`` and ``||`` between them."""
        first = self.scanner.peek()
        status = self._piped(active)
        while (operator := self._operator()) in ("&&", "||"):
            text = self._text(first.begin) if first is not None else ""
            self.scanner.take()
            self._skip_lines()
            if status is None and active:
                before, count = dict(self.variables), len(self.found)
                self._piped(active)
                self._report(text, first, before, count)
            elif status == (operator == "&&"):
                status = self._piped(active)
            else:
                self._piped(active=False)
        return status

    def _piped(self, active: bool) -> bool | None:
        status = self._statement(active)
        while self._operator() in ("|", "|&"):
            self.scanner.take()
            self._skip_lines()
            status = self._statement(active)
        return status

    def _report(self, text: str, token: Token | None, before: Variables, count: int) -> None:
        """Notes an undecided condition where a variable or the launch itself depends on it."""
        changed = [name for name, words in self.variables.items() if before.get(name) != words]
        launches = any(word.text.endswith(".py") for command in self.found[count:] for word in command)
        if token is not None and (changed or launches):
            self.undecided.append(Undecided(" ".join(text.split()), token.line, tuple(changed)))

    def _statement(self, active: bool) -> bool | None:
        self.depth += 1
        if self.depth > _LIMIT_DEPTH:
            raise InputError("the commands of the script are nested too deep", expected=f"up to {_LIMIT_DEPTH} levels")
        token = self.scanner.peek()
        status = None if token is None else self._statement_at(token, active)
        self.depth -= 1
        return status

    def _statement_at(self, token: Token, active: bool) -> bool | None:
        if token.operator:
            return self._group(active)
        compound = {
            "if": self._if, "case": self._case, "while": self._while, "until": self._while, "for": self._for,
            "[[": self._double,
        }.get(token.keyword)  # fmt: skip
        if compound is not None:
            return compound(active)
        if token.keyword == "!":
            self.scanner.take()
            status = self._statement(active)
            return None if status is None else not status
        if token.keyword in _SKIPPED:
            self.scanner.take()
            return self._statement(active) if self._operator() in ("", "{", "(") else True
        return self._simple(active)

    def _group(self, active: bool) -> bool | None:
        token = self.scanner.take()
        if token is None or token.operator not in "({":
            return None
        self.scanner.subshells += token.operator == "("
        self.block({")" if token.operator == "(" else "}"}, active)
        self.scanner.subshells -= token.operator == "("
        return self.status

    def _if(self, active: bool) -> bool | None:
        first = self.scanner.take()
        before, count, taken, doubts = dict(self.variables), len(self.found), False, list[str]()
        keyword = "if"
        while keyword in ("if", "elif"):
            begin = self.scanner.at
            if self.block(("then", "fi"), active and not taken) != "then":
                return None
            text = self._text(begin).removesuffix("then").strip(" \t\n;")
            status = self.status if active and not taken else False
            if active and not taken and status is None:
                doubts.append(text)
            keyword = self.block(("elif", "else", "fi"), status is not False)
            taken = taken or status is True
        if keyword == "else":
            self.block(("fi",), active and not taken)
        if doubts:
            self._report(f"if {'; elif '.join(doubts)}", first, before, count)
        return None

    def _while(self, active: bool) -> bool | None:
        first = self.scanner.take()
        before, count, begin = dict(self.variables), len(self.found), self.scanner.at
        if first is None or self.block(("do", "done"), active) != "do":
            return None
        text = self._text(begin).removesuffix("do").strip(" \t\n;")
        ends = first.keyword == "until"
        status = self.status if active else ends
        self.block(("done",), active and status is not ends)
        if active and status is None:
            self._report(f"{first.keyword} {text}", first, before, count)
        return None

    def _for(self, active: bool) -> bool | None:
        """A loop, whose body is read once; its variable is known where it takes a single value."""
        self.scanner.take()
        words = self._words()
        items = [word for item in words[2:] for word in expand(item, self.variables)] if active else []
        texts = [text for word in items if (text := known(word.text)) != ""]
        named = len(words) > 1 and words[1].start() == "in"
        runs = active and bool(texts or not named)
        if runs and words and words[0].start():
            name = words[0].start()
            marked = Word(f"{UNKNOWN}{name}(loop){UNKNOWN}", words[0].line)
            self.variables[name] = items[:1] if len(items) == 1 else [marked]
        if self.block(("do", "done"), active) == "do":
            self.block(("done",), runs)
        return None

    def _case(self, active: bool) -> bool | None:
        first = self.scanner.take()
        subject_token = self.scanner.peek()
        if first is None or subject_token is None or subject_token.word is None:
            return None
        self.scanner.take()
        text = self._text(first.begin)
        self._skip_lines()
        middle = self.scanner.peek()
        if middle is None or middle.keyword != "in":
            return None
        self.scanner.take()
        before, count = dict(self.variables), len(self.found)
        subject = known(joined(subject_token.word, self.variables)) if active else None
        if self._branches(subject, active):
            self._report(text, first, before, count)
        return None

    def _branches(self, subject: str | None, active: bool) -> bool:
        """Reads the branches of ``case`` that apply; true where it is not known which."""
        taken, doubt = False, False
        while patterns := self.scanner.patterns():
            found = [matches(subject, each, self.variables) for each in patterns] if active and not taken else [False]
            applies = True in found or None in found
            # After a doubt even the branch for everything else is one of several.
            doubt = doubt or (applies and True not in found)
            stop = self.block((";;", ";&", ";;&", "esac"), applies)
            taken = taken or True in found
            if stop in ("esac", ""):
                break
        return doubt

    def _double(self, active: bool) -> bool | None:
        """``[[ ... ]]``, in which operators do not end the command."""
        self.scanner.take()
        items: list[Item] = []
        while (token := self.scanner.peek()) is not None:
            if token.operator in ("\n", ";") and not (items and items[-1] in ("&&", "||")):
                return None
            self.scanner.take()
            if token.keyword == "]]":
                return decide(items, self.variables, double=True) if active else None
            if token.operator != "\n":
                items.append(token.word if token.word is not None else token.operator)
        return None

    def _words(self) -> list[RawWord]:
        """The words up to what ends the command; brackets among them say nothing."""
        words: list[RawWord] = []
        while (token := self.scanner.peek()) is not None:
            if token.operator and (token.operator not in _BRACKETS or (token.operator == ")" and self._in_subshell())):
                break
            # The body of a function follows its name.
            if token.operator == "{" and words and words[0].start() == "function":
                break
            self.scanner.take()
            if token.word is not None:
                words.append(token.word)
                if len(words) == 1 and token.keyword.endswith("()"):
                    break
        return words

    def _in_subshell(self) -> bool:
        return self.scanner.subshells > 0

    def _simple(self, active: bool) -> bool | None:
        words = self._words()
        if not active:
            self.passed.update(match.group(1) for word in words if (match := ASSIGNMENT.match(word.start())))
        if not active or not words:
            return None
        start = words[0].start()
        if start.startswith("((") and len(words[0].pieces) == 1:
            return is_true(start[2:-2], self.variables)
        if start == "[" and words[-1].start() == "]":
            return decide(words[1:-1], self.variables, double=False)
        if start == "test":
            return decide(words[1:], self.variables, double=False)
        return self._command(words)

    def _command(self, words: list[RawWord]) -> bool | None:
        """Carries out assignments and keeps what else the command says."""
        declares = False
        while words and (words[0].start() in _DECLARING or (declares and words[0].start().startswith("-"))):
            declares = True
            words.pop(0)
        while words and (match := ASSIGNMENT.match(words[0].start())):
            assign(words.pop(0), match, self.variables)
        expanded = [word for item in words for word in expand(item, self.variables)]
        texts = [word.text for word in expanded]
        if not texts or (len(texts) == 1 and known(texts[0]) in ("", "true", "false")):
            return not texts or texts[0] != "false"
        self._set_outside(texts, expanded[0].line)
        self.found.append(expanded)
        return True if declares or texts[0] in _SUCCEEDING else None

    def _set_outside(self, texts: list[str], line: int) -> None:
        """Marks what ``read`` and ``getopts`` set as not known, and forgets what ``unset`` names."""
        if texts[0] == "unset":
            for name in texts[1:]:
                self.variables.pop(name, None)
        names = {"read": texts[1:], "getopts": texts[2:3]}.get(texts[0], [])
        for name in names:
            if ASSIGNMENT.fullmatch(f"{name}="):
                self.variables[name] = [Word(f"{UNKNOWN}{name}({texts[0]}){UNKNOWN}", line)]
