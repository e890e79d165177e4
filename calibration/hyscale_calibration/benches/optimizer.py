"""An AdamW step on FP32 master weights and the BF16 copy that layers read, by torch's fused kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import Case, CheckFailed, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

RATE, DECAY, EPSILON, BETAS = 1e-3, 0.1, 1e-8, (0.9, 0.95)
TOLERANCE = 1e-5
CHECKED = 4096


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """``tensors`` of ``values`` each."""
    import torch

    count, values = shape["tensors"], shape["values"]
    weights = parameters(count, values, device)
    copies = [torch.empty_like(each, dtype=torch.bfloat16) for each in weights]
    run = step(weights, copies)
    yield Measurement(
        name="optimizer",
        shape=shape,
        check=partial(check, device),
        run=run,
        # Weight and two moments read and written, gradient read; weight read again, its copy written.
        traffic_bytes=(6 * 4.0 + 4.0 + 4.0 + 2.0) * count * values,
    )


def parameters(count: int, values: int, device: str) -> list[torch.Tensor]:
    """Normal weights with normal gradients."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    found = []
    for _ in range(count):
        weight = torch.randn(values, device=device, generator=generator)
        weight.grad = torch.randn(values, device=device, generator=generator)
        found.append(weight)
    return found


def step(weights: list[torch.Tensor], copies: list[torch.Tensor]) -> Any:
    """What one step runs."""
    import torch

    adam = torch.optim.AdamW(weights, lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY, fused=True)

    def run() -> None:
        adam.step()
        torch._foreach_copy_(copies, weights)

    return run


def check(device: str) -> dict[str, Any]:
    """Error of the first step, which the formula of Adam gives: moments start at 0."""
    import torch

    weights = parameters(2, CHECKED, device)
    before, gradients = [each.double().clone() for each in weights], [each.grad.double() for each in weights]
    copies = [torch.empty_like(each, dtype=torch.bfloat16) for each in weights]
    step(weights, copies)()
    errors = []
    for weight, copy, old, gradient in zip(weights, copies, before, gradients, strict=True):
        expected = old * (1 - RATE * DECAY) - RATE * gradient / (gradient.abs() + EPSILON)
        errors.append(float((weight.double() - expected).abs().max()))
        if not torch.equal(copy, weight.bfloat16()):
            raise CheckFailed("the BF16 copy is not the weight rounded")
    if not all(error <= TOLERANCE for error in errors):
        raise CheckFailed(f"a weight is off by {max(errors):.1e}")
    return {"error": max(errors)}


OPERATION = Operation(
    name="optimizer",
    description="a fused AdamW step and the BF16 copy of its weights, by torch",
    dtypes=("fp32",),
    cases=(Case(name="a shard of 256M parameters", shape={"tensors": 16, "values": 2**24}),),
    trial={"tensors": 2, "values": 64},
    measure=measure,
)
