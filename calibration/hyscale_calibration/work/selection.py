"""Work of selection: scoring every key, top-k of a table, and the steps of HyTopK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

import numpy as np

from hyscale_calibration.work.gathered import rescored
from hyscale_calibration.work.rows import in_order, shares, visible_keys
from hyscale_calibration.work.unit import BYTES, FP32, INT32, Shape, Work, filled, in_turns, unique
from hyscale_model.layers.collected import COLLECTED_AT_ONCE, PIECE, SORTED_AT_ONCE, emptied, row_units

# Head width of the indexers, for which kernels are made.
INDEX_WIDTH = 128
# HyTopK: rank of the threshold among samples, how many of them stand for k keys, keys of a sample at least, samples at
# most, and samples' worth of candidates that fit (``hytopk.plan``).
RANK, WANTED, LEAST_STRIDE, MOST_SAMPLES, FULL = 36, 16, 32, 16384, 96
CHUNK_BYTES = 3 * 2**27
# Values whose order is searched in registers: programs of so many, or of eight warps, fill an SM.
SEARCHED_AT_ONCE, WARPS_AT_ONCE = 32768, 8
# Halvings of the range of samples until one rank is found, in the mean of normal scores, and where many are equal.
SEARCH_STEPS, EQUAL_STEPS = 15, 30
# (Query, head) columns and keys that a program scores at a time, and programs that an SM holds (``scoring.tiles``).
COLUMNS, LEAST_QUERIES, MOST_QUERIES, TILE, SCORED_AT_ONCE = 256, 4, 64, 64, 2
# Tiles that a program loads ahead, bytes in which it reorders scores to write at most; shared memory of an SM of
# Hopper, and what the driver takes of it for each program.
STAGES, MOST_REORDERED, SHARED_BYTES, RESERVED_BYTES = 3, 8192, 228 * 1024, 1024


@dataclass(frozen=True, slots=True)
class _Selected:
    """Sizes of a selection."""

    n: int
    length: int
    heads: int
    dim: int
    topk: int
    visible: np.ndarray

    @classmethod
    def of(cls, shape: Shape) -> _Selected:
        return cls(shape["n"], shape["L"], shape.get("H", 1), shape.get("D", 1), shape["k"], visible_keys(shape))

    @property
    def pairs(self) -> float:
        """Visible pairs of query and key."""
        return float(self.visible.sum())

    @property
    def stride(self) -> int:
        """Keys that a sample of HyTopK stands for."""
        return max(-(-self.topk // WANTED), LEAST_STRIDE, -(-self.length // MOST_SAMPLES))

    @property
    def samples(self) -> float:
        """Sampled keys of all queries that they see."""
        return self.pairs / self.stride

    @property
    def judged(self) -> np.ndarray:
        """Whether a query sees more keys than there is room for as candidates ``[n]``; all become candidates else."""
        return self.visible > FULL * self.stride

    @property
    def each(self) -> np.ndarray:
        """Keys that reach a query's threshold ``[n]``."""
        return np.where(self.judged, RANK * self.stride, self.visible)

    @property
    def chunk(self) -> int:
        """Queries whose candidates fit the memory for them: those of a launch."""
        return max(1, CHUNK_BYTES // ((FP32 + INT32) * FULL * self.stride))

    @property
    def candidates(self) -> float:
        """Keys that reach their thresholds, of all queries."""
        return float(self.each.sum())


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


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Programs that score a block of queries, which see ``seen [blocks]`` keys at most, against a share of the keys.

    ``bytes``: of the queries of a block, which each program loads; ``at_once``: programs whose queries, tiles and, of
    scores that are written, ``written``, fit an SM.
    """

    seen: np.ndarray
    keys: int
    bytes: int
    at_once: int

    @classmethod
    def of(cls, size: _Selected, dtype: str, keys: int, visible: np.ndarray, written: bool) -> _Blocks:
        columns = max(COLUMNS * INDEX_WIDTH // max(size.dim, INDEX_WIDTH), LEAST_QUERIES * size.heads)
        queries = min(MOST_QUERIES, max(LEAST_QUERIES, columns // size.heads))
        blocks = -(-size.n // queries)
        seen = np.pad(visible, (0, blocks * queries - size.n)).reshape(blocks, queries).max(1)
        row = BYTES[dtype] * size.dim
        scores = min(FP32 * TILE * queries, MOST_REORDERED) if written else 0
        taken = row * (queries * size.heads + STAGES * TILE) + scores + RESERVED_BYTES
        return cls(seen, keys, row * queries * size.heads, max(1, min(SCORED_AT_ONCE, SHARED_BYTES // taken)))

    def lengths(self, sms: float) -> np.ndarray:
        """Tiles of each program; blocks before shares, as they are numbered."""
        parts = shares(len(self.seen), int(sms * SCORED_AT_ONCE))
        share = ceil(ceil(self.keys / parts) / TILE) * TILE
        begins = np.arange(0, self.keys, share)
        return -(-np.clip(self.seen[None, :] - begins[:, None], 0, share).ravel() // TILE)

    def turns(self, sms: float) -> float:
        """Time of whole turns over that of work spread evenly."""
        return in_order(self.lengths(sms), self.at_once)(sms)

    def programs(self, sms: float) -> float:
        """Programs that have something to do."""
        return float((self.lengths(sms) > 0).sum())


def _score_only(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    work = _scores("index_scoring.only", dtype, shape, size.pairs, 0.0, 3)
    blocks = _Blocks.of(size, dtype, size.length, size.visible, False)
    return replace(work, turns=cache(blocks.turns))


def _score_table(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return _scores("index_scoring.table", dtype, shape, size.pairs, float(FP32 * size.n * size.length), 2)


def _filter(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    return _scores("index_scoring.filter", dtype, shape, size.pairs, size.n * size.length / 8, 2)


def _thresholds(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    columns = size.length // size.stride
    sampled = _scores("index_sampling", dtype, shape, size.samples, 2.0 * FP32 * size.n * columns, 8)
    slots = filled(columns)
    judged = float(size.judged.sum())
    blocks = _Blocks.of(size, dtype, columns, size.visible // size.stride, True)
    scored, sought = cache(blocks.turns), in_order(size.judged.astype(float), _sought_at_once(slots))
    steps = EQUAL_STEPS if shape.get("family") == "plateau" else SEARCH_STEPS
    return replace(
        sampled,
        units={
            **sampled.units,
            # While a program loads its queries, others of its SM go on.
            "loaded_bytes": blocks.bytes / blocks.at_once,
            "searched": judged * slots * steps,
            "rows": float(size.n),
        },
        unit_turns={
            "products": scored,
            "scores": scored,
            "loaded_bytes": cache(blocks.programs),
            "searched": sought,
            "rows": sought,
        },
    )


def _sought_at_once(slots: float) -> float:
    """Rows whose samples an SM searches side by side, as registers and warps allow."""
    return max(1.0, min(WARPS_AT_ONCE, SEARCHED_AT_ONCE // slots))


def _topk_torch(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    table = float(FP32 * size.n * size.length)
    return Work(
        family="topk_torch",
        hbm_bytes=table + 12.0 * size.n * size.topk,
        units={
            "visible_bytes": FP32 * size.pairs,
            "masked_bytes": table - FP32 * size.pairs,
            "rows": float(size.n),
        },
        launches=5,
    )


def _topk_radix(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    each = row_units(size.visible, size.topk, size.length, _clustered(shape))
    # That samples mislead in some row, whose program then works alone.
    again = 1 - float(np.prod(1 - each.pop("missed")))
    return Work(
        family="topk_radix",
        hbm_bytes=INT32 * size.n * size.topk,
        # Read by kernels before those that collect and sort.
        passed_bytes=FP32 * size.pairs,
        units={
            **{unit: float(amount.sum()) for unit, amount in each.items()},
            "again": max(again, 0.0) * float(size.visible.max()),
        },
        launches=5,
        unit_turns={
            "steps": in_order(each["steps"] * COLLECTED_AT_ONCE, COLLECTED_AT_ONCE),
            "rows": in_turns(float(each["rows"].sum())),
        },
    )


def _clustered(shape: Shape) -> bool:
    return bool(shape.get("family") == "clustered")


def _compact(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    rounds, lines = emptied(size.each / np.maximum(size.visible, 1), _clustered(shape))
    steps = np.ceil(size.visible / PIECE) * (1 + rounds)
    return Work(
        family="compaction",
        hbm_bytes=size.pairs / 8 + INT32 * size.candidates,
        units={
            "rounds": float(steps.sum()),
            "lines": float((size.visible / PIECE * lines).sum()),
            "steps": float(steps.sum()) / COLLECTED_AT_ONCE,
        },
        launches=-(-size.n // size.chunk),
        unit_turns={"steps": in_order(steps, COLLECTED_AT_ONCE, size.chunk)},
    )


def _rescore(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    work = rescored(dtype, shape, size.candidates, unique(size.candidates, size.length))
    return replace(work, launches=-(-size.n // size.chunk))


def _select(dtype: str, shape: Shape) -> Work:
    size = _Selected.of(shape)
    # Candidates are sorted in registers, of which the first half is tried first.
    room = filled(FULL * size.stride)
    slots, rows = room / 2, size.n / max(1.0, SORTED_AT_ONCE // room)
    return Work(
        family="candidate_sorting",
        hbm_bytes=(FP32 + INT32) * size.candidates + INT32 * size.n * size.topk,
        # Of fewer than are selected nothing is searched.
        units={"slots": size.n * slots, "searched": slots * float((size.each > size.topk).sum()), "rows": rows},
        launches=-(-size.n // size.chunk),
        unit_turns={"rows": in_turns(rows)},
    )


def chosen(dtype: str, shape: Shape) -> Work | None:
    """The steps from marked keys to a selection as one, as the model prices them."""
    collected, scored, ordered = (SELECTION[row](dtype, shape) for row in CHOOSING)
    if collected is None or scored is None or ordered is None:
        return None
    return Work(
        family=CHOSEN,
        hbm_bytes=collected.hbm_bytes + scored.hbm_bytes + ordered.hbm_bytes,
        units={**collected.units, **scored.units, "slots": ordered.units["slots"], "rows": ordered.units["rows"]},
        launches=collected.launches + scored.launches + ordered.launches,
        unit_turns={**collected.unit_turns, **ordered.unit_turns},
    )


# Steps of HyTopK that follow the filter; the model prices them as one family.
CHOOSING, CHOSEN = ("hytopk.compact", "hytopk.rescore", "hytopk.select"), "candidate_select"
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
