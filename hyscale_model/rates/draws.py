"""Random numbers of a prediction: named, seeded, stratified, and shared by every system compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np


@dataclass(frozen=True, slots=True)
class Draws:
    """``count`` draws behind one nominal value.

    Arrays have shape (1, count + 1): column 0 is the nominal value (the median), the others are draws.
    ``columns`` restricts them to some columns, for points that differ in structure.
    """

    count: int = 64
    seed: int = 0
    columns: tuple[int, ...] | None = None

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.count + 1 if self.columns is None else len(self.columns)

    def uniform(self, name: str) -> np.ndarray:
        """Latin-hypercube uniforms in (0, 1) for one unknown; 0.5 in the nominal column.

        The stream depends on the name alone, so that adding an unknown leaves the others as they were.
        """
        values = _uniform(name, self.count, self.seed)
        return values if self.columns is None else values[:, list(self.columns)]

    def choose(self, name: str, values: tuple, weights: tuple[float, ...] | None, nominal: object) -> np.ndarray:
        """Draw ``values`` in proportion to ``weights``; ``nominal`` in the nominal column."""
        share = np.cumsum(np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float))
        picked = np.searchsorted(share / share[-1], self.uniform(name)[0, 1:], side="right")
        chosen = [nominal, *(values[min(index, len(values) - 1)] for index in picked)]
        # Numbers and names together stay what they are.
        mixed = len({isinstance(value, str) for value in chosen}) > 1
        return np.array(chosen, dtype=object if mixed else None)[None, :]


@lru_cache(maxsize=4096)
def _uniform(name: str, count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng([seed, crc32(name.encode())])
    strata = (generator.permutation(count) + generator.random(count)) / max(count, 1)
    result = np.concatenate([[0.5], strata])[None, :]
    result.flags.writeable = False
    return result
