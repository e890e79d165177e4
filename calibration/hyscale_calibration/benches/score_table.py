"""Scoring alone and into a table, on random data, every key visible.

Scoring alone keeps each query's maximum in registers: the least that any selection costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import (
    CannotRun,
    Case,
    CheckFailed,
    Measurement,
    Measurements,
    Operation,
    Shape,
)

if TYPE_CHECKING:
    import torch

# Columns, keys, warps and stages.
TILES = ((256, 64, 4, 3), (256, 128, 8, 3), (128, 64, 4, 3))
# What rounding explains, over the sum of magnitudes.
TOLERANCES = {"bf16": 1e-5, "fp8": 2e-3}


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Maximum only and table with each tile of Triton, and the table of Gluon where it runs."""
    import torch
    from hyscale_kernels.score_table.api import fill
    from hyscale_kernels.scoring.hopper import no_gluon
    from hyscale_kernels.scoring.inputs import Scored
    from hyscale_kernels.scoring.tiles import NARROW, Tile

    from hyscale_calibration.benches.inputs import indexer_inputs

    n, length, heads, dim = (shape[key] for key in ("n", "L", "H", "D"))
    scored = Scored.of(*indexer_inputs(dtype, n, length, heads, dim, device))

    def run(way: Mapping[str, Any], table: bool) -> torch.Tensor:
        out = torch.empty((n, length) if table else (n,), device=device)
        fill(scored, out, table=table, **way)
        return out

    ways = [
        (name, tile, {"impl": "triton", "tile": tile})
        for columns, keys, warps, stages in TILES
        for tile in [Tile(columns=columns, keys=keys, warps=warps, stages=stages).at(heads, dim, scored.dtype.itemsize)]
        for name in ("score_only", "score_table")
    ]
    if not no_gluon(scored):
        ways.append(("score_table", NARROW.at(heads, dim, scored.dtype.itemsize), {"impl": "gluon"}))
    for name, tile, way in ways:
        table = name == "score_table"
        yield Measurement(
            name=name,
            # ``imprecise`` None: the compiler decides how many FP8 products are added up before FP32.
            shape={**shape, "impl": way["impl"], **asdict(tile), "imprecise": None},
            check=partial(check, dtype, heads, dim, way, table, device),
            run=partial(run, way, table),
            flop=2.0 * n * length * heads * dim,
            traffic_bytes=4.0 * n * length if table else None,
        )


def check(dtype: str, heads: int, dim: int, way: Mapping[str, Any], table: bool, device: str) -> dict[str, Any]:
    """Largest error of a small table, or of its maxima, over the sum of magnitudes."""
    import torch
    from hyscale_kernels.score_table.api import fill
    from hyscale_kernels.scoring.inputs import Scored
    from hyscale_kernels.scoring.reference import scores
    from triton.runtime.errors import OutOfResources

    from hyscale_calibration.benches.inputs import indexer_inputs

    # Gluon is for groups of tiles.
    n, length = 70, 5000 if way["impl"] == "gluon" else 1000
    q, keys, weights, spans = indexer_inputs(dtype, n, length, heads, dim, device)
    # Borders of tiles and of what is visible in all positions to each other, the first query sees nothing.
    spans[:, 1] = torch.arange(n, device=device) * (length // n)
    found = torch.full((n, length) if table else (n,), float("nan"), device=device)
    try:
        fill(Scored.of(q, keys, weights, spans), found, table=table, **way)
    except OutOfResources as excess:
        raise CannotRun(f"the tile does not fit this GPU: {excess}") from excess
    expected = scores(q, keys, weights, spans)
    magnitudes = scores(q.float().abs(), keys.float().abs(), weights.abs(), spans)
    if not table:
        expected, magnitudes = expected.amax(1), magnitudes.amax(1)
    visible = expected.isfinite()
    if not torch.equal(found.isfinite(), visible):
        raise CheckFailed("scores are finite where nothing is visible, or the reverse")
    error = float(((found.double() - expected).abs() / magnitudes)[visible].max())
    # NaN is not within the tolerance either.
    if not error <= TOLERANCES[dtype]:
        raise CheckFailed(f"a score is off by {error:.1e} of the sum of magnitudes")
    return {"error": error}


OPERATION = Operation(
    name="score_table",
    description="scores of every key, into an FP32 table or only each query's maximum",
    sources=("score_table/gluon.py", "score_table/triton.py", "scoring/gluon.py", "scoring/triton.py"),
    dtypes=("bf16", "fp8"),
    cases=(Case(name="1M keys, GLM-5.1's indexer", shape={"n": 8192, "L": 1_048_576, "H": 32, "D": 128}),),
    trial={"n": 4, "L": 64},
    measure=measure,
    samples=11,
)
