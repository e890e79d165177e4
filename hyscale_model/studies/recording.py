"""Draws that remember which unknowns were asked for, and the uniforms of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hyscale_model.rates.draws import Draws


@dataclass(frozen=True, slots=True, eq=False)
class Recording(Draws):
    """As ``Draws``.

    Attributes:
        seen: unknown -> its uniforms, ``[draws]``.
    """

    seen: dict[str, np.ndarray] = field(default_factory=dict, compare=False)

    # Samples are remembered by the draws they were made with: one that was made before would not be asked for.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def uniform(self, name: str) -> np.ndarray:
        """As ``Draws.uniform``."""
        values = Draws(self.count, self.seed).uniform(name)
        self.seen[name] = values[0, 1:]
        return values if self.columns is None else values[:, list(self.columns)]
