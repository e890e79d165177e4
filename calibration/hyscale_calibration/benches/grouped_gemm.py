"""Products of groups of rows with a matrix each, as experts run them, by torch.

Groups are of one size: routing that is balanced. FP8 is E4M3 with one scale a row and a column.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.gemm import CORNER, compare_corner
from hyscale_calibration.benches.operation import CannotRun, Case, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

# Rows of a group start at multiples of so many, which tensor cores load at once.
ALIGNED = 16


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """``m`` rows in ``groups``, each with a matrix ``[k, n]`` of its own."""
    import torch

    from hyscale_calibration.benches.inputs import DTYPES

    m, groups, n, k = (shape[key] for key in ("m", "groups", "n", "k"))
    if m % (groups * ALIGNED):
        raise CannotRun(f"{m} rows are not {groups} groups of a multiple of {ALIGNED}")
    generator = torch.Generator(device).manual_seed(0)
    a = torch.randn(m, k, device=device, generator=generator, dtype=torch.bfloat16).to(DTYPES[dtype])
    b = torch.randn(groups, n, k, device=device, generator=generator, dtype=torch.bfloat16).to(DTYPES[dtype])
    ends = torch.arange(1, groups + 1, device=device, dtype=torch.int32) * (m // groups)

    def run() -> torch.Tensor:
        if dtype == "bf16":
            return torch._grouped_mm(a, b.transpose(1, 2), offs=ends)
        scales = (torch.ones(rows, device=device) for rows in ((m,), (groups, n)))
        return torch._scaled_grouped_mm(
            a, b.transpose(1, 2), *scales, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    yield Measurement(
        name="grouped_gemm",
        shape=shape,
        check=partial(check_last, run, a, b),
        run=run,
        flop=2.0 * m * n * k,
        traffic_bytes=float(a.nbytes + b.nbytes + 2 * m * n),
    )


def check_last(run: Any, a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Error of the last rows and columns, which belong to the last group, relative to their norm."""
    if a.itemsize == 1 and a.device.type == "cpu":
        raise CannotRun("torch has no grouped FP8 product on a CPU")
    rows = min(CORNER, a.shape[0] // b.shape[0])
    return compare_corner(run()[-rows:, -CORNER:], a[-rows:], b[-1, -CORNER:])


OPERATION = Operation(
    name="grouped_gemm",
    description="products of groups of rows with a matrix each, by torch",
    dtypes=("bf16", "fp8"),
    cases=(
        Case(name="GLM-5.1's experts, gate and up", shape={"m": 65536, "groups": 8, "n": 4096, "k": 6144}),
        Case(name="GLM-5.1's experts, down", shape={"m": 65536, "groups": 8, "n": 6144, "k": 2048}),
    ),
    trial={"m": 64, "groups": 2, "n": 32, "k": 48},
    measure=measure,
)
