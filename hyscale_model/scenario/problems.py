"""Collects what is wrong with a scenario, so that the first by line is reported and the rest counted."""

from __future__ import annotations

from dataclasses import replace

from hyscale_model.errors import InputError
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.scalars import shorten

# Nobody reads more, and a hostile file could hold tens of thousands.
LIMIT_PROBLEMS = 100


class Problems:
    """The errors found so far; at most one for each field and what is below it.

    Attributes:
        notes: what is no error, but worth telling: parts of an imported file that the scenario does not express.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.notes: list[str] = []
        self._errors: list[InputError] = []
        self._covered: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether so much is wrong that looking further is pointless."""
        return len(self._errors) >= LIMIT_PROBLEMS

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, problem: str, at: Node, field: str | None, expected: str | None = None) -> None:
        """One error at the place of a node."""
        self.take(InputError(problem, at.file, at.line, shorten(field, 120) if field else None, expected))

    def take(self, error: InputError) -> None:
        """One error that knows its place, unless its field already has one."""
        if not self.full and (error.field is None or not self.covers(error.field)):
            self._errors.append(error)

    def cover(self, field: str) -> None:
        """Silences what follows from an error that made a whole group unknown."""
        self._covered.add(field)

    def covers(self, field: str) -> bool:
        """Whether an error of this field, or of a group it belongs to, is already known."""
        known = [*self._covered, *(error.field for error in self._errors if error.field)]
        return any(field == group or field.startswith(group + ".") for group in known)

    def raise_first(self) -> None:
        """Raises the first error by line of the scenario's own file, those of other files after it.

        Raises:
            InputError: if there is any.
        """
        if not self._errors:
            return
        first, *others = sorted(self._errors, key=lambda error: (error.file != self.file, error.line or 0))
        if others:
            first = replace(first, problem=f"{first.problem} (and {len(others)} more)")
        raise first


def at_node(error: InputError, node: Node, field: str) -> InputError:
    """An error found elsewhere, such as in the catalogue, reported where the user caused it."""
    return replace(error, file=node.file, line=node.line, field=field)
