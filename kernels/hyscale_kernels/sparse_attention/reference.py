"""Attention of chosen keys in float64."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Attended(NamedTuple):
    """Output ``[n, heads, value width]``, logarithms ``[n, heads]``, probabilities added up in the shape of indices."""

    out: torch.Tensor
    lse: torch.Tensor
    probabilities: torch.Tensor


def sparse_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    indices: torch.Tensor,
    softmax_scale: float,
    sinks: torch.Tensor | None = None,
    value_width: int | None = None,
) -> Attended:
    """Each head of each query by itself; arguments are those of ``api``.

    Returns:
        float64, differentiable in q, keys, values and sinks; ``lse`` is minus infinity where there is no key.
    """
    n, heads, _ = q.shape
    keys64 = (keys[:, None] if keys.ndim == 2 else keys).double()
    if values is None:
        values64 = keys64[..., :value_width]
    else:
        values64 = (values[:, None] if values.ndim == 2 else values).double()
    groups = keys64.shape[1]
    lists = indices[:, None].expand(-1, groups, -1) if indices.ndim == 2 else indices
    probabilities = torch.zeros(lists.shape, dtype=torch.float64, device=q.device)
    outs, logarithms = [], []
    for t in range(n):
        for head in range(heads):
            group = head // (heads // groups)
            some = lists[t, group] >= 0
            chosen = lists[t, group][some].long()
            if not len(chosen):
                # A gradient of zero, not none.
                outs.append(q[t, head].double().sum() * values64.new_zeros(values64.shape[2]))
                logarithms.append(q.new_full((), -torch.inf, dtype=torch.float64))
                continue
            logits = softmax_scale * (keys64[chosen, group] @ q[t, head].double())
            lse = torch.logsumexp(logits, 0)
            total = lse if sinks is None else torch.logaddexp(lse, sinks[head].double())
            shares = torch.exp(logits - total)
            outs.append(shares @ values64[chosen, group])
            logarithms.append(lse)
            probabilities[t, group, some] += shares.detach()
    return Attended(
        torch.stack(outs).view(n, heads, -1) if n else q.new_zeros(0, heads, values64.shape[2], dtype=torch.float64),
        torch.stack(logarithms).view(n, heads) if n else q.new_zeros(0, heads, dtype=torch.float64),
        probabilities.sum(1) if indices.ndim == 2 else probabilities,
    )
