"""Takes arguments one by one, and remembers which are used: what remains is not expressed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.importers.imported import UNKNOWN, Entry, Unexpressed, unexpressed
from hyscale_model.importers.launch import Argument
from hyscale_model.importers.megatron_fields import REASONS, is_quiet

_WHOLE = re.compile(r"\+?[0-9]{1,15}")

DEFAULT = "Megatron-LM's default"


class Reader:
    """The arguments of one program."""

    def __init__(self, source: str, arguments: Mapping[str, Argument]) -> None:
        self.source = source
        self.notes: list[Unexpressed] = []
        self._arguments = arguments
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._arguments

    def origin(self, name: str) -> str:
        """The argument and its line, as an origin."""
        line = self._arguments[name].line
        return f"--{name}" if line is None else f"--{name}, line {line}"

    def text(self, *names: str) -> str | None:
        """The value of the first of some arguments that is there; None where none is, or its value is not known."""
        for name in names:
            if name in self._arguments:
                argument = self._arguments[name]
                self._used.add(name)
                if argument.unknown is None:
                    return " ".join(argument.values)
                reason = f"not expressed: its value depends on {argument.unknown}, which nothing here sets"
                self.notes.append(unexpressed(f"--{name}", None, reason, argument.line))
                return None
        return None

    def whole(self, *names: str) -> Entry | None:
        """A whole number, from 0 on.

        Raises:
            InputError: the argument is there and is something else.
        """
        text = self.text(*names)
        if text is None:
            return None
        name = next(name for name in names if name in self._arguments)
        if not _WHOLE.fullmatch(text):
            line = self._arguments[name].line
            raise InputError(f"--{name} is {text[:60]!r}", self.source, line, expected="a whole number")
        return Entry(int(text), self.origin(name))

    def count(self, name: str, default: int, reason: str = DEFAULT) -> Entry:
        """A whole number, or what holds without the argument."""
        return self.whole(name) or Entry(default, reason, stated=False)

    def required(self, name: str) -> Entry:
        """A whole number without which there is no model.

        Raises:
            InputError: it is missing.
        """
        found = self.whole(name)
        if found is not None:
            return found
        argument = self._arguments.get(name)
        problem = f"depends on {argument.unknown}, which nothing here sets" if argument is not None else "is missing"
        line = argument.line if argument is not None else None
        raise InputError(f"--{name} {problem}", self.source, line, expected="every argument the cost depends on")

    def flag(self, name: str) -> Entry:
        """Whether a switch is set."""
        argument = self._arguments.get(name)
        if argument is None:
            return Entry(False, f"no --{name}", stated=False)
        self._used.add(name)
        return Entry(" ".join(argument.values).lower() not in ("false", "0", "none"), self.origin(name))

    def note(self, name: str, reason: str) -> None:
        """Says that an argument, used or not, is not expressed as it stands."""
        argument = self._arguments.get(name)
        self._used.add(name)
        value: Any = " ".join(argument.values) if argument is not None else None
        self.notes.append(unexpressed(f"--{name}", value, reason, argument.line if argument is not None else None))

    def rest(self) -> list[Unexpressed]:
        """All notes: those made so far, then every argument that is neither used nor known to cost nothing."""
        left = [
            unexpressed(
                f"--{name}", " ".join(argument.values).replace("\0", ""), REASONS.get(name, UNKNOWN), argument.line
            )
            for name, argument in self._arguments.items()
            if name not in self._used and not is_quiet(name) and argument.values not in (("false",), ("False",), ("0",))
        ]
        return list(dict.fromkeys([*self.notes, *left]))
