"""Scoring alone and into a table, on random data, every key visible.

Scoring alone keeps each query's maximum in registers: the least that any selection costs.

    python -m hyscale_calibration.benches.score_table --json results.json
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hyscale_kernels.score_table.triton as table_kernels
import hyscale_kernels.scoring.triton as tile_kernels
import torch
from hyscale_kernels.score_table.api import FP8, Scored, Tile
from hyscale_kernels.scoring.reference import scores

from hyscale_calibration.benches.record import kernel_hash, milliseconds, row, write

SHAPE = {"n": 8192, "L": 1_048_576, "H": 32, "D": 128}
TILES = tuple(
    Tile(columns=columns, keys=keys, warps=warps, stages=stages)
    for columns, keys, warps, stages in (
        (256, 64, 4, 2),
        (256, 64, 4, 3),
        (256, 64, 8, 3),
        (256, 128, 8, 3),
        (128, 64, 4, 3),
        (128, 128, 8, 3),
    )
)


def inputs(dtype: torch.dtype, n: int, keys: int, heads: int, dim: int) -> tuple[torch.Tensor, ...]:
    """Random q, keys, weights and spans of every key."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    q = torch.randn(n, heads, dim, device="cuda", generator=generator).to(dtype)
    entries = torch.randn(keys, dim, device="cuda", generator=generator).to(dtype)
    weights = torch.randn(n, heads, device="cuda", generator=generator)
    spans = torch.tensor([[0, keys]], device="cuda", dtype=torch.int32).repeat(n, 1)
    return q, entries, weights, spans


def check(dtype: torch.dtype, heads: int, dim: int, **launch: Any) -> float:
    """Largest error of a small table over the sum of magnitudes; ValueError above what rounding explains."""
    q, keys, weights, spans = inputs(dtype, 70, 1000, heads, dim)
    spans[:, 1] = torch.arange(70, device="cuda") * 14
    table = torch.full((70, 1000), float("nan"), device="cuda")
    Scored.of(q, keys, weights, spans).launch(table, 1000, **launch)
    expected = scores(q, keys, weights, spans)
    bound = scores(q.float().abs(), keys.float().abs(), weights.abs(), spans)
    if not torch.equal(table.isfinite(), expected.isfinite()):
        raise ValueError("scores are finite where nothing is visible, or the reverse")
    visible = expected.isfinite()
    error = float(((table.double() - expected).abs() / bound)[visible].max())
    if error > (1e-5 if dtype == torch.bfloat16 else 2e-3):
        raise ValueError(f"a score is off by {error:.1e} of the sum of magnitudes")
    return error


def measure(n: int, samples: int, tiles: tuple[Tile, ...] = TILES) -> list[dict[str, Any]]:
    """All rows of the benchmark: each tile, BF16 and FP8, maximum only and table."""
    results = []
    length, heads, dim = SHAPE["L"], SHAPE["H"], SHAPE["D"]
    table = torch.empty(n, length, device="cuda")
    for name, dtype, imprecise in (("bf16", torch.bfloat16, None), ("fp8", FP8, None)):
        scored = Scored.of(*inputs(dtype, n, length, heads, dim))
        for tile in tiles:
            launch = {"tile": tile, "imprecise": imprecise}
            try:
                error = check(dtype, heads, dim, **launch)
                for kept in ("score_only", "score_table"):
                    times = time(scored, table, kept == "score_table", samples, **launch)
                    shape = {**SHAPE, "n": n, **asdict(tile), "imprecise": imprecise}
                    result = row(kept, name, shape, times, 4.0 * n * length)
                    result["tflops"] = 2.0 * n * length * heads * dim / result["median_ms"] / 1e9
                    result["error"] = error
                    results.append(result)
                    print(describe(result), flush=True)
            except Exception as problem:
                print(f"{name} {tile}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
    return results


def time(scored: Scored, table: torch.Tensor, whole: bool, samples: int, **launch: Any) -> list[float]:
    """Milliseconds of one launch over all keys, into the table or not."""
    out = table if whole else table.view(-1)[: table.shape[0]]
    return milliseconds(lambda: scored.launch(out, table.shape[1], table=whole, **launch), samples=samples, warm_up=1)


def describe(result: dict[str, Any]) -> str:
    """One line of the table."""
    tile = " ".join(f"{name} {result['shape'][name]}" for name in ("columns", "keys", "warps", "stages"))
    return (
        f"{result['dtype']:13} {result['name']:11} {tile:40} {result['median_ms']:8.2f} ms"
        f" {result['tflops']:7.0f} TFLOP/s error {result['error']:.1e}"
    )


def main() -> None:
    """Measure, print a short table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--n", type=int, default=SHAPE["n"])
    parser.add_argument("--samples", type=int, default=5)
    arguments = parser.parse_args()
    write(
        arguments.json,
        measure(arguments.n, arguments.samples),
        kernel_hash(table_kernels.__file__, tile_kernels.__file__),
    )


if __name__ == "__main__":
    main()
