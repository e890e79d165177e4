"""Axes of a sweep and the points they span.

Axes whose fields change which operations exist, or name an entry of the catalogue, are crossed into variants: each is
a scenario of its own. All other axes are arrays inside a variant. Points are in the order of variants, the last axis
fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from hyscale_model.batch import ARRAY_FIELDS, generic
from hyscale_model.errors import InputError
from hyscale_model.scenario.schema import Scenario

# More would take hours, and a table that nobody can open.
MOST_POINTS = 100_000_000


@dataclass(frozen=True, slots=True)
class Axis:
    """Fields that vary together: path -> values, all of one length."""

    values: Mapping[str, tuple[Any, ...]]

    @property
    def length(self) -> int:
        """Number of values."""
        return len(next(iter(self.values.values())))

    @property
    def is_array(self) -> bool:
        """Whether formulas take all its fields as arrays."""
        return all(generic(path) in ARRAY_FIELDS for path in self.values)


@dataclass(frozen=True)
class Axes:
    """Axes of a sweep: those crossed into variants, and those that are arrays inside each."""

    variants: tuple[Axis, ...]
    arrays: tuple[Axis, ...]

    @classmethod
    def of(cls, scenario: Scenario, file: str | None = None, most: int = MOST_POINTS) -> Axes:
        """The axes that a scenario's ``sweep`` and ``zip`` span.

        Raises:
            InputError: there are none, or they span more than ``most`` points.
        """
        axes = [Axis({path: values}) for path, values in scenario.sweep.items()]
        if scenario.zip:
            axes.append(Axis(scenario.zip))
        if not axes:
            expected = "sweep: {workload.sequence_length: [131072, 1048576]}, or --set 'sweep.layout.cp=[64, 128]'"
            raise InputError("there is nothing to sweep", file, field="sweep", expected=expected)
        found = cls(tuple(axis for axis in axes if not axis.is_array), tuple(axis for axis in axes if axis.is_array))
        if found.count > most:
            lengths = " x ".join(str(axis.length) for axis in axes)
            problem = f"{lengths} values are {found.count:,} points"
            raise InputError(problem, file, field="sweep", expected=f"at most {most:,}")
        return found

    @property
    def paths(self) -> tuple[str, ...]:
        """Every field that varies, in the order of the table's columns."""
        return tuple(path for axis in (*self.variants, *self.arrays) for path in axis.values)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes inside a variant."""
        return tuple(axis.length for axis in self.arrays)

    @property
    def inside(self) -> int:
        """Points of a variant."""
        return prod(self.shape)

    @property
    def count(self) -> int:
        """Points of all variants."""
        return prod(axis.length for axis in self.variants) * self.inside

    def each_variant(self) -> Iterator[dict[str, Any]]:
        """Values of the fields that are fixed in each variant."""
        for picked in product(*(range(axis.length) for axis in self.variants)):
            yield {
                path: values[index]
                for axis, index in zip(self.variants, picked, strict=True)
                for path, values in axis.values.items()
            }

    def columns(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Values of the other fields at points ``start`` to ``stop`` of any variant, each ``[points, 1]``."""
        found: dict[str, np.ndarray] = {}
        places = np.unravel_index(np.arange(start, stop), self.shape) if self.arrays else ()
        for axis, place in zip(self.arrays, places, strict=True):
            for path, values in axis.values.items():
                found[path] = as_array(values)[place][:, None]
        return found


def as_array(values: tuple[Any, ...]) -> np.ndarray:
    """Values as an array that keeps numbers apart from names."""
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {float, int} or kinds <= {bool} or kinds <= {str}:
        return np.array(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
