"""What each pipeline rank holds: parameters, blocks, and micro-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hyscale_model.step.optimizer import Held


@dataclass(frozen=True, slots=True)
class Stages:
    """What each pipeline rank holds, for all points; arrays have shape (ranks, points, draws).

    Attributes:
        held: parameters on the GPU.
        runs: blocks by name.
        in_flight: micro-batches whose activations are held at the peak, in units of all the rank's layers.
    """

    held: Held
    runs: dict[str, np.ndarray]
    in_flight: np.ndarray
