"""Work of torch's kernels: products, dense attention, passes over memory, the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from hyscale_calibration.work.unit import BYTES, FP32, Shape, Work, in_turns, unique
from hyscale_model.layers.tiles import product_turns

# Queries of a tile of FlashAttention and cuDNN on Hopper.
QUERY_TILE = 128
# Head widths above this, of keys and values together, take other kernels in backward.
USUAL_WIDTHS = 256
# Rows that an SM normalises side by side, in programs of 128 threads; what its L1 cache keeps beside shared memory.
NORM_ROWS, L1_BYTES = 16, 192 * 1024


def _gemm(dtype: str, shape: Shape) -> Work:
    m, n, k, groups = shape["m"], shape["n"], shape["k"], shape.get("groups", 1)
    return Work(
        family="grouped_gemm" if "groups" in shape else "gemm",
        flops=2.0 * m * n * k,
        fp8=dtype == "fp8",
        hbm_bytes=BYTES[dtype] * (m * k + groups * n * k) + 2.0 * m * n,
        units={"values": float(m * n)},
        turns=lambda sms: float(product_turns(m, n, sms, groups)),
    )


def _dense(shape: Shape, backward: bool) -> Work:
    length, heads, groups = shape["L"], shape["heads"], shape["groups"]
    widths = shape["D"] + shape["V"]
    logits = length * (length + 1) / 2 * heads
    rows, keys = 2.0 * length * heads * widths, 2.0 * length * groups * widths
    return Work(
        family=f"dense_attention_{'backward' if backward else 'forward'}",
        flops=(2.5 if backward else 1.0) * 2.0 * logits * widths,
        hbm_bytes=2 * rows + 3 * keys if backward else rows + keys,
        units={"logits": logits, "wide": logits * max(widths - USUAL_WIDTHS, 0)} if backward else {"logits": logits},
        launches=3 if backward else 1,
        turns=in_turns(ceil(length / QUERY_TILE) * heads),
    )


def _passes(family: str, passes: float, launches: float = 1.0) -> Callable[[str, Shape], Work]:
    """Reads and writes of ``n`` rows of ``width`` BF16 values."""

    def described(dtype: str, shape: Shape) -> Work:
        return Work(family=family, hbm_bytes=passes * 2.0 * shape["n"] * shape["width"], launches=launches)

    return described


def _norm(family: str, tensors: float) -> Callable[[str, Shape], Work]:
    """Rows of ``tensors`` that a program reads twice, for a sum and for results, and results once.

    What the rows of an SM's programs take beyond its L1 cache is read from L2 the second time: all of it where they
    take twice as much, as a cache that is read in turns loses what comes next.
    """

    def described(dtype: str, shape: Shape) -> Work:
        n, width = shape["n"], shape["width"]
        held = NORM_ROWS * tensors * 2.0 * width
        lost = min(max(held / L1_BYTES - 1, 0.0), 1.0)
        return Work(
            family=family,
            hbm_bytes=(tensors + 1) * 2.0 * n * width,
            units={"reread_bytes": lost * tensors * 2.0 * n * width},
        )

    return described


def _logits(family: str, bytes_each: float, launches: float) -> Callable[[str, Shape], Work]:
    def described(dtype: str, shape: Shape) -> Work:
        return Work(family=family, hbm_bytes=bytes_each * shape["n"] * shape["vocabulary"], launches=launches)

    return described


def _copy(dtype: str, shape: Shape) -> Work:
    return Work(family="copy", hbm_bytes=4.0 * shape["rows"] * shape["width"])


def _gather(dtype: str, shape: Shape) -> Work:
    rows, width, table = shape["rows"], shape["width"], shape["table"]
    read = 2.0 * width * unique(rows, table)
    return Work(family="gather", hbm_bytes=read + 2.0 * rows * width, units={"picks": float(rows)})


def _scatter(dtype: str, shape: Shape) -> Work:
    rows, width, table = shape["rows"], shape["width"], shape["table"]
    sums = 2 * FP32 * width * unique(rows, table)
    return Work(family="scatter_add", hbm_bytes=sums + FP32 * rows * width, units={"atomics": float(rows * width)})


def _optimizer(dtype: str, shape: Shape) -> Work:
    return Work(family="optimizer", hbm_bytes=34.0 * shape["tensors"] * shape["values"], launches=2 + shape["tensors"])


LIBRARY: Mapping[str, Callable[[str, Shape], Work]] = {
    "gemm": _gemm,
    "grouped_gemm": _gemm,
    "dense_attention_forward": lambda dtype, shape: _dense(shape, False),
    "dense_attention_backward": lambda dtype, shape: _dense(shape, True),
    "copy": _copy,
    "gather": _gather,
    "scatter_add": _scatter,
    "residual": _passes("elementwise", 3),
    "gated_activation": _passes("elementwise", 5, 2),
    "norm": _norm("norm", 1),
    "norm_backward": _norm("norm_backward", 2),
    "cross_entropy_forward": _logits("cross_entropy_forward", 14.0, 3),
    "cross_entropy_backward": _logits("cross_entropy_backward", 22.0, 4),
    "optimizer": _optimizer,
}
