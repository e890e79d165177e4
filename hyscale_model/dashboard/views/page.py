"""What a view is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyscale_model.dashboard.answer import Answer
from hyscale_model.figures import Theme


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, the pinned one beside it, and how the reader wants to see them.

    Attributes:
        answer: to the present question.
        pinned: to the question that was pinned, if one was.
        theme: the look.
        options: choices of the view itself, by name.
    """

    answer: Answer
    pinned: Answer | None
    theme: Theme
    options: Mapping[str, str]

    @property
    def data(self) -> Mapping[str, Any]:
        """The JSON of the prediction."""
        return self.answer.data

    def option(self, name: str, known: Mapping[str, Any] | list[str]) -> str:
        """The reader's choice where it is a known one, else the last of those there are: the system of interest."""
        chosen = self.options.get(name, "")
        return chosen if chosen in known else list(known)[-1]
