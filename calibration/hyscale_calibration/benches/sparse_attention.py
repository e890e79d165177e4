"""Attention of selected keys and its gradients, absorbed MLA, on random data.

Keys are shared by all heads, and their first columns are their values. ``shared`` is the share of its keys that a query
has from the one before: those come from a cache, and additions to them meet.
"""

from __future__ import annotations

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

# Of each result and gradient, relative to its norm.
TOLERANCE = 5e-3
# Bytes of a probability or of the gradient of a logit between the two kernels of the backward.
LEFT = 2.0


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Forward, with and without probabilities, and backward by both kinds of additions."""
    import torch
    from hyscale_kernels.sparse_attention.attend import attend
    from hyscale_kernels.sparse_attention.gradients import Returned, gradients
    from hyscale_kernels.sparse_attention.inputs import Attention

    n, length, heads, width, value_width, topk = (shape[key] for key in ("n", "L", "H", "D", "V", "k"))
    if topk > length:
        raise CannotRun(f"{topk} of {length} keys cannot be selected")
    q, keys, indices, grad_out = inputs(n, length, heads, width, value_width, topk, shape["shared"], device)
    given = Attention.of(q, keys, None, indices, None, width**-0.5, value_width)
    flop = 2.0 * n * topk * heads * (width + value_width)
    # Keys and their indices; queries and outputs.
    gathered = n * topk * (2.0 * width + 4.0) + 2.0 * n * heads * (width + value_width)
    for name, probabilities in (("sparse_attention_forward", False), ("sparse_attention_forward_probabilities", True)):
        yield Measurement(
            name=name,
            shape=shape,
            check=partial(check_forward, heads, width, value_width, device),
            run=partial(attend, given, probabilities),
            flop=flop,
            traffic_bytes=gathered + (n * topk * (2 * LEFT * heads + 4.0) if probabilities else 0.0),
        )
    out, lse, _ = attend(given, False)
    found, grads = Returned(out, lse), Returned(grad_out, torch.zeros_like(lse))
    for name, deterministic in (
        ("sparse_attention_backward", False),
        ("sparse_attention_backward_deterministic", True),
    ):
        yield Measurement(
            name=name,
            shape=shape,
            check=partial(check_backward, heads, width, value_width, deterministic, device),
            run=partial(gradients, given, found, grads, deterministic),
            flop=2.5 * flop,
            traffic_bytes=gathered
            + 2.0 * n * heads * (width + value_width)
            + n * topk * (width * (8.0 if deterministic else 4.0) + 4 * LEFT * heads),
        )


def inputs(
    n: int, length: int, heads: int, width: int, value_width: int, topk: int, shared: float, device: str
) -> tuple[torch.Tensor, ...]:
    """Normal queries, keys and gradients of the output in BF16, and indices."""
    import torch

    from hyscale_calibration.benches.inputs import selections

    generator = torch.Generator(device).manual_seed(0)
    q, keys, grad_out = (
        torch.randn(shape, device=device, generator=generator, dtype=torch.bfloat16)
        for shape in ((n, heads, width), (length, width), (n, heads, value_width))
    )
    return q, keys, selections(n, length, topk, shared, device), grad_out


def small(heads: int, width: int, value_width: int, device: str) -> tuple[torch.Tensor, ...]:
    """Inputs at which borders of tiles, padding, a query without keys and shared keys occur."""
    n, topk = 5, 70
    q, keys, indices, grad_out = inputs(n, 300, heads, width, value_width, topk, 0.5, device)
    for row in range(n):
        indices[row, row * topk // (n - 1) :] = -1
    return q, keys, indices, grad_out


def check_forward(heads: int, width: int, value_width: int, device: str) -> dict[str, Any]:
    """Largest error of outputs, logarithms and probabilities relative to their norm."""
    from hyscale_kernels.sparse_attention import reference, sparse_attention
    from triton.runtime.errors import OutOfResources

    q, keys, indices, _ = small(heads, width, value_width, device)
    try:
        found = sparse_attention(q, keys, indices, width**-0.5, value_width=value_width, probabilities=True)
    except OutOfResources as excess:
        raise CannotRun(f"the tile does not fit this GPU: {excess}") from excess
    wanted = reference.sparse_attention(q, keys, None, indices, width**-0.5, None, value_width)
    if found.out[0].any() or found.lse[0].isfinite().any():
        raise CheckFailed("a query without keys has an output")
    return _errors(
        "output, logarithms and probabilities",
        (found.out, found.lse[1:], found.probabilities),
        (wanted.out, wanted.lse[1:], wanted.probabilities),
    )


def check_backward(heads: int, width: int, value_width: int, deterministic: bool, device: str) -> dict[str, Any]:
    """Largest error of the gradients of queries and keys relative to their norm."""
    import torch
    from hyscale_kernels.sparse_attention import reference, sparse_attention
    from triton.runtime.errors import OutOfResources

    q, keys, indices, grad_out = small(heads, width, value_width, device)
    leaves = [each.requires_grad_() for each in (q, keys)]
    try:
        found = sparse_attention(
            q, keys, indices, width**-0.5, value_width=value_width, deterministic=deterministic
        ).out
        grads = torch.autograd.grad(found, leaves, grad_out)
    except OutOfResources as excess:
        raise CannotRun(f"the tile does not fit this GPU: {excess}") from excess
    exact = [each.detach().double().requires_grad_() for each in leaves]
    wanted = reference.sparse_attention(exact[0], exact[1], None, indices, width**-0.5, None, value_width).out
    return _errors("gradients of q and keys", grads, torch.autograd.grad(wanted, exact, grad_out.double()))


def _errors(what: str, found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True)]
    # A maximum may pass over NaN.
    if not all(error <= TOLERANCE for error in errors):
        raise CheckFailed(f"{what} are off by {', '.join(f'{each:.1e}' for each in errors)}")
    return {"error": max(errors)}


def _case(shared: float) -> Case:
    shape = {"n": 8192, "L": 1_048_576, "H": 64, "D": 576, "V": 512, "k": 2048, "shared": shared}
    return Case(name=f"64 heads of absorbed MLA, {shared:.0%} of keys as before", shape=shape)


OPERATION = Operation(
    name="sparse_attention",
    description="attention of selected keys, and gradients of queries and keys",
    sources=(
        "fixed_point.py",
        "sparse_attention/attend.py",
        "sparse_attention/gradients.py",
        "sparse_attention/inputs.py",
        "sparse_attention/tiles.py",
        "sparse_attention/triton/backward.py",
        "sparse_attention/triton/forward.py",
        "sparse_attention/triton/rows.py",
    ),
    dtypes=("bf16",),
    cases=(_case(0.0), _case(0.9)),
    trial={"n": 2, "L": 64, "k": 16},
    measure=measure,
    samples=10,
)
