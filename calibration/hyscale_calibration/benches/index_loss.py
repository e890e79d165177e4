"""The indexer's loss with its gradients, over selected and over all visible keys, on random data."""

from __future__ import annotations

from collections.abc import Callable
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

    Loss = Callable[..., torch.Tensor]

# Of a loss, and of gradients in BF16 relative to their norm.
TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 2**-7


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Each stage, forward and backward."""
    from hyscale_kernels.index_loss import dense_index_loss, reference, sparse_index_loss

    n, length, heads, dim, topk = (shape[key] for key in ("n", "L", "H", "D", "k"))
    if topk > length:
        raise CannotRun(f"{topk} of {length} keys cannot be selected")
    leaves, others = sparse_inputs(dtype, n, length, heads, dim, topk, device)
    additions = n * topk * dim * 4.0
    yield Measurement(
        name="index_loss_sparse",
        shape=shape,
        check=partial(
            check,
            sparse_index_loss,
            reference.sparse_index_loss,
            partial(sparse_inputs, dtype, 9, 300, heads, dim, 70, device),
        ),
        run=partial(run, sparse_index_loss, leaves, others),
        flop=8.0 * n * topk * heads * dim,
        # Keys twice; indices, scores and their gradients in both directions, and the teacher.
        traffic_bytes=n * topk * (4.0 * dim + 28.0) + additions,
    )
    del leaves, others
    n, length, attention_heads, width = (shape[key] for key in ("dense_n", "dense_L", "A", "C"))
    leaves, others = dense_inputs(dtype, n, length, heads, dim, attention_heads, width, device)
    yield Measurement(
        name="index_loss_dense",
        shape=shape,
        check=partial(
            check,
            dense_index_loss,
            reference.dense_index_loss,
            partial(dense_inputs, dtype, 9, 300, heads, dim, attention_heads, width, device),
        ),
        run=partial(run, dense_index_loss, leaves, others),
        flop=2.0 * n * length * (3.0 * attention_heads * width + 5.0 * heads * dim),
        # Logits of attention's heads and products of the indexer's, written and read in each of three passes.
        traffic_bytes=3.0 * 8.0 * n * length * (attention_heads + heads),
    )


def sparse_inputs(
    dtype: str, n: int, length: int, heads: int, dim: int, topk: int, device: str
) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
    """What has gradients, and indices and a teacher."""
    import torch

    from hyscale_calibration.benches.inputs import indexer_inputs, selections

    *leaves, _ = indexer_inputs(dtype, n, length, heads, dim, device)
    teacher = torch.rand(n, topk, device=device, generator=torch.Generator(device).manual_seed(3))
    return _with_gradients(leaves), (selections(n, length, topk, 0.9, device), teacher)


def dense_inputs(
    dtype: str, n: int, length: int, heads: int, dim: int, attention_heads: int, width: int, device: str
) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
    """What has gradients, and spans of every key, attention's queries, shared keys and scale."""
    import torch

    from hyscale_calibration.benches.inputs import indexer_inputs

    *leaves, spans = indexer_inputs(dtype, n, length, heads, dim, device)
    generator = torch.Generator(device).manual_seed(3)
    attention = (
        torch.randn(shape, device=device, generator=generator).bfloat16()
        for shape in ((n, attention_heads, width), (length, width))
    )
    return _with_gradients(leaves), (spans, *attention, width**-0.5)


def _with_gradients(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Scores of the order of 1, whose softmax is not all on one key."""
    q, keys, weights = leaves
    weights = weights / (q.shape[1] * q.shape[2]) ** 0.5
    return [each.requires_grad_() for each in (q, keys, weights)]


def run(loss: Loss, leaves: list[torch.Tensor], others: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    """The gradients of q, keys and weights."""
    import torch

    return torch.autograd.grad(loss(*leaves, *others), leaves)


def check(
    loss: Loss, reference: Loss, inputs: Callable[[], tuple[list[torch.Tensor], tuple[Any, ...]]]
) -> dict[str, Any]:
    """Largest error of a few losses, and of their gradients relative to the norm."""
    import torch

    leaves, others = inputs()
    exact = [each.detach().double().requires_grad_() for each in leaves]
    found, expected = loss(*leaves, *others, reduction="none"), reference(*exact, *others)
    error = float((found - expected).detach().abs().max())
    # NaN is not within the tolerance either.
    if not error <= TOLERANCE:
        raise CheckFailed(f"a loss is off by {error:.1e}")
    pairs = zip(torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(expected.sum(), exact), strict=True)
    errors = [float((a - b).norm() / b.norm()) for a, b in pairs]
    if not all(each <= GRADIENT_TOLERANCE for each in errors):
        raise CheckFailed(f"gradients of q, keys and weights are off by {', '.join(f'{each:.1e}' for each in errors)}")
    return {"error": error, "gradient_error": max(errors)}


OPERATION = Operation(
    name="index_loss",
    description="the indexer's loss with its gradients, over selected keys and over all (dense_n, dense_L)",
    sources=(
        "fixed_point.py",
        "index_loss/dense.py",
        "index_loss/sparse.py",
        "index_loss/triton.py",
        "replay/gradients.py",
        "replay/rescore.py",
        "replay/triton.py",
        "scoring/inputs.py",
        "scoring/tiles.py",
        "scoring/triton.py",
        "spans.py",
    ),
    dtypes=("bf16",),
    cases=(
        Case(
            name="GLM-5.1's indexer, its attention's latent width",
            shape={
                "n": 8192,
                "L": 1_048_576,
                "H": 32,
                "D": 128,
                "k": 2048,
                "dense_n": 256,
                "dense_L": 32_768,
                "A": 64,
                "C": 576,
            },
        ),
    ),
    trial={"n": 4, "L": 64, "k": 16, "dense_n": 4, "dense_L": 64},
    measure=measure,
    samples=11,
)
