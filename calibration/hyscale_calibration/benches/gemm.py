"""Products of matrices by torch, which calls cuBLAS on a GPU: BF16, and FP8 E4M3 with one scale a matrix."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import Case, CheckFailed, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

# Of a corner of the product relative to its norm: what BF16 results round.
TOLERANCE = 2**-7
CORNER = 64


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """One product ``[m, k] x [k, n]``, its weight stored by output as layers do."""
    import torch

    from hyscale_calibration.benches.inputs import DTYPES

    m, n, k = (shape[key] for key in ("m", "n", "k"))
    generator = torch.Generator(device).manual_seed(0)
    a, b = (
        torch.randn(rows, k, device=device, generator=generator, dtype=torch.bfloat16).to(DTYPES[dtype])
        for rows in (m, n)
    )

    def run() -> torch.Tensor:
        return multiply(a, b.t())

    yield Measurement(
        name="gemm",
        shape=shape,
        check=partial(check_corner, run, a, b),
        run=run,
        flop=2.0 * m * n * k,
        traffic_bytes=float(a.nbytes + b.nbytes + 2 * m * n),
    )


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a b`` in BF16; FP8 with the faster accumulation of the tensor cores, as training frameworks run forwards."""
    import torch

    if a.dtype == torch.bfloat16:
        return a @ b
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)


def check_corner(run: Any, a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Error of the last rows and columns of ``a b^T`` relative to their norm."""
    return compare_corner(run()[-CORNER:, -CORNER:], a[-CORNER:], b[-CORNER:])


def compare_corner(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Error of ``found`` relative to the norm of ``a b^T``."""
    expected = a.double() @ b.double().t()
    error = float((found.double() - expected).norm() / expected.norm())
    # NaN is not within the tolerance either.
    if not error <= TOLERANCE:
        raise CheckFailed(f"the product is off by {error:.1e}")
    return {"error": error}


OPERATION = Operation(
    name="gemm",
    description="products of matrices by torch",
    dtypes=("bf16", "fp8"),
    cases=(
        Case(name="GLM-5.1's query projection", shape={"m": 8192, "n": 16384, "k": 2048}),
        Case(name="square", shape={"m": 8192, "n": 8192, "k": 8192}),
    ),
    trial={"m": 16, "n": 32, "k": 48},
    measure=measure,
)
