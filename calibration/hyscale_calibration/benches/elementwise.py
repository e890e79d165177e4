"""Passes over memory that a layer is made of: residual, gated activation, norm and its gradient, by torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import Case, CheckFailed, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

# Of results in BF16, relative to their norm.
TOLERANCE = 2**-6
CHECKED = 64


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """``n`` rows of ``width`` BF16 values."""
    import torch
    from torch.nn.functional import rms_norm, silu

    n, width = shape["n"], shape["width"]
    generator = torch.Generator(device).manual_seed(0)
    x, y, grad = (torch.randn(n, width, device=device, generator=generator, dtype=torch.bfloat16) for _ in range(3))
    weight = torch.randn(width, device=device, generator=generator, dtype=torch.bfloat16)
    each = 2.0 * n * width

    def norm(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return rms_norm(values, (width,), scale, 1e-6)

    def by_hand(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return values * (values.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * scale

    def row(
        name: str, run: Callable[[], torch.Tensor], exact: Callable[[], torch.Tensor], passes: float
    ) -> Measurement:
        return Measurement(
            name=name, shape=shape, check=partial(check, run, exact), run=run, traffic_bytes=passes * each
        )

    few, others = x[:CHECKED].double(), y[:CHECKED].double()
    yield row("residual", lambda: x + y, lambda: few + others, 3)
    # The activation is written and read between its two kernels.
    yield row("gated_activation", lambda: silu(x) * y, lambda: silu(few) * others, 5)
    yield row("norm", lambda: norm(x, weight), lambda: by_hand(few, weight.double()), 2)
    leaf = x.detach().requires_grad_()
    out = norm(leaf, weight)

    def exact_gradient() -> torch.Tensor:
        start = few.clone().requires_grad_()
        return torch.autograd.grad(by_hand(start, weight.double()), start, grad[:CHECKED].double())[0]

    yield row(
        "norm_backward",
        lambda: torch.autograd.grad(out, leaf, grad, retain_graph=True)[0],
        exact_gradient,
        3,
    )


def check(run: Callable[[], torch.Tensor], exact: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """Error of the first rows relative to their norm."""
    found, expected = run()[:CHECKED].double(), exact()
    error = float(((found - expected).norm() / expected.norm()).detach())
    # NaN is not within the tolerance either.
    if not error <= TOLERANCE:
        raise CheckFailed(f"the first rows are off by {error:.1e}")
    return {"error": error}


OPERATION = Operation(
    name="elementwise",
    description="residual, gated activation, norm and its gradient, by torch",
    dtypes=("bf16",),
    cases=(Case(name="GLM-5.1's hidden state, 8,192 tokens", shape={"n": 8192, "width": 6144}),),
    trial={"n": 8, "width": 64},
    measure=measure,
)
