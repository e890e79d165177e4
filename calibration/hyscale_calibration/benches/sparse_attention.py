"""Attention of selected keys and its gradients, on random data: absorbed MLA, GQA and keys that are their values.

``G`` groups of heads have keys of their own; ``values``: and values of their own, or else the first columns of a key
are its value; ``sinks``: a logit for each head that has no value. ``shared`` is the share of its keys that a query has
from the one before: those come from a cache, additions to them meet, and two pairs of queries add once.
"""

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
    from hyscale_kernels.sparse_attention.inputs import Attention

# Of each result and gradient, relative to its norm.
TOLERANCE = 5e-3
# Bytes of a probability or of the gradient of a logit between the two kernels of the backward.
LEFT = 2.0


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Forward, with and without probabilities, and backward: both kinds of additions, one query and two pairs."""
    import torch
    from hyscale_kernels.sparse_attention import query_pairs
    from hyscale_kernels.sparse_attention.attend import attend
    from hyscale_kernels.sparse_attention.gradients import Returned, gradients
    from hyscale_kernels.sparse_attention.hopper import no_gluon, use_gluon_together

    n, heads, width, value_width, topk = (shape[key] for key in ("n", "H", "D", "V", "k"))
    if topk > shape["L"]:
        raise CannotRun(f"{topk} of {shape['L']} keys cannot be selected")
    given, grad_out = inputs(shape, device)
    # The fastest first; of the other way, what is asked of both.
    impls = ("triton",) if no_gluon(given) else ("gluon", "triton")
    flop = 2.0 * n * topk * heads * (width + value_width)
    # Keys, values and their indices; queries and outputs.
    of_keys = shape["G"] * (width + value_width * shape["values"])
    gathered = n * topk * (2.0 * of_keys + 4.0) + 2.0 * n * heads * (width + value_width)
    for impl in impls:
        for name, probabilities in (("forward", False), ("forward_probabilities", True)):
            yield Measurement(
                name=f"sparse_attention_{name}",
                shape={**shape, "impl": impl},
                check=partial(check_forward, shape, impl, device),
                run=partial(attend, given, probabilities, impl),
                flop=flop,
                traffic_bytes=gathered + (n * topk * (2 * LEFT * heads + 4.0) if probabilities else 0.0),
            )
    pairs = query_pairs(given.indices)
    yield Measurement(
        name="sparse_attention_query_pairs",
        shape=shape,
        check=lambda: {"paired": float(pairs.share), "keys": _mean_keys(pairs.counts) / topk},
        run=partial(query_pairs, given.indices),
        traffic_bytes=n * topk * 4.0 * 2,
    )
    out, lse, _ = attend(given, False)
    found, grads = Returned(out, lse), Returned(grad_out, torch.zeros_like(lse))
    for impl in impls:
        # The fastest is not named: queries together may be in Gluon where one at a time are not.
        asked = None if impl == impls[0] else impl
        for name, paired, deterministic in (
            ("backward", False, False),
            ("backward_deterministic", False, True),
            ("backward_pairs", True, False),
            ("backward_pairs_deterministic", True, True),
        ):

            def run(paired: bool = paired, deterministic: bool = deterministic, asked: str | None = asked) -> object:
                # Lists of keys serve several layers; here they are paid for.
                lists = query_pairs(given.indices) if paired else None
                return gradients(given, found, grads, deterministic, lists, asked)

            if impl == impls[0] or name == "backward":
                how = "gluon" if paired and use_gluon_together(asked, given) else impl
                yield Measurement(
                    name=f"sparse_attention_{name}",
                    shape={**shape, "impl": how},
                    check=partial(check_backward, shape, asked, paired, deterministic, device),
                    run=run,
                    flop=2.5 * flop,
                    traffic_bytes=gathered
                    + 2.0 * n * heads * (width + value_width)
                    + n * topk * (4.0 * of_keys + 4 * LEFT * heads),
                )


def inputs(shape: Shape, device: str) -> tuple[Attention, torch.Tensor]:
    """Normal queries, keys, values and gradients of the output in BF16, and indices."""
    import torch
    from hyscale_kernels.sparse_attention.inputs import Attention

    from hyscale_calibration.benches.inputs import selections

    n, length, heads, groups, width, value_width = (shape[key] for key in ("n", "L", "H", "G", "D", "V"))
    generator = torch.Generator(device).manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, device=device, generator=generator, dtype=torch.bfloat16)

    given = Attention.of(
        normal(n, heads, width),
        normal(length, groups, width),
        normal(length, groups, value_width) if shape["values"] else None,
        selections(n, length, shape["k"], shape["shared"], device),
        normal(heads).float() if shape["sinks"] else None,
        width**-0.5,
        value_width,
    )
    return given, normal(n, heads, value_width)


def small(shape: Shape, device: str) -> tuple[Attention, torch.Tensor]:
    """Inputs at which borders of tiles, padding, a query without keys, pairs of queries and others occur."""
    n, topk = 5, 70
    given, grad_out = inputs({**shape, "n": n, "L": 300, "k": topk, "shared": 0.8}, device)
    for row in range(n):
        given.indices[row, :, topk - row * topk // (n - 1) :] = -1
    return given, grad_out


def compared(given: Attention, attention: Callable[..., Any]) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """What an attention returns, and the tensors that it is differentiable in."""
    leaves = [each if each is None else each.clone() for each in (given.q, given.keys, given.values, given.sinks)]
    leaves = [each if each is None else each.requires_grad_() for each in leaves]
    return attention(*leaves), tuple(each for each in leaves if each is not None)


def by_kernels(given: Attention, **options: Any) -> Any:
    """Attention as it is measured."""
    from hyscale_kernels.sparse_attention import sparse_attention
    from triton.runtime.errors import OutOfResources

    def attention(q: Any, keys: Any, values: Any, sinks: Any) -> Any:
        widths = {"value_width": given.value_width} if values is None else {"values": values}
        try:
            return sparse_attention(q, keys, given.indices[:, 0], given.softmax_scale, sinks=sinks, **widths, **options)
        except OutOfResources as excess:
            raise CannotRun(f"the tile does not fit this GPU: {excess}") from excess

    return compared(given, attention)


def by_oracle(given: Attention) -> Any:
    """Attention in float64."""
    from dataclasses import replace

    from hyscale_kernels.sparse_attention import reference

    def attention(q: Any, keys: Any, values: Any, sinks: Any) -> Any:
        return reference.sparse_attention(
            q, keys, values, given.indices[:, 0], given.softmax_scale, sinks, given.value_width
        )

    exact = {name: getattr(given, name) for name in ("q", "keys", "values", "sinks")}
    exact = {name: each if each is None else each.double() for name, each in exact.items()}
    return compared(replace(given, **exact), attention)


def check_forward(shape: Shape, impl: str, device: str) -> dict[str, Any]:
    """Largest error of outputs, logarithms and probabilities relative to their norm."""
    given, _ = small(shape, device)
    found, _ = by_kernels(given, probabilities=True, impl=impl)
    wanted, _ = by_oracle(given)
    some = wanted.lse.isfinite()
    if found.out[~some].any() or found.lse[~some].isfinite().any():
        raise CheckFailed("a query without keys has an output")
    return _errors(
        "output, logarithms and probabilities",
        (found.out, found.lse[some], found.probabilities),
        (wanted.out, wanted.lse[some], wanted.probabilities),
    )


def check_backward(shape: Shape, impl: str | None, paired: bool, deterministic: bool, device: str) -> dict[str, Any]:
    """Largest error of gradients relative to their norm."""
    import torch
    from hyscale_kernels.sparse_attention import query_pairs

    given, grad_out = small(shape, device)
    pairs = query_pairs(given.indices[:, 0]) if paired else None
    if pairs is not None and not 0 < float(pairs.share) < 1:
        raise CheckFailed("there must be pairs, and queries by themselves")
    found, leaves = by_kernels(given, deterministic=deterministic, pairs=pairs, impl=impl)
    grads = torch.autograd.grad(found.out, leaves, grad_out)
    wanted, exact = by_oracle(given)
    return _errors("gradients", grads, torch.autograd.grad(wanted.out, exact, grad_out.double()))


def _mean_keys(counts: torch.Tensor) -> float:
    """Mean length of the lists of queries together, 0 where there are none."""
    together = counts >= 0
    return float((counts * together).sum() / max(1, int(together.sum())))


def _errors(what: str, found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    errors = [float((a.detach() - b.detach()).norm() / b.detach().norm()) for a, b in zip(found, wanted, strict=True)]
    # A maximum may pass over NaN.
    if not all(error <= TOLERANCE for error in errors):
        raise CheckFailed(f"{what} are off by {', '.join(f'{each:.1e}' for each in errors)}")
    return {"error": max(errors)}


def _case(name: str, shared: float, **shape: int) -> Case:
    latent = {"n": 8192, "L": 1_048_576, "H": 64, "G": 1, "D": 576, "V": 512, "k": 2048, "values": 0, "sinks": 0}
    return Case(name=f"{name}, {shared:.0%} of keys as before", shape={**latent, **shape, "shared": shared})


OPERATION = Operation(
    name="sparse_attention",
    description="attention of selected keys, and gradients of queries and keys",
    sources=(
        "fixed_point.py",
        "sparse_attention/attend.py",
        "sparse_attention/gluon/backward.py",
        "sparse_attention/gluon/forward.py",
        "sparse_attention/gluon/keys.py",
        "sparse_attention/gluon/tiles.py",
        "sparse_attention/gradients.py",
        "sparse_attention/hopper.py",
        "sparse_attention/inputs.py",
        "sparse_attention/pairs.py",
        "sparse_attention/tiles.py",
        "sparse_attention/triton/backward.py",
        "sparse_attention/triton/forward.py",
        "sparse_attention/triton/pairs.py",
        "sparse_attention/triton/rows.py",
        "sparse_attention/units.py",
    ),
    dtypes=("bf16",),
    cases=(
        _case("64 heads of absorbed MLA", 0.0),
        _case("64 heads of absorbed MLA", 0.9),
        _case("24 heads in two groups", 0.9, H=24, G=2, D=256, V=256, values=1),
        _case("64 heads whose keys are their values, with sinks", 0.9, D=512, k=1152, sinks=1),
    ),
    trial={"n": 2, "L": 64, "k": 16},
    measure=measure,
    samples=10,
)
