"""What memory takes: copies, rows gathered by index, and rows added by index with FP32 atomics, by torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import Case, CheckFailed, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

# Of sums in FP32 whose order is open.
TOLERANCE = 1e-4


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """``rows`` BF16 rows of ``width``, from or to a table of ``table`` rows at places that are drawn."""
    import torch

    rows, width, table = (shape[key] for key in ("rows", "width", "table"))
    generator = torch.Generator(device).manual_seed(0)
    source = torch.randn(table, width, device=device, generator=generator, dtype=torch.bfloat16)
    places = torch.randint(table, (rows,), device=device, generator=generator)
    block = torch.randn(rows, width, device=device, generator=generator, dtype=torch.bfloat16)
    target = torch.empty_like(block)
    each = 2.0 * rows * width
    yield Measurement(
        name="copy",
        shape=shape,
        check=partial(equal, lambda: target.copy_(block), block),
        run=lambda: target.copy_(block),
        traffic_bytes=2 * each,
    )
    yield Measurement(
        name="gather",
        shape=shape,
        check=partial(equal, lambda: source.index_select(0, places)[-1:], source[places[-1:]]),
        run=lambda: source.index_select(0, places),
        traffic_bytes=2 * each + 8.0 * rows,
    )
    sums = torch.zeros(table, width, device=device)
    added = block.float()
    yield Measurement(
        name="scatter_add",
        shape=shape,
        check=partial(check_sums, added, places, table),
        run=lambda: sums.index_add_(0, places, added),
        # A row of additions is read; sums are read and written where they are kept.
        traffic_bytes=6 * each + 8.0 * rows,
    )


def equal(run: Callable[[], torch.Tensor], expected: torch.Tensor) -> dict[str, Any]:
    """The result is what it should be, bit by bit."""
    import torch

    if not torch.equal(run(), expected):
        raise CheckFailed("rows differ")
    return {}


def check_sums(added: torch.Tensor, places: torch.Tensor, table: int) -> dict[str, Any]:
    """Sums over all rows of the first columns are those of what was added."""
    found = added.new_zeros(table, added.shape[1]).index_add_(0, places, added)[:, :8].double().sum(0)
    expected = added[:, :8].double().sum(0)
    error = float((found - expected).abs().max() / added.double().norm())
    if not error <= TOLERANCE:
        raise CheckFailed(f"sums are off by {error:.1e}")
    return {"error": error}


OPERATION = Operation(
    name="memory",
    description="copies, gathers and additions of rows by index, by torch",
    dtypes=("bf16",),
    cases=(
        Case(name="index keys", shape={"rows": 2**22, "width": 128, "table": 2**20}),
        Case(name="latent keys", shape={"rows": 2**20, "width": 576, "table": 2**18}),
    ),
    trial={"rows": 64, "width": 16, "table": 32},
    measure=measure,
)
