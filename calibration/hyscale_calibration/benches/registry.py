"""The operations there are. Each is loaded when asked for."""

from __future__ import annotations

from importlib import import_module

from hyscale_calibration.benches.operation import Operation

NAMES = (
    "cross_entropy",
    "dense_attention",
    "elementwise",
    "gemm",
    "grouped_gemm",
    "hytopk",
    "index_loss",
    "memory",
    "optimizer",
    "replay",
    "score_table",
    "selection_phases",
    "sparse_attention",
    "topk_torch",
)


def load(name: str) -> Operation:
    """The operation of a name in ``NAMES``."""
    operation = import_module(f"hyscale_calibration.benches.{name}").OPERATION
    if not isinstance(operation, Operation):
        raise TypeError(f"OPERATION of benches/{name}.py is no Operation")
    return operation
