"""HyTopK beside scoring alone and selection through a table, in one run.

Spans are every key, or those of a rank of zigzag context parallelism. Families of scores differ in how well samples
tell a threshold: normal; clustered in position; heavy-tailed keys; a plateau of zeros at the border of the selection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from hyscale_calibration.benches.operation import (
    Case,
    CheckFailed,
    Measurement,
    Measurements,
    Operation,
    Shape,
    Skipped,
    peer,
)

if TYPE_CHECKING:
    import torch
    from hyscale_kernels.hytopk import Selection

    Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]

# Rows whose selection is compared with the oracle's.
CHECKED = 4
BLOCK_ROWS = 8192


def case(name: str, **shape: Any) -> Case:
    """A case at GLM-5.1's indexer unless said otherwise.

    ``visible``: all keys, or those of the first or the middle rank of zigzag order. ``ratio``: tokens of a key.
    ``weights``: of heads, normal or none.
    """
    usual = {"n": 8192, "L": 1_048_576, "H": 32, "D": 128, "k": 2048, "ratio": 1}
    return Case(name=name, shape={**usual, "weights": "signed", "visible": "all", "family": "normal", **shape})


CASES = (
    case("1M keys, GLM-5.1's indexer"),
    case("its first zigzag rank of 128", visible="first"),
    case("its middle zigzag rank of 128", visible="middle"),
    case("128K keys, first zigzag rank of 16", L=131_072, visible="first"),
    case("32K keys, first zigzag rank of 4", L=32_768, visible="first"),
    case("CSA at 1M tokens", n=32_768, L=262_144, H=64, k=512, ratio=4),
    case("QSA at 1M tokens", n=32_768, L=262_144, H=4, k=512, ratio=4, weights="none"),
    case("clustered in position", family="clustered"),
    case("heavy-tailed", family="heavy_tailed"),
    case("plateau of zeros", family="plateau"),
)


def inputs(shape: Shape, dtype: str, device: str) -> Inputs:
    """q, keys, weights and spans of a case."""
    import torch
    from hyscale_kernels.spans import causal_spans, zigzag_positions

    from hyscale_calibration.benches.inputs import DTYPES, indexer_inputs

    n, length, heads, dim, ratio = (shape[key] for key in ("n", "L", "H", "D", "ratio"))
    q, keys, weights, spans = indexer_inputs(dtype, n, length, heads, dim, device)
    generator = torch.Generator(device=device).manual_seed(1)
    values = keys.float()
    if shape["family"] == "clustered":
        # Neighbours share most of what they are.
        centres = torch.randn(-(-length // 512), dim, device=device, generator=generator)
        values = centres.repeat_interleave(512, 0)[:length] + 0.3 * values
    elif shape["family"] == "heavy_tailed":
        values = values / torch.rand(length, 1, device=device, generator=generator).clamp(min=1e-3).sqrt()
    elif shape["family"] == "plateau":
        # One key in a thousand, fewer than are selected, has a score; products of the others are negative.
        scored = torch.rand(length, device=device, generator=generator) < 1e-3
        q = q.float()
        q[..., 0] = 16
        q = q.to(DTYPES[dtype])
        values[:, 0] = torch.where(scored, 16.0, -16.0)
    keys = values.to(DTYPES[dtype])
    if shape["visible"] != "all":
        ranks = length * ratio // n
        rank = 0 if shape["visible"] == "first" else ranks // 2
        spans = causal_spans(zigzag_positions(length * ratio, ranks, rank, device), ratio)
    return q, keys, weights if shape["weights"] == "signed" else None, spans


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Scoring alone, tables with three ways to select, HyTopK, its plain Triton twin where another kernel is faster,
    replay and, for the first case, the steps of HyTopK.
    """
    import torch
    from hyscale_kernels.hytopk import hytopk
    from hyscale_kernels.replay.rescore import rescore
    from hyscale_kernels.score_table import select
    from hyscale_kernels.score_table.api import Method, fill
    from hyscale_kernels.scoring.hopper import no_gluon
    from hyscale_kernels.scoring.inputs import Scored

    n, length, heads, dim, topk = (shape[key] for key in ("n", "L", "H", "D", "k"))
    given = inputs(shape, dtype, device)
    spans = given[3]
    scored = Scored.of(*given)
    visible = float((spans[:, 1] - spans[:, 0]).sum())
    flop = 2.0 * visible * heads * dim
    oracle = table_and_choice(given, topk)
    selection = hytopk(*given, topk)

    def row(name: str, run: Callable[[], object], check: Callable[[], dict[str, Any]]) -> Measurement:
        return Measurement(name=name, shape=shape, check=check, run=run, flop=flop)

    def score_only() -> torch.Tensor:
        out = torch.empty(n, device=device)
        fill(scored, out, table=False)
        return out

    yield row("score_only", score_only, dict)
    for method in get_args(Method):
        run = partial(select, *given, topk, method=method)
        yield row(f"table_{method}", run, partial(check_scores, run, oracle))
    flashinfer = peer("table_flashinfer", "flashinfer")
    if isinstance(flashinfer, Skipped):
        yield flashinfer
    else:

        def by_flashinfer() -> torch.Tensor:
            chosen = torch.empty(n, topk, dtype=torch.int32, device=device)
            table = torch.empty(min(n, BLOCK_ROWS), length, device=device)
            for first in range(0, n, BLOCK_ROWS):
                rows = slice(first, min(first + BLOCK_ROWS, n))
                fill(scored.of_queries(rows), table[: rows.stop - first])
                chosen[rows] = flashinfer.top_k(table[: rows.stop - first], topk)[1].int()
            return chosen

        yield row("table_flashinfer", by_flashinfer, partial(check_scores, by_flashinfer, oracle))
    select_exactly = partial(hytopk, *given, topk)
    yield row("hytopk", select_exactly, partial(check_selection, select_exactly, oracle))
    if not no_gluon(scored):
        twin = partial(hytopk, *given, topk, impl="triton")
        yield row("hytopk_triton", twin, partial(check_selection, twin, oracle))

    def replay() -> torch.Tensor:
        scores = torch.empty(n, topk, device=device)
        rescore(scored, selection.indices, scores)
        return scores

    yield Measurement(
        name="replay_forward",
        shape=shape,
        check=dict,
        run=replay,
        flop=2.0 * float((selection.indices >= 0).sum()) * heads * dim,
    )
    if shape == CASES[0].shape:
        yield from steps(scored, topk, shape, flop)


def steps(scored: Any, topk: int, shape: Shape, flop: float) -> Measurements:
    """The steps of HyTopK one by one, at a shape whose queries fit one block."""
    import torch
    from hyscale_kernels.hytopk import Plan
    from hyscale_kernels.hytopk.api import blocks
    from hyscale_kernels.hytopk.stages import bitmap, compact, find_thresholds, mark
    from hyscale_kernels.replay.rescore import rescore
    from hyscale_kernels.top_k.api import select_candidates

    n, length = scored.q.shape[0], scored.keys.shape[0]
    device = scored.q.device
    plan = Plan.of(topk, length)
    threshold = torch.empty(n, device=device)
    opened = torch.empty_like(scored.spans)
    words = bitmap(n, length, plan, device)
    size = plan.chunk_bytes // (8 * plan.capacity)
    places = torch.empty(size, plan.capacity, dtype=torch.int32, device=device)
    scores = torch.empty(places.shape, device=device)
    candidates, counts = (torch.empty(n, dtype=torch.int32, device=device) for _ in range(2))
    chosen = torch.empty(n, topk, dtype=torch.int32, device=device)
    lowest = torch.empty(n, device=device)

    def compacting() -> None:
        for rows in blocks(n, size):
            taken = places[: rows.stop - rows.start]
            compact(
                words[rows],
                scored.spans[rows],
                opened[rows],
                threshold[rows],
                topk,
                taken,
                candidates[rows],
                counts[rows],
            )

    def rescoring() -> None:
        for rows in blocks(n, size):
            taken = slice(0, rows.stop - rows.start)
            rescore(scored.of_queries(rows), places[taken], scores[taken], counts[rows])

    def selecting() -> None:
        for rows in blocks(n, size):
            taken = slice(0, rows.stop - rows.start)
            select_candidates(scores[taken], places[taken], counts[rows], topk, chosen[rows], lowest[rows])

    for name, run in (
        ("thresholds", lambda: find_thresholds(scored, plan, threshold, opened)),
        ("filter", lambda: mark(scored, plan, threshold, opened, words)),
        ("compact", compacting),
        ("rescore", rescoring),
        ("select", selecting),
    ):
        yield Measurement(name=f"hytopk.{name}", shape=shape, check=dict, run=run, flop=flop)


def table_and_choice(given: Inputs, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of the last queries, and what must be selected of them."""
    from hyscale_kernels.score_table import score_table
    from hyscale_kernels.top_k.reference import top_k

    q, keys, weights, spans = given
    table = score_table(q[-CHECKED:], keys, None if weights is None else weights[-CHECKED:], spans[-CHECKED:])
    return table, top_k(table, topk)


def check_scores(run: Callable[[], torch.Tensor], oracle: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """The last queries select keys with the scores of the oracle's; which of equal ones is up to the library."""
    import torch

    table, expected = oracle
    for scores, mine, theirs in zip(table, run()[-CHECKED:], expected, strict=True):
        kept = theirs[theirs >= 0].long()
        found = mine[: len(kept)].long() if len(kept) < len(mine) else mine.long()
        if not torch.equal(scores[found].sort().values, scores[kept].sort().values):
            raise CheckFailed("keys with other scores than the oracle's are selected")
    return {}


def check_selection(run: Callable[[], Selection], oracle: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """The last queries select what the oracle does, index by index."""
    import torch

    found = run()
    if not torch.equal(found.indices[-CHECKED:], oracle[1]):
        raise CheckFailed("other keys than the oracle's are selected")
    if bool((found.margin < 0).any()):
        raise CheckFailed("a selected score is below its threshold")
    filtered = found.candidates[~found.recovered].double()
    return {
        "recovered": int(found.recovered.sum()),
        "candidates_mean": float(filtered.mean()) if len(filtered) else None,
        "candidates_max": int(filtered.max()) if len(filtered) else None,
    }


OPERATION = Operation(
    name="hytopk",
    description="exact selection without a table, beside scoring alone and selection through a table",
    sources=(
        "hytopk/gluon.py",
        "hytopk/triton.py",
        "replay/triton.py",
        "score_table/gluon.py",
        "score_table/triton.py",
        "scoring/gluon.py",
        "scoring/triton.py",
        "top_k/triton.py",
    ),
    dtypes=("bf16", "fp8"),
    cases=CASES,
    trial={"n": 4, "L": 256, "H": 2, "D": 32, "k": 8, "ratio": 1},
    measure=measure,
    samples=7,
)
