"""Which terms of a step lie outside what a profile measured, point by point."""

from __future__ import annotations

import numpy as np

from hyscale_model.layers.sizes import Sizes
from hyscale_model.prediction import TERMS
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import Held, block_parameters, optimizer_operations
from hyscale_model.step.price import Priced
from hyscale_model.step.step import ROW, StepTime


def extrapolated(case: Scenario, sizes: Sizes, priced: Priced, index: int, step: StepTime) -> np.ndarray:
    """Terms with a kernel whose nominal time no measurement of its family comes near, on the critical rank.

    Args:
        case: the scenario with one system, its overrides applied; ``sizes``: its sizes.
        priced: what it is priced with; ``index``: of the system there.
        step: its step.

    Returns:
        Whether it is so, shape (terms, points), in the order of ``TERMS``.
    """
    found = np.zeros((len(TERMS), step.seconds.shape[0]), dtype=bool)
    if not priced.rates.measured:
        return found
    own = priced.cases[index]
    for block, runs in zip(own.blocks, step.runs, strict=True):
        if runs.any():
            for term, beyond in priced.extrapolated(block, own.training).items():
                found[ROW[term]] |= (runs > 0) & np.ravel(beyond)
    if "optimizer" in priced.rates.measured:
        found[ROW["optimizer"]] = _optimizer(case, sizes, priced.rates, step)
    # Of one layer no optimizer is timed.
    found &= step.terms[:, :, 0] > 0
    return found


def _optimizer(case: Scenario, sizes: Sizes, rates: Rates, step: StepTime) -> np.ndarray:
    """Whether it is so of what the critical rank does once a step, shape (points,)."""
    found = np.zeros(step.seconds.shape[0], dtype=bool)
    stage, parts = step.stage[:, 0], block_parameters(case)
    passes = np.broadcast_to(_nominal(sizes.micro_batches), stage.shape)
    if case.layout.schedule == "dualpipe":
        passes = passes / 2
    # What a rank holds depends on its stage and on how layers are cut.
    cuts = np.broadcast_to(_nominal(case.layout.vpp), stage.shape) * int(case.layout.pp) + stage
    for cut in np.unique(cuts):
        points = cuts == cut
        first = int(points.argmax())
        counts = step.runs[:, first] / passes[first]
        held = Held.of(case, counts[None, :], parts).rank(0)
        for operation in optimizer_operations(case, sizes, held, counts):
            found |= points & np.ravel(rates.is_beyond(operation))
    return found


def _nominal(value: object) -> np.ndarray:
    """The nominal value of each point, shape (points,) or (1,)."""
    return np.atleast_2d(np.asarray(value))[:, 0]
