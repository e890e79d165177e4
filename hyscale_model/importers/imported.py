"""What an importer hands on: fields of a scenario with their origin, and what could not be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hyscale_model.scenario.scalars import shorten


@dataclass(frozen=True, slots=True)
class Entry:
    """One value and where it comes from.

    Attributes:
        value: as the scenario's field holds it.
        origin: the name in the source with its line, or the rule that led to the value.
        stated: whether the source says it; otherwise it is a default or derived.
    """

    value: Any
    origin: str
    stated: bool = True


@dataclass(frozen=True, slots=True)
class Unexpressed:
    """Something in the source that may cost time or memory and that the scenario does not say.

    Attributes:
        name: its name in the source.
        value: its value, in short.
        reason: why, or what is assumed in its place.
        line: 1-based line of the source, where it has lines.
    """

    name: str
    value: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        shown = f" = {self.value}" if self.value else ""
        return f"{place}{self.name}{shown}: {self.reason}"


UNKNOWN = "not expressed"


def unexpressed(name: str, value: Any, reason: str = UNKNOWN, line: int | None = None) -> Unexpressed:
    """An ``Unexpressed`` with its value as short text on one line."""
    text = "" if value is None else " ".join(str(value).split())
    return Unexpressed(" ".join(name.split()), shorten(text), reason, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A source as parts of a scenario.

    Attributes:
        source: the file, or "arguments".
        sections: section ("model", "layout", "workload", "training", "cluster") -> field -> entry.
        systems: fields that every system takes over, such as the dispatcher.
        not_expressed: what the scenario leaves out.
        gpus: the number of GPUs the source says it runs on; None where it does not.
        gpus_per_node: the number of GPUs of a node, where the source says it.
    """

    source: str
    sections: Mapping[str, Mapping[str, Entry]]
    systems: Mapping[str, Entry] = field(default_factory=dict)
    not_expressed: tuple[Unexpressed, ...] = ()
    gpus: int | None = None
    gpus_per_node: Entry | None = None

    def values(self, section: str) -> dict[str, Any]:
        """Field -> value of one section."""
        return {name: entry.value for name, entry in self.sections.get(section, {}).items()}
