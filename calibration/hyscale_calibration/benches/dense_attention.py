"""Causal attention over every key by torch's scaled_dot_product_attention, and its gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.operation import Case, CheckFailed, Measurement, Measurements, Operation, Shape

if TYPE_CHECKING:
    import torch

# Of results and gradients in BF16, relative to their norm.
TOLERANCE = 2**-6
CHECKED = 128


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Forward, and backward: gradients of queries, keys and values."""
    import torch

    length, heads, width, value_width = (shape[key] for key in ("L", "heads", "D", "V"))
    q, k, v, grad_out = inputs(shape, length, device)
    flop = length * (length + 1.0) * heads * (width + value_width)
    rows = 2.0 * (q.numel() + grad_out.numel())
    keys = 2.0 * (k.numel() + v.numel())
    yield Measurement(
        name="dense_attention_forward",
        shape=shape,
        check=partial(check, shape, device),
        run=partial(attend, q, k, v),
        flop=flop,
        traffic_bytes=rows + keys,
    )
    leaves = [each.requires_grad_() for each in (q, k, v)]
    out = attend(*leaves)
    yield Measurement(
        name="dense_attention_backward",
        shape=shape,
        # Gradients were compared with those of the forward's check.
        check=dict,
        run=lambda: torch.autograd.grad(out, leaves, grad_out, retain_graph=True),
        flop=2.5 * flop,
        traffic_bytes=2.0 * rows + 3.0 * keys,
    )


def inputs(shape: Shape, length: int, device: str) -> tuple[torch.Tensor, ...]:
    """Normal queries, keys, values and gradient of the output, BF16 ``[1, heads, length, width]``."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    sizes = [(shape["heads"], shape["D"]), (shape["groups"], shape["D"]), (shape["groups"], shape["V"])]
    q, k, v, grad_out = (
        torch.randn(1, heads, length, width, device=device, generator=generator, dtype=torch.bfloat16)
        for heads, width in (*sizes, (shape["heads"], shape["V"]))
    )
    return q, k, v, grad_out


def backends() -> AbstractContextManager[Any]:
    """cuDNN where it can, then FlashAttention; never the kernels that write a matrix of logits."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    found: AbstractContextManager[Any] = sdpa_kernel(kinds, set_priority=True)
    return found


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of ``[1, heads, length, width]``; heads share keys where there are fewer of those."""
    from torch.nn.functional import scaled_dot_product_attention

    with backends():
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def check(shape: Shape, device: str) -> dict[str, Any]:
    """Largest error of the output and of the gradients of a short sequence, relative to their norms."""
    import torch

    *leaves, grad_out = inputs(shape, CHECKED, device)
    leaves = [each.requires_grad_() for each in leaves]
    out = attend(*leaves)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    q, k, v = exact
    shared = q.shape[1] // k.shape[1]
    logits = q @ k.repeat_interleave(shared, 1).transpose(2, 3) * q.shape[3] ** -0.5
    hidden = torch.ones(CHECKED, CHECKED, device=device, dtype=torch.bool).triu(1)
    wanted = logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v.repeat_interleave(shared, 1)
    pairs = [(out, wanted)]
    pairs += zip(
        torch.autograd.grad(out, leaves, grad_out), torch.autograd.grad(wanted, exact, grad_out.double()), strict=True
    )
    errors = [float((a.double() - b).norm() / b.norm()) for a, b in pairs]
    # A maximum may pass over NaN.
    if not all(error <= TOLERANCE for error in errors):
        raise CheckFailed(f"output and gradients of q, k and v are off by {', '.join(f'{e:.1e}' for e in errors)}")
    return {"error": max(errors)}


OPERATION = Operation(
    name="dense_attention",
    description="causal attention over every key and its gradients, by torch",
    dtypes=("bf16",),
    cases=(
        Case(name="64 heads over 8 of keys", shape={"L": 8192, "heads": 64, "groups": 8, "D": 128, "V": 128}),
        Case(name="MLA's heads", shape={"L": 8192, "heads": 64, "groups": 64, "D": 192, "V": 128}),
    ),
    trial={"L": 64, "heads": 4, "groups": 2, "D": 32, "V": 32},
    measure=measure,
)
