"""torch.topk over FP32 score rows, whole and causally masked, on all of a GPU's SMs and on part of them.

A causal row of a score table is minus infinity behind the query. How long torch.topk takes then, and whether its
time scales with the number of SMs, are inputs of the model (profile factors ``masked_topk`` and ``topk_torch``).

    python -m hyscale_calibration.benches.topk_torch --json results.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from hyscale_calibration.benches.record import milliseconds, row, write

KEYS = 1_048_576
ROWS = 1024
TOPK = 2048
VISIBLE = (1.0, 0.75, 0.5, 0.25, 0.0625)
SM_COUNTS = (132, 104, 80, 64)


def scores(family: str) -> torch.Tensor:
    """Rows of scores: standard normal, or a sum over 32 heads of weighted ReLU as an indexer gives."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    table = torch.empty(ROWS, KEYS, device="cuda")
    if family == "normal":
        return table.normal_(generator=generator)
    table.zero_()
    for _ in range(32):
        weight = torch.randn(ROWS, 1, device="cuda", generator=generator)
        for block in range(0, ROWS, 128):
            part = torch.randn(128, KEYS, device="cuda", generator=generator).relu_()
            table[block : block + 128] += part.mul_(weight[block : block + 128])
    return table


@contextmanager
def partition(sms: int) -> Iterator[None]:
    """Run on some of the SMs."""
    context = torch.cuda.GreenContext.create(sms)
    context.set_context()
    try:
        yield
    finally:
        context.pop_context()


def masked(table: torch.Tensor, visible: float) -> torch.Tensor:
    """The table with everything behind the first ``visible`` share of each row at minus infinity."""
    copy = table.clone()
    copy[:, int(KEYS * visible) :] = float("-inf")
    return copy


def measure() -> list[dict[str, Any]]:
    """All rows of the benchmark."""
    results = []
    for family in ("normal", "indexer"):
        table = scores(family)
        for visible in VISIBLE:
            results.append(_time(masked(table, visible), family, visible, SM_COUNTS[0]))
    for sms in SM_COUNTS[1:]:
        for visible in (1.0, 0.5):
            with partition(sms):
                results.append(_time(masked(table, visible), "indexer", visible, sms))
    return results


def _time(data: torch.Tensor, family: str, visible: float, sms: int) -> dict[str, Any]:
    check(data)
    shape = {"n": ROWS, "L": KEYS, "k": TOPK, "visible": visible, "family": family, "sms": sms}
    times = milliseconds(lambda: torch.topk(data, TOPK, dim=-1, sorted=False))
    return row("topk_torch", "fp32", shape, times, 4.0 * ROWS * KEYS)


def check(data: torch.Tensor) -> None:
    """The selected values are those a sort gives; ValueError otherwise."""
    part = data[:2]
    found = torch.topk(part, TOPK, dim=-1, sorted=False).values.sort(dim=-1, descending=True).values
    if not torch.equal(found, part.sort(dim=-1, descending=True).values[:, :TOPK]):
        raise ValueError("torch.topk does not select the largest scores")


def main() -> None:
    """Measure, print a short table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    results = measure()
    write(arguments.json, results, kernel_hash=None)
    for result in results:
        shape, rate = result["shape"], result["tb_per_s"]
        per_row = result["median_ms"] / shape["n"] * 1e3
        case = f"{shape['family']:8} visible {shape['visible']:6.4f} sms {shape['sms']:4d}"
        print(f"{case} {per_row:7.2f} us a row {rate:.3f} TB/s")


if __name__ == "__main__":
    main()
