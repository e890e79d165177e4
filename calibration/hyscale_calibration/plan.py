"""Which points are measured, in which order, and about how long each takes.

A sweep is a benchmark with the rows that are timed and the shapes they are timed at, the most telling first. A plan
takes sweeps in turns, so that one cut short has some of everything; ``full`` begins with the points of ``quick``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hyscale_calibration.benches import registry
from hyscale_calibration.point import Point
from hyscale_calibration.work import work_of

Level = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")

# About what kernels sustain on an H200, for estimates alone: FLOP/s, bytes/s, and clocks of an SM a unit.
_FLOPS, _BYTES = 300e12, 2.5e12
_SM_CLOCKS_PER_S = 132 * 1.7e9
_CLOCKS = {
    "visible_bytes": 0.6,
    "masked_bytes": 0.6,
    "atomics": 0.5,
    "gathered_bytes": 0.06,
    "logits": 1.0,
    "scores": 1.0,
}
# Compiling a kernel of ours for a new width or number of heads; inputs, checks and bookkeeping of a point.
_COMPILE_S, _OVERHEAD_S = 1.5, 0.12
# How often a kernel runs: warm-up, check, memory, and repetitions until they have taken ``SAMPLING_S``.
_RUNS, SAMPLING_S = 5, 0.12
FEWEST_SAMPLES, MOST_SAMPLES = 5, 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Rows of one benchmark over shapes.

    Attributes:
        operation, rows: the benchmark and which of its measurements are timed.
        shapes: the most telling first; the first ``quick`` of them belong to the quick plan.
        dtypes: of every shape.
        sms: SMs to use; 0: all.
    """

    operation: str
    rows: tuple[str, ...]
    shapes: tuple[Mapping[str, Any], ...]
    quick: int
    dtypes: tuple[str, ...] = ("bf16",)
    sms: int = 0

    def cases(self) -> Iterator[tuple[Level, tuple[Point, ...]]]:
        """Points that share inputs, with the smallest plan they belong to."""
        for index, shape in enumerate(self.shapes):
            for dtype in self.dtypes:
                points = tuple(
                    Point(operation=self.operation, row=row, dtype=dtype, shape=shape, sms=self.sms)
                    for row in self.rows
                )
                yield ("quick" if index < self.quick else "full"), points


def _grid(keys: str, *values: Sequence[Any], **shared: Any) -> tuple[Mapping[str, Any], ...]:
    names = keys.split()
    return tuple({**shared, **dict(zip(names, each, strict=True))} for each in values)


# (outputs, inputs) of projections and dense layers of the catalogue's models; a test finds each in a model. Rows
# are tokens of a rank.
_GEMMS = _grid(
    "m n k",
    (8192, 16384, 2048),
    (4096, 6144, 16384),
    (16384, 576, 6144),
    (8192, 4096, 6144),
    (32768, 2048, 6144),
    (4096, 32768, 1024),
    (8192, 8192, 8192),
    (2048, 24576, 1536),
    (16384, 7168, 16384),
    (32768, 512, 4096),
    (8192, 24576, 6144),
    (4096, 10240, 2560),
    (16384, 2560, 6144),
    (8192, 1024, 4096),
    (32768, 4096, 2048),
    (2048, 6144, 12288),
    (4096, 36864, 7168),
    (8192, 1536, 7168),
    (16384, 8192, 1536),
    (32768, 12288, 2560),
    (2048, 4096, 8192),
    (8192, 576, 7168),
    (4096, 9216, 4096),
    (16384, 8192, 1024),
    (8192, 57344, 8192),
    (32768, 1024, 2560),
    (2048, 2048, 4096),
    (16384, 2048, 7168),
    (4096, 7168, 18432),
    (8192, 65536, 1536),
    (32768, 6144, 2560),
    (1024, 6144, 16384),
    (1024, 16384, 2048),
)
# Gate and up, and down, of routed experts that a rank holds.
_GROUPED = _grid(
    "m groups n k",
    (65536, 8, 4096, 6144),
    (32768, 8, 6144, 2048),
    (65536, 16, 4096, 4096),
    (16384, 8, 4096, 7168),
    (65536, 32, 2560, 640),
    (131072, 8, 7168, 2048),
    (32768, 16, 1280, 2560),
    (65536, 4, 6144, 7168),
    (16384, 16, 4096, 2048),
    (131072, 16, 3072, 4096),
    (32768, 32, 4096, 6144),
    (65536, 2, 6144, 2048),
    (16384, 4, 7168, 3072),
    (131072, 64, 1280, 2560),
)
_DENSE = _grid(
    "L heads groups D V",
    (8192, 64, 8, 128, 128),
    (16384, 32, 32, 128, 128),
    (4096, 64, 64, 192, 128),
    (8192, 16, 16, 256, 256),
    (2048, 64, 8, 128, 128),
    (32768, 16, 2, 128, 128),
    (16384, 24, 2, 256, 256),
    (4096, 64, 4, 128, 128),
    (8192, 64, 64, 192, 128),
    (16384, 8, 8, 64, 64),
    (4096, 32, 32, 256, 256),
    (2048, 128, 128, 192, 128),
)
_MEMORY = _grid(
    "rows width table",
    (2**22, 128, 2**20),
    (2**20, 576, 2**18),
    (2**18, 512, 2**17),
    (2**16, 576, 2**15),
    (2**21, 128, 2**17),
    (2**20, 256, 2**20),
    (2**14, 6144, 2**14),
    (2**19, 576, 2**20),
    (2**23, 128, 2**20),
    (2**20, 512, 2**16),
    (2**17, 128, 2**16),
)
_ROWS = _grid(
    "n width",
    (8192, 6144),
    (32768, 4096),
    (8192, 2048),
    (65536, 6144),
    (2048, 6144),
    (32768, 2560),
    (16384, 7168),
    (4096, 12288),
    (131072, 2048),
    (4096, 4096),
)
_LOGITS = _grid("n vocabulary", (4096, 154_880), (2048, 129_280), (1024, 248_320), (8192, 129_280), (512, 154_880))
_OPTIMIZER = _grid(
    "tensors values", (16, 2**24), (64, 2**20), (8, 2**26), (128, 2**18), (32, 2**22), (4, 2**24), (256, 2**20)
)


def _indexers(*values: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    """Indexers: n, L, H, k, ratio, weights, visible, family; width 128."""
    order = ("n", "L", "H", "D", "k", "ratio", "weights", "visible", "family")
    shapes = _grid("n L H k ratio weights visible family", *values, D=128)
    return tuple({key: shape[key] for key in order} for shape in shapes)


_SELECTION = _indexers(
    (2048, 2**20, 32, 2048, 1, "signed", "all", "normal"),
    (4096, 2**18, 64, 512, 4, "signed", "all", "normal"),
    (4096, 2**18, 4, 512, 4, "none", "all", "normal"),
    (2048, 2**18, 32, 2048, 1, "signed", "middle", "normal"),
    (4096, 2**17, 32, 2048, 1, "signed", "all", "normal"),
    (2048, 2**19, 32, 1024, 1, "signed", "all", "clustered"),
    (1024, 2**18, 64, 1024, 4, "signed", "all", "normal"),
    (8192, 2**18, 32, 2048, 1, "signed", "first", "normal"),
    (4096, 2**17, 4, 512, 4, "none", "middle", "normal"),
    (1024, 2**20, 32, 2048, 1, "signed", "all", "heavy_tailed"),
    (8192, 2**16, 32, 2048, 1, "signed", "all", "normal"),
    (2048, 2**18, 64, 512, 4, "signed", "middle", "clustered"),
    (1024, 2**20, 64, 2048, 1, "signed", "middle", "normal"),
    (4096, 2**19, 4, 512, 1, "none", "all", "normal"),
    (2048, 2**17, 32, 2048, 1, "signed", "first", "normal"),
    (512, 2**20, 32, 2048, 1, "signed", "all", "normal"),
    (8192, 2**17, 64, 512, 4, "signed", "all", "heavy_tailed"),
    (4096, 2**18, 32, 2048, 1, "signed", "all", "plateau"),
    (4096, 2**18, 16, 1024, 1, "signed", "all", "normal"),
    (2048, 2**16, 64, 512, 4, "signed", "first", "normal"),
    (8192, 2**18, 4, 512, 4, "none", "first", "normal"),
    (1024, 2**19, 64, 1024, 1, "signed", "all", "normal"),
)
_PHASES = (
    "score_only",
    "score_table",
    "topk_torch",
    "topk_radix",
    "hytopk",
    "hytopk.thresholds",
    "hytopk.filter",
    "hytopk.compact",
    "hytopk.rescore",
    "hytopk.select",
)
_TOPK = _grid(
    "n L k visible",
    (1024, 2**20, 2048, 0.25),
    (2048, 2**18, 512, 0.75),
    (8192, 2**16, 2048, 0.5),
    (1024, 2**19, 1024, 0.0625),
    (4096, 2**17, 512, 1.0),
    family="indexer",
    sms=0,
)
_REPLAY = _grid(
    "n L H k shared",
    (4096, 2**20, 32, 2048, 0.9),
    (4096, 2**18, 64, 512, 0.9),
    (4096, 2**18, 4, 512, 0.9),
    (2048, 2**20, 32, 2048, 0.0),
    (8192, 2**17, 32, 2048, 0.9),
    (8192, 2**18, 64, 1024, 0.0),
    (16384, 2**18, 4, 512, 0.0),
    (1024, 2**20, 32, 2048, 0.95),
    (4096, 2**19, 32, 1024, 0.5),
    (16384, 2**18, 64, 512, 0.95),
    D=128,
)
_INDEX_LOSS = _grid(
    "n L H D k dense_n dense_L A C",
    (2048, 2**20, 32, 128, 2048, 4, 64, 64, 576),
    (4096, 2**18, 64, 128, 512, 4, 64, 64, 576),
    (4096, 2**18, 4, 128, 512, 4, 64, 64, 576),
    (4096, 2**17, 32, 128, 2048, 4, 64, 64, 576),
    (8192, 2**18, 64, 128, 1024, 4, 64, 64, 576),
    (8192, 2**20, 32, 128, 2048, 4, 64, 64, 576),
    (16384, 2**18, 4, 128, 512, 4, 64, 64, 576),
    (8192, 2**18, 64, 128, 512, 4, 64, 64, 576),
    (4096, 2**19, 32, 128, 1024, 4, 64, 64, 576),
    (2048, 2**18, 64, 128, 1024, 4, 64, 64, 576),
    (8192, 2**17, 32, 128, 1024, 4, 64, 64, 576),
    (16384, 2**17, 64, 128, 512, 4, 64, 64, 576),
)
# Absorbed MLA, keys that are their values and have sinks, and two groups of heads.
_SPARSE = _grid(
    "n L H G D V k values sinks shared",
    (2048, 2**18, 64, 1, 576, 512, 2048, 0, 0, 0.9),
    (4096, 2**17, 64, 1, 512, 512, 640, 0, 1, 0.9),
    (2048, 2**18, 24, 2, 256, 256, 2048, 1, 0, 0.9),
    (1024, 2**18, 128, 1, 576, 512, 2048, 0, 0, 0.9),
    (2048, 2**20, 64, 1, 576, 512, 2048, 0, 0, 0.0),
    (4096, 2**18, 64, 1, 576, 512, 1024, 0, 0, 0.95),
    (2048, 2**17, 128, 1, 512, 512, 1152, 0, 1, 0.9),
    (1024, 2**17, 64, 1, 576, 512, 2048, 0, 0, 0.5),
    (8192, 2**18, 64, 1, 512, 512, 640, 0, 1, 0.0),
    (4096, 2**17, 24, 2, 256, 256, 1024, 1, 0, 0.95),
    (4096, 2**18, 64, 1, 576, 512, 2048, 0, 0, 0.9),
    (8192, 2**17, 64, 1, 576, 512, 512, 0, 0, 0.9),
    (2048, 2**18, 128, 1, 576, 512, 1024, 0, 0, 0.95),
    (8192, 2**18, 64, 1, 512, 512, 1152, 0, 1, 0.95),
    (2048, 2**18, 24, 2, 256, 256, 2048, 1, 0, 0.0),
    (4096, 2**18, 64, 1, 576, 512, 1536, 0, 0, 0.5),
    (4096, 2**18, 128, 1, 512, 512, 640, 0, 1, 0.5),
)
_SPARSE_ROWS = (
    "sparse_attention_forward",
    "sparse_attention_forward_probabilities",
    "sparse_attention_backward",
    "sparse_attention_backward_pairs",
)
# Partitions of the SMs show how times scale with them. Of an H20 the tensor cores are slow beside all else: so are
# those of 80 SMs at a width of 512, four times the products a score.
_ON_PART = (80, 104)
_WIDE = {**_SELECTION[0], "L": 2**18, "D": 512}

SWEEPS: tuple[Sweep, ...] = (
    Sweep(operation="gemm", rows=("gemm",), shapes=_GEMMS, quick=10),
    Sweep(operation="selection_phases", rows=_PHASES, shapes=_SELECTION, quick=5),
    Sweep(operation="sparse_attention", rows=_SPARSE_ROWS, shapes=_SPARSE, quick=2),
    Sweep(operation="memory", rows=("copy", "gather", "scatter_add"), shapes=_MEMORY, quick=4),
    Sweep(operation="replay", rows=("replay_forward", "replay_backward"), shapes=_REPLAY, quick=3),
    Sweep(
        operation="elementwise",
        rows=("residual", "gated_activation", "norm", "norm_backward"),
        shapes=_ROWS,
        quick=4,
    ),
    Sweep(
        operation="dense_attention",
        rows=("dense_attention_forward", "dense_attention_backward"),
        shapes=_DENSE,
        quick=4,
    ),
    Sweep(operation="grouped_gemm", rows=("grouped_gemm",), shapes=_GROUPED, quick=4),
    Sweep(operation="selection_phases", rows=_PHASES, shapes=_SELECTION, quick=2, dtypes=("fp8",)),
    Sweep(operation="gemm", rows=("gemm",), shapes=_GEMMS, quick=5, dtypes=("fp8",)),
    Sweep(
        operation="cross_entropy",
        rows=("cross_entropy_forward", "cross_entropy_backward"),
        shapes=_LOGITS,
        quick=2,
    ),
    Sweep(operation="optimizer", rows=("optimizer",), shapes=_OPTIMIZER, quick=3, dtypes=("fp32",)),
    Sweep(operation="index_loss", rows=("index_loss_sparse",), shapes=_INDEX_LOSS, quick=2),
    Sweep(operation="grouped_gemm", rows=("grouped_gemm",), shapes=_GROUPED, quick=2, dtypes=("fp8",)),
    Sweep(operation="topk_torch", rows=("topk_torch",), shapes=_TOPK, quick=1, dtypes=("fp32",)),
    *(
        Sweep(operation=operation, rows=rows, shapes=shapes, quick=quick, sms=sms)
        for sms in _ON_PART
        for operation, rows, shapes, quick in (
            ("selection_phases", _PHASES, _SELECTION[:3], int(sms == 80)),
            ("selection_phases", ("score_only", "score_table"), (_WIDE,), int(sms == 80)),
            ("sparse_attention", _SPARSE_ROWS, _SPARSE[:1], 0),
            ("gemm", ("gemm",), _GEMMS[:3], 0),
            ("memory", ("copy", "gather", "scatter_add"), _MEMORY[:1], 0),
            ("replay", ("replay_forward", "replay_backward"), _REPLAY[:1], 0),
        )
    ),
    # The wide keys on all SMs, to tell products from the rest.
    Sweep(operation="selection_phases", rows=("score_only", "score_table"), shapes=(_WIDE,), quick=1),
)


def plan(level: Level, operations: Iterable[str] = (), slower: float = 1.0) -> list[Point]:
    """The points of a plan in order, with estimates; ``operations`` keeps only those benchmarks.

    Points that share inputs stand together. ``slower``: how many times as long as on an H200 kernels take.
    """
    wanted = set(operations) or set(registry.NAMES)
    queued: list[tuple[int, float, int, tuple[Point, ...]]] = []
    for number, sweep in enumerate(SWEEPS):
        if sweep.operation not in wanted:
            continue
        cases = list(sweep.cases())
        for index, (smallest, points) in enumerate(cases):
            if level == "full" or smallest == "quick":
                queued.append((LEVELS.index(smallest), index / len(cases), number, points))
    queued.sort(key=lambda each: each[:3])
    compiled: set[tuple[Any, ...]] = set()
    return [_estimated(point, compiled, slower) for *_, points in queued for point in points]


def _estimated(point: Point, compiled: set[tuple[Any, ...]], slower: float) -> Point:
    """With an estimate; ``compiled`` are kernels that a point before it has compiled."""
    shape = point.shape
    kind = (point.row, point.dtype, *(shape.get(key) for key in ("H", "D", "V", "k", "weights")))
    ours = bool(registry.load(point.operation).sources)
    compiling = _COMPILE_S if ours and kind not in compiled else 0.0
    compiled.add(kind)
    kernel = slower * kernel_seconds(point)
    samples = min(max(SAMPLING_S / max(kernel, 1e-6), FEWEST_SAMPLES), MOST_SAMPLES)
    return replace(point, estimate_s=compiling + _OVERHEAD_S + (_RUNS + samples) * kernel)


def kernel_seconds(point: Point) -> float:
    """About how long one run takes; HyTopK as a whole like scoring every key."""
    work = work_of("hytopk.filter" if point.row == "hytopk" else point.row, point.dtype, point.shape)
    if work is None:
        return 0.01
    units = sum(_CLOCKS.get(unit, 0.1) * amount for unit, amount in work.units.items()) / _SM_CLOCKS_PER_S
    part = 132 / point.sms if point.sms else 1.0
    return max((work.flops / (_FLOPS * (1 + work.fp8)) + units) * part, work.hbm_bytes / _BYTES) + 1e-5
