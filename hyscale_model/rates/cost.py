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


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of an operation or transfer: work by number of its coefficient, plus a part that is not linear."""

    linear: dict[int, Number] = field(default_factory=dict)
    rest: Number = 0.0


def varies_over_points_only(*values: Number) -> bool:
    """Whether work can be multiplied by a coefficient that varies over draws."""
    return not any(isinstance(value, np.ndarray) and value.shape[-1] > 1 for value in values)


class Coefficients:
    """Seconds per unit of work, each an array (1, draws), by number."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._rows: list[np.ndarray] = []
        self._matrix: np.ndarray | None = None

    def register(self, seconds_per_unit: Number) -> int:
        """The number of a new coefficient, a scalar or an array (1, draws)."""
        self._rows.append(np.broadcast_to(seconds_per_unit, (1, self._draws)))
        self._matrix = None
        return len(self._rows) - 1

    def evaluate(self, sums: Sequence[Sequence[Cost]], shape: tuple[int, int]) -> np.ndarray:
        """Seconds of sums of costs, shape (sums, points, draws), for a batch of ``shape`` (points, draws)."""
        if self._matrix is None:
            self._matrix = np.concatenate(self._rows) if self._rows else np.zeros((0, self._draws))
        # Numbers add up in lists, which is much cheaper than in arrays; only what varies over points needs those.
        numbers = [[0.0] * len(self._rows) for _ in sums]
        arrays: list[tuple[int, int, np.ndarray]] = []
        for row, costs in enumerate(sums):
            mine = numbers[row]
            for cost in costs:
                for key, work in cost.linear.items():
                    if isinstance(work, np.ndarray):
                        arrays.append((row, key, work))
                    else:
                        mine[key] += work
        fixed = np.array(numbers).reshape(len(sums), len(self._rows), 1)
        if arrays and self._draws > 1:
            # Points lie side by side while work is added up.
            work = np.array(np.broadcast_to(fixed, (len(sums), len(self._rows), shape[0])))
            for row, key, value in arrays:
                work[row, key] += value[:, 0]
            seconds: np.ndarray = work.transpose(0, 2, 1) @ self._matrix
        else:
            seconds = np.repeat(fixed.transpose(0, 2, 1) @ self._matrix, shape[0], axis=1)
            # One draw needs no product of matrices, most of whose entries would be zero.
            for row, key, value in arrays:
                seconds[row] += value * self._matrix[key]
        for row, costs in enumerate(sums):
            for cost in costs:
                if isinstance(cost.rest, np.ndarray) or cost.rest:
                    seconds[row] += cost.rest
        return seconds
