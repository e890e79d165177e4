"""The exceptions of hyscale_model: one tree, so that a caller can catch at the level it needs."""

from __future__ import annotations

from dataclasses import dataclass


class HyScaleError(Exception):
    """Base of every error this package raises on purpose."""


@dataclass
class InputError(HyScaleError):
    """Something the user gave cannot be used.

    Attributes:
        problem: what is wrong, in one sentence.
        file: the file it came from, or a description such as ``--set``.
        line: 1-based line in that file.
        field: dotted path of the field, as ``--set`` would take it.
        expected: what would be right, including the nearest valid name.
    """

    problem: str
    file: str | None = None
    line: int | None = None
    field: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        parts = [part for part in (place, self.field) if part]
        text = ": ".join([*parts, self.problem])
        return f"{text}. Expected: {self.expected}" if self.expected else text


class UnpricedError(InputError):
    """A valid scenario asks for something no rate is known for; nothing is guessed in its place."""
