"""torch.topk over FP32 score rows, whole and causally masked, on all of a GPU's SMs and on part of them.

A causal row of a score table is minus infinity behind the query. How long torch.topk takes then, and whether its
time scales with the number of SMs, are inputs of the model (profile factors ``masked_topk`` and ``topk_torch``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

NAME = "topk_torch"
VISIBLE = (1.0, 0.75, 0.5, 0.25, 0.0625)
SM_COUNTS = (104, 80, 64)


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """One row, on the number of SMs of the case."""
    import torch

    available = torch.cuda.get_device_properties().multi_processor_count if device == "cuda" else 0
    if shape["sms"] > available:
        raise CannotRun(f"there are {available} SMs")
    with partition(shape["sms"] if shape["sms"] < available else 0):
        data = masked(scores(shape["family"], shape["n"], shape["L"], device), shape["visible"])
        topk = shape["k"]
        yield Measurement(
            name=NAME,
            shape={**shape, "sms": shape["sms"] or available},
            check=partial(check, data, topk),
            run=lambda: torch.topk(data, topk, dim=-1, sorted=False),
            traffic_bytes=4.0 * data.numel(),
        )


def scores(family: str, rows: int, keys: int, device: str) -> torch.Tensor:
    """Rows of scores: standard normal, or a sum over 32 heads of weighted ReLU as an indexer gives."""
    import torch

    generator = torch.Generator(device=device).manual_seed(0)
    table = torch.zeros(rows, keys, device=device)
    if family == "normal":
        return table.normal_(generator=generator)
    for _ in range(32):
        weight = torch.randn(rows, 1, device=device, generator=generator)
        for block in range(0, rows, 128):
            target = table[block : block + 128]
            part = torch.randn(target.shape, device=device, generator=generator).relu_()
            target += part.mul_(weight[block : block + 128])
    return table


@contextmanager
def partition(sms: int) -> Iterator[None]:
    """Run on some of the SMs; 0 for all of them. CannotRun where CUDA or torch has no partitions."""
    if not sms:
        yield
        return
    import torch

    try:
        context = torch.cuda.GreenContext.create(num_sms=sms)
    except (AttributeError, RuntimeError) as error:
        raise CannotRun(f"no partition of SMs: {error}") from error
    context.set_context()
    try:
        yield
    finally:
        context.pop_context()


def masked(table: torch.Tensor, visible: float) -> torch.Tensor:
    """The table with everything behind the first ``visible`` share of each row at minus infinity, in place."""
    table[:, int(table.shape[1] * visible) :] = float("-inf")
    return table


def check(data: torch.Tensor, topk: int) -> dict[str, Any]:
    """The selected values of two rows are those a sort gives."""
    import torch

    part = data[:2]
    found = torch.topk(part, topk, dim=-1, sorted=False).values.sort(dim=-1, descending=True).values
    if not torch.equal(found, part.sort(dim=-1, descending=True).values[:, :topk]):
        raise CheckFailed("torch.topk does not select the largest scores")
    return {}


def _case(family: str, visible: float, sms: int = 0) -> Case:
    shape = {"n": 1024, "L": 1_048_576, "k": 2048, "visible": visible, "family": family, "sms": sms}
    return Case(name=f"{family} scores, {visible:.2%} visible" + (f", {sms} SMs" if sms else ""), shape=shape)


OPERATION = Operation(
    name=NAME,
    description="torch.topk over rows of scores, whole and causally masked, on all SMs (sms=0) and on some",
    dtypes=("fp32",),
    cases=(
        *(_case(family, visible) for family in ("normal", "indexer") for visible in VISIBLE),
        *(_case("indexer", visible, sms) for sms in SM_COUNTS for visible in (1.0, 0.5)),
    ),
    trial={"n": 4, "L": 1024, "k": 16, "sms": 0},
    measure=measure,
)
