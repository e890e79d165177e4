"""Scores of selected keys and their gradients, on random data.

``shared`` is the share of its keys that a query has from the one before: those come from a cache, and additions to
them meet.
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

# Scores over the sum of magnitudes, and gradients relative to their norm: what rounding explains.
TOLERANCES = {"bf16": (1e-5, 2**-8), "fp8": (2e-3, 2**-6)}


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Forward, and backward by both kinds of additions."""
    import torch
    from hyscale_kernels.replay.gradients import gradients
    from hyscale_kernels.replay.rescore import rescore
    from hyscale_kernels.scoring.inputs import Scored

    from hyscale_calibration.benches.inputs import indexer_inputs, selections

    n, length, heads, dim, topk = (shape[key] for key in ("n", "L", "H", "D", "k"))
    if topk > length:
        raise CannotRun(f"{topk} of {length} keys cannot be selected")
    q, keys, weights, spans = indexer_inputs(dtype, n, length, heads, dim, device)
    scored = Scored.of(q, keys, weights, spans)
    indices = selections(n, length, topk, shape["shared"], device)
    slopes = torch.randn(n, topk, device=device, generator=torch.Generator(device).manual_seed(2))

    def forward() -> torch.Tensor:
        scores = torch.empty(n, topk, device=device)
        rescore(scored, indices, scores)
        return scores

    flop = 2.0 * n * topk * heads * dim
    # Keys, their indices, and scores or their gradients.
    gathered = float(n * topk * (dim * keys.element_size() + 8))
    yield Measurement(
        name="replay_forward",
        shape=shape,
        check=partial(check_scores, dtype, heads, dim, device),
        run=forward,
        flop=flop,
        traffic_bytes=gathered,
    )
    for name, deterministic in (("replay_backward", False), ("replay_backward_deterministic", True)):
        yield Measurement(
            name=name,
            shape=shape,
            check=partial(check_gradients, dtype, heads, dim, deterministic, device),
            run=partial(gradients, scored, indices, slopes, deterministic),
            flop=3 * flop,
            traffic_bytes=gathered + n * topk * dim * (8.0 if deterministic else 4.0),
        )


def small(dtype: str, heads: int, dim: int, device: str) -> tuple[torch.Tensor, ...]:
    """Queries, keys, weights and indices at which borders of tiles, padding and shared keys occur."""
    from hyscale_calibration.benches.inputs import indexer_inputs, selections

    n, topk = 9, 70
    q, keys, weights, _ = indexer_inputs(dtype, n, 300, heads, dim, device)
    indices = selections(n, 300, topk, 0.5, device)
    for row in range(n):
        indices[row, row * topk // (n - 1) :] = -1
    return q, keys, weights, indices


def check_scores(dtype: str, heads: int, dim: int, device: str) -> dict[str, Any]:
    """Largest error of a few scores over the sum of magnitudes."""
    from hyscale_kernels.replay import reference, replay
    from triton.runtime.errors import OutOfResources

    q, keys, weights, indices = small(dtype, heads, dim, device)
    try:
        found = replay(q, keys, weights, indices)
    except OutOfResources as excess:
        raise CannotRun(f"the tile does not fit this GPU: {excess}") from excess
    expected = reference.replay(q, keys, weights, indices)
    magnitudes = reference.replay(q.float().abs(), keys.float().abs(), weights.abs(), indices)
    if found[indices < 0].any():
        raise CheckFailed("a score of no key is not 0")
    error = float(((found - expected).abs() / magnitudes)[indices >= 0].max())
    # NaN is not within the tolerance either.
    if not error <= TOLERANCES[dtype][0]:
        raise CheckFailed(f"a score is off by {error:.1e} of the sum of magnitudes")
    return {"error": error}


def check_gradients(dtype: str, heads: int, dim: int, deterministic: bool, device: str) -> dict[str, Any]:
    """Largest error of the gradients of queries, keys and weights, relative to their norm."""
    import torch
    from hyscale_kernels.replay import reference, replay_gradients
    from triton.runtime.errors import OutOfResources

    q, keys, weights, indices = small(dtype, heads, dim, device)
    slopes = torch.randn(indices.shape, device=device, generator=torch.Generator(device).manual_seed(2))
    try:
        found = replay_gradients(slopes, q, keys, weights, indices, deterministic=deterministic)
    except OutOfResources as excess:
        raise CannotRun(f"the tile does not fit this GPU: {excess}") from excess
    expected = reference.gradients(slopes, q, keys, weights, indices)
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
    # A maximum may pass over NaN.
    if not all(error <= TOLERANCES[dtype][1] for error in errors):
        raise CheckFailed(f"gradients of q, keys and weights are off by {', '.join(f'{each:.1e}' for each in errors)}")
    return {"error": max(errors)}


def _case(shared: float) -> Case:
    shape = {"n": 8192, "L": 1_048_576, "H": 32, "D": 128, "k": 2048, "shared": shared}
    return Case(name=f"GLM-5.1's indexer, {shared:.0%} of keys as before", shape=shape)


OPERATION = Operation(
    name="replay",
    description="scores of selected keys, and gradients of queries, keys and head weights",
    sources=("replay/triton.py", "scoring/triton.py"),
    dtypes=("bf16", "fp8"),
    cases=(_case(0.0), _case(0.9)),
    trial={"n": 4, "L": 64, "k": 16},
    measure=measure,
)
