"""What a view is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hyscale_model.figures import Theme
from hyscale_model.scenario import Resolved
from hyscale_model.studies.points import Run


@dataclass(frozen=True, slots=True)
class Progress:
    """A study that is still at work.

    Attributes:
        job: what it is asked about by.
        done: share of its points, 0 to 1.
    """

    job: str
    done: float


# From how chunks are evaluated to the JSON of a study.
Work = Callable[[Run], Mapping[str, Any]]


class Study(Protocol):
    """Studies in the background."""

    def __call__(self, name: str, work: Work, *, later: bool = False) -> Mapping[str, Any] | Progress:
        """Does the work of that name, or tells how far it is; ``later``: whatever it is, the page does not wait."""


class Profiles(Protocol):
    """Measured profiles."""

    def names(self) -> Mapping[str, str]:
        """Names, with what people call them."""

    def compared(self, name: str) -> Mapping[str, Any]:
        """Points of a profile beside what its fits say of them: ``points``, ``curves`` and ``peaks``.

        Beside them ``name``, ``gpu``, ``measured``, ``failed``, ``machines``, ``held_out``, ``families``, ``unfitted``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A prediction, the pinned one beside it, and how the reader wants to see them.

    Attributes:
        resolved: the scenario.
        data: the JSON of its prediction.
        theme: the look.
        command: what gives the same numbers on the command line.
        profiles: measured ones; None where there are none.
        study: does work that may take seconds; None where nobody would wait for it.
        pinned: the JSON of the prediction to compare with, if there is one.
        options: choices of the view itself, by name.
    """

    resolved: Resolved
    data: Mapping[str, Any]
    theme: Theme
    command: str = ""
    profiles: Profiles | None = None
    study: Study | None = None
    pinned: Mapping[str, Any] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str, known: Mapping[str, Any] | list[str]) -> str:
        """The reader's choice where it is a known one, else the last of those there are: the system of interest."""
        chosen = self.options.get(name, "")
        return chosen if chosen in known else list(known)[-1]
