"""What a view is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hyscale_model.figures import Theme
from hyscale_model.scenario import Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A prediction, the pinned one beside it, and how the reader wants to see them.

    Attributes:
        resolved: the scenario.
        data: the JSON of its prediction.
        theme: the look.
        command: what gives the same numbers on the command line.
        pinned: the JSON of the prediction to compare with, if there is one.
        options: choices of the view itself, by name.
    """

    resolved: Resolved
    data: Mapping[str, Any]
    theme: Theme
    command: str = ""
    pinned: Mapping[str, Any] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str, known: Mapping[str, Any] | list[str]) -> str:
        """The reader's choice where it is a known one, else the last of those there are: the system of interest."""
        chosen = self.options.get(name, "")
        return chosen if chosen in known else list(known)[-1]
