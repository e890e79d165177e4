"""Work of kernels that read keys by index: replay, its gradients, the index loss, sparse attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hyscale_calibration.work.unit import BYTES, FP32, INT32, Shape, Work, unique
from hyscale_model.layers.tiles import GLUON_HEADS, TOGETHER, TOGETHER_UP_TO, UNCROWDED_HEADS, union_of


def rescored(dtype: str, shape: Shape, kept: float, read: float, shared: float = 0.0) -> Work:
    """Scores of ``kept`` pairs of query and key, of which ``read`` keys are different.

    ``shared``: the share of a query's keys that are those of the one before.
    """
    heads, dim = shape["H"], shape["D"]
    row = BYTES[dtype] * dim
    return Work(
        family="replay_scoring",
        flops=2.0 * kept * heads * dim,
        fp8=dtype == "fp8",
        hbm_bytes=row * (shape["n"] * heads + min(read, shape["L"])) + (FP32 + INT32) * kept,
        units={
            "products": kept * heads,
            "crowded": kept * heads if heads > UNCROWDED_HEADS else 0.0,
            "scores": kept,
            "gathered_bytes": kept * row,
            "fresh_bytes": kept * row * (1.0 - shared),
        },
    )


def _different(shape: Shape) -> float:
    """Keys that are fetched where ``shared`` of a query's are those of the one before."""
    return float(unique(shape["n"] * shape["k"] * (1.0 - shape["shared"]) + shape["k"], shape["L"]))


def _replay_forward(dtype: str, shape: Shape) -> Work:
    return rescored(dtype, shape, float(shape["n"] * shape["k"]), _different(shape), shape["shared"])


def _replay_backward(dtype: str, shape: Shape) -> Work:
    forward = _replay_forward(dtype, shape)
    return Work(
        family="index_backward",
        flops=3 * forward.flops,
        fp8=forward.fp8,
        hbm_bytes=forward.hbm_bytes,
        # Gradients of keys are zeroed, and stay in FP32.
        passed_bytes=FP32 * shape["L"] * shape["D"],
        units={**forward.units, **_added(shape, shape["D"])},
        launches=2,
    )


def _index_loss(dtype: str, shape: Shape) -> Work:
    backward = _replay_backward(dtype, {**shape, "shared": 0.9})
    kept = float(shape["n"] * shape["k"])
    return Work(
        family="index_loss",
        flops=backward.flops * 4 / 3,
        hbm_bytes=backward.hbm_bytes,
        # Gradients of keys are rounded. Scores, indices, teacher, gradients; these once more with those of the losses.
        passed_bytes=backward.passed_bytes + (FP32 + 2.0) * shape["L"] * shape["D"] + 6.0 * FP32 * kept,
        units=backward.units,
        launches=10,
        # Whether the teacher was wrong is asked before the backward.
        waits=True,
    )


def _added(shape: Shape, width: int) -> dict[str, float]:
    """FP32 additions to gradients of keys."""
    added = float(shape["n"] * shape["k"] * width)
    return {"atomics": added * (1.0 - shape["shared"]), "shared_atomics": added * shape["shared"]}


def _sparse(shape: Shape, family: str, launches: float, kept_bytes: float, backward: bool = False) -> Work:
    n, heads, width, value_width, topk = (shape[key] for key in ("n", "H", "D", "V", "k"))
    kept = float(n * topk)
    rows = 2.0 * n * heads * (width + value_width)
    # Groups of heads have keys of their own; a value that is part of its key is not gathered again.
    of_key = shape.get("G", 1) * (width + value_width * shape.get("values", 0))
    gluon = shape.get("G", 1) == 1 and width > value_width and heads % GLUON_HEADS == 0 and not shape.get("sinks", 0)
    plain = 0.0 if gluon else kept * heads
    units = {
        "logits": kept * heads,
        "plain_logits": plain,
        "gathered_bytes": 2.0 * kept * of_key,
        "fresh_bytes": 2.0 * kept * of_key * (1.0 - shape["shared"]),
        "rows": n * max(1.0, heads / GLUON_HEADS),
    }
    return Work(
        family=family,
        flops=(2.5 if backward else 1.0) * 2.0 * kept * heads * (width + value_width),
        hbm_bytes=(2 if backward else 1) * rows + 2.0 * of_key * _different(shape) + (INT32 + kept_bytes) * kept,
        passed_bytes=(2.0 * FP32 + 2.0) * shape["L"] * of_key if backward else 0.0,
        units={**units, **_added(shape, of_key)} if backward else units,
        launches=launches,
    )


def _sparse_forward(dtype: str, shape: Shape) -> Work:
    return _sparse(shape, "sparse_attention_forward.hyscale_kernels", 1, 0.0)


def _sparse_probabilities(dtype: str, shape: Shape) -> Work:
    return _sparse(shape, "sparse_attention_probabilities", 2, 4.0 * shape["H"] + FP32)


def _sparse_backward(dtype: str, shape: Shape) -> Work:
    return _sparse(shape, "sparse_attention_backward.hyscale_kernels", 4, 8.0 * shape["H"], True)


def _sparse_pairs(dtype: str, shape: Shape) -> Work:
    """Two pairs of neighbours attend their own keys, and add to the union of them once, after it was listed.

    Where the union is so large that they stay apart, it is the backward of one query at a time.
    """
    single = _sparse_backward(dtype, shape)
    union = union_of(TOGETHER, shape["shared"])
    if union > TOGETHER_UP_TO:
        return single
    of_keys = (shape["D"] + shape["V"]) / (3 * shape["D"] + 2 * shape["V"])
    added = {unit: single.units[unit] * union / TOGETHER for unit in ("atomics", "shared_atomics")}
    # Gradients of keys that are their values are of a kernel in Gluon, with sinks too.
    gluon = shape.get("G", 1) == 1 and not shape.get("values", 0) and shape["H"] % GLUON_HEADS == 0
    plain = 0.0 if gluon else single.units["logits"]
    return replace(
        single,
        family="sparse_attention_backward_pairs",
        flops=single.flops * (1 + of_keys * (union - 1)),
        units={**single.units, **added, "plain_sums": plain},
        # Two merges, and where each query has the keys.
        launches=single.launches + 5,
    )


GATHERED: Mapping[str, Callable[[str, Shape], Work]] = {
    "replay_forward": _replay_forward,
    "replay_backward": _replay_backward,
    "index_loss_sparse": _index_loss,
    "sparse_attention_forward": _sparse_forward,
    "sparse_attention_forward_probabilities": _sparse_probabilities,
    "sparse_attention_backward": _sparse_backward,
    "sparse_attention_backward_pairs": _sparse_pairs,
}
