"""Cross-entropy of BF16 logits in FP32 and its gradient, by torch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import Case, CheckFailed, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-3
CHECKED = 16


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """``n`` rows over a vocabulary, forward and backward to the BF16 logits."""
    import torch

    n, vocabulary = shape["n"], shape["vocabulary"]
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(n, vocabulary, device=device, generator=generator, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(vocabulary, (n,), device=device, generator=generator)
    each = float(n * vocabulary)
    run = partial(loss, logits, targets)
    yield Measurement(
        name="cross_entropy_forward",
        shape=shape,
        check=partial(check, logits, targets),
        run=run,
        # Cast: 2 read, 4 written; log-softmax: 4 read, 4 written.
        traffic_bytes=14.0 * each,
    )
    out = run()
    yield Measurement(
        name="cross_entropy_backward",
        shape=shape,
        # Compared with the exact gradient together with the loss.
        check=dict,
        run=lambda: torch.autograd.grad(out, logits, retain_graph=True),
        # One-hot of the target and its log-softmax backward, cast to BF16.
        traffic_bytes=22.0 * each,
    )


def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in FP32."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.float(), targets)


def check(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
    """Error of the loss and, relative to its norm, of the gradient of a few rows."""
    import torch

    few, aims = logits[:CHECKED].detach().requires_grad_(), targets[:CHECKED]
    found = loss(few, aims)
    exact = few.detach().double().requires_grad_()
    expected = -exact.log_softmax(-1).gather(1, aims[:, None]).mean()
    (gradient,), (wanted,) = torch.autograd.grad(found, few), torch.autograd.grad(expected, exact)
    errors = (float((found - expected).detach().abs()), float((gradient.double() - wanted).norm() / wanted.norm()))
    if not (errors[0] <= TOLERANCE and errors[1] <= 2**-7):
        raise CheckFailed(f"loss and gradient are off by {errors[0]:.1e} and {errors[1]:.1e}")
    return {"error": max(errors)}


OPERATION = Operation(
    name="cross_entropy",
    description="cross-entropy of BF16 logits in FP32 and its gradient, by torch",
    dtypes=("bf16",),
    cases=(Case(name="GLM-5.1's vocabulary", shape={"n": 4096, "vocabulary": 154_880}),),
    trial={"n": 8, "vocabulary": 100},
    measure=measure,
)
