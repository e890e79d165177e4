"""Collectives that run beside the computation of another micro-batch, another piece of a product, or another layer.

Of E seconds of transfers beside C seconds of computation, at least E - C stay exposed, and a first or last piece of
which nothing runs beside; hidden transfers slow computation by the share of the GPU that they occupy.

    expert exchange (``overlap_moe_expert_parallel_comm``)  beside the other micro-batch of a pair, forward of one and
                    backward of the other, as far as the dependencies of both allow (``step.pairs``)
    tensor exchange (``tp_comm_overlap``)   cut into pieces beside the product that needs or makes them: the first or
                    last of ``PIECES`` has none
    gradients       (``overlap_grad_reduce``) beside the last backward, parameters (``overlap_param_gather``) beside the
                    first forward: one layer of the rank's is left
    ZeRO 2 and 3    gradients are reduced, parameters gathered twice, for every micro-batch, one layer ahead
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyscale_model.scenario.schema import Scenario

# Transformer Engine's userbuffers cut a collective into four by default.
PIECES = 4


def exposed(transfer: np.ndarray, computation: np.ndarray, left: np.ndarray | float) -> np.ndarray:
    """Seconds of ``transfer`` that ``computation`` does not hide; ``left``: share of it that nothing runs beside."""
    seconds: np.ndarray = np.maximum(transfer - computation, left * transfer)
    return seconds


def hidden_share(transfer: np.ndarray, computation: np.ndarray, left: float) -> np.ndarray:
    """Which part of ``transfer`` is hidden; 0 where there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share: np.ndarray = np.where(transfer > 0, 1 - exposed(transfer, computation, left) / transfer, 0.0)
    return share


def forward_share(case: Scenario) -> float:
    """Share of a block's transfers that its forward has, beside as many in its backward and in its recomputation."""
    return 1 / 3 if case.training.recompute == "full" else 1 / 2


# Flags of a layout: tensor exchange in pieces, expert exchange beside another micro-batch.
PIECES_FLAG, PAIRS_FLAG = "tp_comm_overlap", "overlap_moe_expert_parallel_comm"


def spread(cases: Sequence[Scenario], name: str, columns: int) -> np.ndarray:
    """A flag of the layout of each case over the flat axis of (case, point, draw)."""
    return np.repeat([bool(getattr(case.layout, name)) for case in cases], columns)
