"""Check inputs, and attention as a differentiable operator."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from hyscale_kernels.indices import check_indices
from hyscale_kernels.sparse_attention.attend import attend
from hyscale_kernels.sparse_attention.gradients import Returned, gradients
from hyscale_kernels.sparse_attention.hopper import Impl, use_gluon_together
from hyscale_kernels.sparse_attention.inputs import Attention, check, check_pairs, widest_part
from hyscale_kernels.sparse_attention.pairs import QueryPairs

# In Triton, more heads of a group take longer together than one query at a time; see README.md.
FEW_HEADS = 32


class Attended(NamedTuple):
    """What attention returns.

    Attributes:
        out: BF16 ``[n, heads, value width]``, 0 of a query without keys.
        lse: FP32 ``[n, heads]``, the natural logarithm of the sum over keys of exp(softmax_scale * q . key), without
            the sink; minus infinity of a query without keys.
        probabilities: FP32 in the shape of the indices, summed over the heads that an index is for; 0 where it is -1.
            Without a gradient. None unless asked for.
    """

    out: torch.Tensor
    lse: torch.Tensor
    probabilities: torch.Tensor | None


def sparse_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    indices: torch.Tensor,
    softmax_scale: float,
    *,
    values: torch.Tensor | None = None,
    value_width: int | None = None,
    sinks: torch.Tensor | None = None,
    probabilities: bool = False,
    deterministic: bool = False,
    pairs: QueryPairs | None = None,
    impl: Impl | None = None,
) -> Attended:
    """Softmax attention of each query over its own keys; differentiable in q, keys, values and sinks.

    Args:
        q: BF16 ``[n, heads, width]``.
        keys: BF16 ``[L, width]``, shared by all heads, or ``[L, groups, width]`` with as many heads to each group.
        indices: int32 ``[n, k]``, keys of each query, or ``[n, groups, k]``; -1 stands for none, anywhere.
        softmax_scale: what products are multiplied by.
        values: BF16 ``[L, value width]`` or ``[L, groups, value width]`` as keys. None: the first ``value_width``
            columns of a key, all of them unless told, are its value.
        sinks: floating point ``[heads]``, logits that count in the softmax and have no value.
        probabilities: return those too.
        deterministic: gradients of keys, values and sinks have the same bits whatever the order of queries; that of
            pairs, if there are any.
        pairs: ``query_pairs`` of these indices. Two adjacent pairs of queries then add to the gradients of a key that
            they selected at once, where that is faster; nothing else changes.
        impl: how kernels are written, ``triton`` or ``gluon``. None: what is fastest here.

    Returns:
        The output, logarithms and probabilities. Gradients are of the type of their inputs, rounded once from FP32;
        those of a key that several queries selected are added up before.

    Raises:
        ValueError: an input that does not fit the others, with what would; an ``impl`` that cannot run.
    """
    check(q, keys, values, indices, sinks, softmax_scale, value_width)
    if pairs is not None:
        check_pairs(pairs, indices)
    if values is None:
        width = q.shape[2]
        value_width = width if value_width is None else value_width
        if value_width != widest_part(width):
            # Kernels take a value for the columns of a key that are multiplied first, or by itself.
            values = keys[..., :value_width]
    else:
        value_width = values.shape[-1]
    out, lse, sums = attention_op(
        q,
        keys,
        values,
        indices,
        sinks,
        softmax_scale,
        value_width,
        probabilities,
        deterministic,
        [] if pairs is None else list(pairs),
        impl,
    )
    return Attended(out, lse, sums.detach() if probabilities else None)


@torch.library.custom_op("hyscale::sparse_attention", mutates_args=())
def attention_op(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    indices: torch.Tensor,
    sinks: torch.Tensor | None,
    softmax_scale: float,
    value_width: int,
    probabilities: bool,
    deterministic: bool,
    pairs: list[torch.Tensor],
    impl: str | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``sparse_attention`` as an operator of PyTorch; probabilities that were not asked for are empty."""
    check_indices(indices, keys.shape[0])
    given = Attention.of(q, keys, values, indices, sinks, softmax_scale, value_width)
    out, lse, sums = attend(given, probabilities, impl)
    return out, lse, q.new_empty(0, dtype=torch.float32) if sums is None else sums.view(indices.shape)


@attention_op.register_fake
def _(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    indices: torch.Tensor,
    sinks: torch.Tensor | None,
    softmax_scale: float,
    value_width: int,
    probabilities: bool,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    n, heads = q.shape[:2]
    return (
        q.new_empty(n, heads, value_width),
        q.new_empty(n, heads, dtype=torch.float32),
        q.new_empty(indices.shape if probabilities else (0,), dtype=torch.float32),
    )


def pairs_pay(given: Attention, impl: str | None) -> bool:
    """Whether queries together save more than they cost."""
    return given.group_heads <= FEW_HEADS or use_gluon_together(impl, given)


@torch.library.custom_op("hyscale::sparse_attention_gradients", mutates_args=())
def gradients_op(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    indices: torch.Tensor,
    sinks: torch.Tensor | None,
    softmax_scale: float,
    value_width: int,
    deterministic: bool,
    pairs: list[torch.Tensor],
    impl: str | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, keys, values and sinks from those of the output and its logarithms; empty of what is None."""
    given = Attention.of(q, keys, values, indices, sinks, softmax_scale, value_width)
    # Of a query without keys it may be anything, such as the NaN of a logarithm.
    grad_lse = grad_lse.float().masked_fill(lse == -torch.inf, 0.0)
    found = Returned(out.contiguous(), lse.contiguous())
    grads = Returned(grad_out.to(q.dtype).contiguous(), grad_lse.contiguous())
    together = QueryPairs(*pairs) if pairs and pairs_pay(given, impl) else None
    dq, dkeys, dvalues, dsinks = gradients(given, found, grads, deterministic, together, impl)
    return (
        dq,
        dkeys.view(keys.shape),
        q.new_empty(0) if dvalues is None or values is None else dvalues.view(values.shape),
        q.new_empty(0) if dsinks is None or sinks is None else dsinks.to(sinks.dtype),
    )


@gradients_op.register_fake
def _(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    indices: torch.Tensor,
    sinks: torch.Tensor | None,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        q.new_empty(q.shape),
        keys.new_empty(keys.shape),
        q.new_empty(0 if values is None else values.shape),
        q.new_empty(0) if sinks is None else sinks.new_empty(sinks.shape),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    *tensors, ctx.softmax_scale, ctx.value_width, _, ctx.deterministic, pairs, ctx.impl = inputs
    ctx.save_for_backward(*output[:2], *tensors, *pairs)


def _backward(ctx: Any, grad_out: torch.Tensor, grad_lse: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
    out, lse, q, keys, values, indices, sinks, *pairs = ctx.saved_tensors
    dq, dkeys, dvalues, dsinks = gradients_op(
        grad_out,
        grad_lse,
        out,
        lse,
        q,
        keys,
        values,
        indices,
        sinks,
        ctx.softmax_scale,
        ctx.value_width,
        ctx.deterministic,
        pairs,
        ctx.impl,
    )
    needed = ctx.needs_input_grad
    return (
        dq if needed[0] else None,
        dkeys if needed[1] else None,
        dvalues if needed[2] else None,
        None,
        dsinks if needed[4] else None,
        *[None] * 4,
        [None] * len(pairs),
        None,
    )


attention_op.register_autograd(_backward, setup_context=_keep)
