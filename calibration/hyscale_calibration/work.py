"""What each measured kernel has to do: FLOP, bytes and further work, from its shape alone.

Units of work beside FLOP and bytes are those of the model's operations (``hyscale_model.layers``): a profile prices
an operation of the model by what it fitted for the same unit here. Sizes are those of the benchmarks of the same
names: n queries, L keys, V of them visible, H heads of width D, k selected.

    products         head scores that pass the CUDA cores, one a head and pair of query and key; logits: of attention
    crowded          products of so many heads that four copies of a query fill the registers
    scores           sums over heads, one a pair of query and key
    gathered_bytes   rows read by index; picks: how many rows
    atomics          FP32 additions to rows by index; shared_atomics: to rows that the query before added to too
    values           results written by a product of matrices
    words            32 keys marked by a bit each; slots: places that are sorted, filled up to a power of two
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, exp, log2
from typing import Any

from hyscale_model.layers.tiles import UNCROWDED_HEADS, product_turns

BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
FP32, INT32 = 4, 4
# Queries of a tile of FlashAttention and cuDNN on Hopper.
QUERY_TILE = 128
# Head width of the indexers, for which kernels are made.
INDEX_WIDTH = 128
# Keys that reach a threshold of HyTopK over those selected; what kernels aim at, by a tenth or two.
REACHED = 2.5
# Rows that an SM collects side by side, one by a warp.
ROWS_AT_ONCE = 16
# Rows whose thresholds an SM looks for side by side, one by eight warps.
JUDGED_AT_ONCE = 8
# Head widths above this, of keys and values together, take other kernels in backward.
USUAL_WIDTHS = 256

Shape = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run of a kernel.

    Attributes:
        family: kernels that share coefficients.
        flops: on tensor cores; ``fp8``: of FP8 operands.
        hbm_bytes: fewest bytes that cross HBM; passed_bytes: in kernels before and after, such as zeroing and casts.
        units: further work in the SMs by unit.
        launches: kernels launched.
        turns: SMs -> time of whole turns of them over work spread evenly; None where a kernel spreads by itself.
        unit_turns: the same of single units, where one of several kernels takes turns.
    """

    family: str
    flops: float = 0.0
    fp8: bool = False
    hbm_bytes: float = 0.0
    passed_bytes: float = 0.0
    units: Mapping[str, float] = field(default_factory=dict)
    launches: float = 1.0
    turns: Callable[[float], float] | None = None
    unit_turns: Mapping[str, Callable[[float], float]] = field(default_factory=dict)


def in_turns(programs: float) -> Callable[[float], float]:
    """Of equal programs that SMs take in turns."""
    return lambda sms: ceil(programs / sms) * sms / programs


def work_of(row: str, dtype: str, shape: Shape) -> Work | None:
    """The work of a measurement; None where nothing is fitted to it."""
    described = DESCRIBED.get(row)
    return None if described is None else described(dtype, shape)


def unique(picks: float, rows: float) -> float:
    """Mean number of different rows among ``picks`` of ``rows``, drawn alike."""
    return rows * (1.0 - exp(-picks / rows))


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


def visible_share(shape: Shape) -> float:
    """Share of the keys that a query sees on average: ranks of zigzag order pair an early with a late chunk."""
    visible = shape.get("visible", "all")
    if isinstance(visible, str):
        return 1.0 if visible == "all" else 0.5
    return float(visible)


@dataclass(frozen=True, slots=True)
class _Selected:
    """Sizes of a selection."""

    n: int
    length: int
    heads: int
    dim: int
    topk: int
    seen: float
    first: bool

    @classmethod
    def of(cls, shape: Shape) -> _Selected:
        seen, first = visible_share(shape), shape.get("visible") == "first"
        return cls(shape["n"], shape["L"], shape.get("H", 1), shape.get("D", 1), shape["k"], seen, first)

    @property
    def pairs(self) -> float:
        """Visible pairs of query and key."""
        return self.n * self.length * self.seen

    @property
    def samples(self) -> float:
        """Sampled keys of all queries that they see."""
        return self.pairs / max(-(-self.topk // 16), 32, -(-self.length // 16384))

    @property
    def candidates(self) -> float:
        """Keys that reach their thresholds, of all queries."""
        wanted = REACHED * self.topk
        if self.first:
            # Half of the queries are the first of all and see a quarter of their number on average.
            return self.n / 2 * (min(wanted, self.n / 4) + wanted)
        return self.n * min(wanted, self.length * self.seen)


def _scores(family: str, dtype: str, shape: Shape, pairs: float, written: float, launches: float) -> Work:
    size = _Selected.of(shape)
    return Work(
        # Other widths than an indexer's take kernels of plain Triton.
        family=family if size.dim == INDEX_WIDTH else f"{family}.wide",
        flops=2.0 * pairs * size.heads * size.dim,
        fp8=dtype == "fp8",
        hbm_bytes=BYTES[dtype] * size.dim * (size.n * size.heads + size.length) + written,
        units={"products": pairs * size.heads, "scores": pairs},
        launches=launches,
    )


def _score_only(dtype: str, shape: Shape) -> Work:
    return _scores("index_scoring.only", dtype, shape, _Selected.of(shape).pairs, 0.0, 3)


def _score_table(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return _scores("index_scoring.table", dtype, shape, size.pairs, float(FP32 * size.n * size.length), 2)


def _filter(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return _scores("index_scoring.filter", dtype, shape, size.pairs, size.n * size.length / 8, 2)


def _thresholds(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    sampled = _scores("index_sampling", dtype, shape, size.samples, 2.0 * FP32 * size.samples / size.seen, 8)
    slots = size.n * filled(size.samples / size.seen / size.n)
    turns = in_turns(size.n / JUDGED_AT_ONCE)
    return replace(
        sampled,
        units={**sampled.units, "slots": slots, "rows": float(size.n)},
        unit_turns={"slots": turns, "rows": turns},
    )


def filled(count: float) -> float:
    """The power of two that holds ``count``, 16 at least."""
    return float(2.0 ** ceil(max(4.0, log2(count))))


def _topk_torch(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    table = float(FP32 * size.n * size.length)
    return Work(
        family="topk_torch",
        hbm_bytes=table + 12.0 * size.n * size.topk,
        units={
            "visible_bytes": table * size.seen,
            "masked_bytes": table * (1.0 - size.seen),
            "rows": float(size.n),
        },
        launches=5,
    )


def _topk_radix(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    read = FP32 * size.pairs
    return Work(
        family="topk_radix",
        hbm_bytes=read + INT32 * size.n * size.topk,
        units={
            "visible_bytes": read,
            "words": size.pairs / 32,
            "rows": float(size.n),
            "slots": size.n * filled(max(4096, 6 * size.topk)),
        },
        launches=5,
        unit_turns={"words": in_turns(size.n / ROWS_AT_ONCE)},
    )


def _compact(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return Work(
        family="compaction",
        hbm_bytes=size.pairs / 8 + INT32 * size.candidates,
        units={"words": size.pairs / 32, "candidates": size.candidates},
        turns=in_turns(size.n / ROWS_AT_ONCE),
    )


def _rescored(dtype: str, shape: Shape, kept: float, read: float) -> Work:
    size = _Selected.of(shape)
    row = BYTES[dtype] * size.dim
    return Work(
        family="replay_scoring",
        flops=2.0 * kept * size.heads * size.dim,
        fp8=dtype == "fp8",
        hbm_bytes=row * (size.n * size.heads + min(read, size.length)) + (FP32 + INT32) * kept,
        units={
            "products": kept * size.heads,
            "crowded": kept * size.heads if size.heads > UNCROWDED_HEADS else 0.0,
            "scores": kept,
            "gathered_bytes": kept * row,
        },
    )


def _rescore(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return _rescored(dtype, shape, size.candidates, unique(size.candidates, size.length))


def _different(shape: Shape) -> float:
    """Keys that are fetched where ``shared`` of a query's are those of the one before."""
    return float(unique(shape["n"] * shape["k"] * (1.0 - shape["shared"]) + shape["k"], shape["L"]))


def _replay_forward(dtype: str, shape: Shape) -> Work:
    return _rescored(dtype, shape, float(shape["n"] * shape["k"]), _different(shape))


def _replay_backward(dtype: str, shape: Shape) -> Work:
    forward = _replay_forward(dtype, shape)
    return Work(
        family="index_backward",
        flops=3 * forward.flops,
        fp8=forward.fp8,
        hbm_bytes=forward.hbm_bytes,
        # Gradients of keys are zeroed, read and cast.
        passed_bytes=(2.0 * FP32 + 2.0) * shape["L"] * shape["D"],
        units={**forward.units, **_added(shape, shape["D"])},
        launches=4,
    )


def _index_loss(dtype: str, shape: Shape) -> Work:
    backward = _replay_backward(dtype, {**shape, "shared": 0.9})
    kept = float(shape["n"] * shape["k"])
    return Work(
        family="index_loss",
        flops=backward.flops * 4 / 3,
        hbm_bytes=backward.hbm_bytes,
        # Softmax, divergence and their gradients are passes over the kept scores.
        passed_bytes=backward.passed_bytes + 20.0 * FP32 * kept,
        units=backward.units,
        launches=24,
    )


def _select(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    # Candidates are sorted in registers.
    slots = filled(min(REACHED * size.topk, size.length))
    return Work(
        family="candidate_sorting",
        hbm_bytes=(FP32 + INT32) * size.candidates + INT32 * size.n * size.topk,
        units={"slots": size.n * slots, "rows": float(size.n)},
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
    units = {"logits": kept * heads, "gathered_bytes": 2.0 * kept * of_key}
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
    """Two neighbours read the union of their keys and add to it once, after it was listed."""
    single = _sparse_backward(dtype, shape)
    union = 1.0 - shape["shared"] / 2
    units = {unit: amount * (1.0 if unit == "logits" else union) for unit, amount in single.units.items()}
    return replace(single, family="sparse_attention_backward_pairs", units=units, launches=single.launches + 4)


DESCRIBED: Mapping[str, Callable[[str, Shape], Work]] = {
    "gemm": _gemm,
    "grouped_gemm": _gemm,
    "dense_attention_forward": lambda dtype, shape: _dense(shape, False),
    "dense_attention_backward": lambda dtype, shape: _dense(shape, True),
    "copy": _copy,
    "gather": _gather,
    "scatter_add": _scatter,
    "residual": _passes("elementwise", 3),
    "gated_activation": _passes("elementwise", 5, 2),
    "norm": _passes("norm", 2),
    "norm_backward": _passes("norm_backward", 3),
    "cross_entropy_forward": _logits("cross_entropy_forward", 14.0, 3),
    "cross_entropy_backward": _logits("cross_entropy_backward", 22.0, 4),
    "optimizer": _optimizer,
    "score_only": _score_only,
    "score_table": _score_table,
    "topk_torch": _topk_torch,
    "topk_radix": _topk_radix,
    "hytopk.thresholds": _thresholds,
    "hytopk.filter": _filter,
    "hytopk.compact": _compact,
    "hytopk.rescore": _rescore,
    "hytopk.select": _select,
    "replay_forward": _replay_forward,
    "replay_backward": _replay_backward,
    "index_loss_sparse": _index_loss,
    "sparse_attention_forward": _sparse_forward,
    "sparse_attention_forward_probabilities": _sparse_probabilities,
    "sparse_attention_backward": _sparse_backward,
    "sparse_attention_backward_pairs": _sparse_pairs,
}
