"""Work of selection: scoring every key, top-k of a table, and the steps of HyTopK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hyscale_calibration.work.gathered import rescored
from hyscale_calibration.work.unit import BYTES, FP32, INT32, Shape, Work, filled, in_turns, unique

# Head width of the indexers, for which kernels are made.
INDEX_WIDTH = 128
# Keys that reach a threshold of HyTopK over those selected; what kernels aim at, by a tenth or two.
REACHED = 2.5
# Rows that an SM collects side by side, one by a warp.
ROWS_AT_ONCE = 16
# Rows whose thresholds an SM looks for side by side, one by eight warps.
JUDGED_AT_ONCE = 8


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


def _of_marked(work: Callable[[str, Shape], Work]) -> Callable[[str, Shape], Work | None]:
    """The work of a step on marked keys; none where scores are all alike and rows are taken whole instead."""
    return lambda dtype, shape: None if shape.get("family") == "plateau" else work(dtype, shape)


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


def _rescore(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return rescored(dtype, shape, size.candidates, unique(size.candidates, size.length))


def _select(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    # Candidates are sorted in registers.
    slots = filled(min(REACHED * size.topk, size.length))
    return Work(
        family="candidate_sorting",
        hbm_bytes=(FP32 + INT32) * size.candidates + INT32 * size.n * size.topk,
        units={"slots": size.n * slots, "rows": float(size.n)},
    )


SELECTION: Mapping[str, Callable[[str, Shape], Work | None]] = {
    "score_only": _score_only,
    "score_table": _score_table,
    "topk_torch": _topk_torch,
    "topk_radix": _topk_radix,
    "hytopk.thresholds": _thresholds,
    "hytopk.filter": _of_marked(_filter),
    "hytopk.compact": _of_marked(_compact),
    "hytopk.rescore": _of_marked(_rescore),
    "hytopk.select": _of_marked(_select),
}
