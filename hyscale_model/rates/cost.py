"""Costs that are summed before they are evaluated.

The time of an operation that one resource binds at every point and draw is linear: work times seconds per unit of
work. Work varies over points, seconds per unit over draws, so a sum of such operations is a row of a matrix product,
and a whole batch is one product of (sums x points, coefficients) by (coefficients, draws).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hyscale_model.arrays import Number

# Coefficients that there is room for to begin with.
FIRST_ROWS = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of an operation or transfer: work by number of its coefficient, plus a part that is not linear."""

    linear: dict[int, Number] = field(default_factory=dict)
    rest: Number = 0.0


def varies_over_points_only(*values: Number) -> bool:
    """Whether work can be multiplied by a coefficient that varies over draws."""
    # A list is asked faster than a generator.
    return True not in [isinstance(value, np.ndarray) and value.shape[-1] > 1 for value in values]


class Coefficients:
    """Seconds per unit of work, each an array (1, draws), by number."""

    def __init__(self, draws: int) -> None:
        self._count = 0
        # Grows by doubling, so that sums are evaluated in between without gathering all rows again.
        self._rows = np.empty((FIRST_ROWS, draws))

    def register(self, seconds_per_unit: Number) -> int:
        """The number of a new coefficient, a scalar or an array (1, draws)."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._count] = seconds_per_unit
        self._count += 1
        return self._count - 1

    def evaluate(self, sums: Sequence[Sequence[Cost]], shape: tuple[int, int]) -> np.ndarray:
        """Seconds of sums of costs, shape (sums, points, draws), for a batch of ``shape`` (points, draws)."""
        matrix = self._rows[: self._count]
        # Numbers add up in dictionaries, which is much cheaper than in arrays; what varies over points needs those.
        places: list[int] = []
        numbers: list[float] = []
        arrays: list[tuple[int, int, np.ndarray]] = []
        for row, costs in enumerate(sums):
            mine: dict[int, float] = {}
            for cost in costs:
                for key, work in cost.linear.items():
                    if isinstance(work, np.ndarray):
                        arrays.append((row, key, work))
                    else:
                        mine[key] = mine.get(key, 0.0) + work
            places += [row * self._count + key for key in mine]
            numbers += mine.values()
        fixed = np.zeros((len(sums), self._count, 1))
        fixed.ravel()[places] = numbers
        if arrays and matrix.shape[1] > 1:
            # Points lie side by side while work is added up.
            work = np.array(np.broadcast_to(fixed, (len(sums), self._count, shape[0])))
            for row, key, value in arrays:
                work[row, key] += value[:, 0]
            seconds: np.ndarray = work.transpose(0, 2, 1) @ matrix
        else:
            seconds = np.repeat(fixed.transpose(0, 2, 1) @ matrix, shape[0], axis=1)
            # One draw needs no product of matrices, most of whose entries would be zero.
            for row, key, value in arrays:
                seconds[row] += value * matrix[key]
        for row, costs in enumerate(sums):
            for cost in costs:
                if isinstance(cost.rest, np.ndarray) or cost.rest:
                    seconds[row] += cost.rest
        return seconds
