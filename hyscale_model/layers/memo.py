"""Parts of blocks that several systems have in common are built once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hyscale_model.scenario.schema import Scenario

Part = TypeVar("Part")


class Memo:
    """Built parts by name and by everything of the case they depend on.

    A part depends on the layout and training as a whole, on the sizes, and on the switches of the system it names.
    Arrays count by identity, so the memo keeps hold of the cases it has seen.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[Any, ...], Any] = {}
        self._seen: list[Scenario] = []

    def part(self, name: str, case: Scenario, switches: tuple[str, ...], build: Callable[[], Part]) -> Part:
        """The part called ``name``, built unless a case that agrees in ``switches`` has had it before."""
        system = case.systems[0]
        values = (getattr(system, switch) for switch in switches)
        key = (name, id(case.layout), id(case.training), *(_identity(value) for value in values))
        if key not in self._parts:
            self._seen.append(case)
            self._parts[key] = build()
        found: Part = self._parts[key]
        return found


def _identity(value: Any) -> Any:
    return id(value) if isinstance(value, np.ndarray) else value
