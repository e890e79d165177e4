"""What each pipeline rank holds: parameters, blocks, and micro-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Stages:
    """What each pipeline rank holds, for all points; arrays have shape (ranks, points, draws).

    Attributes:
        held: parameters on the GPU, (replicated over context ranks, experts).
        runs: blocks by name.
        in_flight: micro-batches whose activations are held at the peak, in units of all the rank's layers.
    """

    held: tuple[np.ndarray, np.ndarray]
    runs: dict[str, np.ndarray]
    in_flight: np.ndarray
