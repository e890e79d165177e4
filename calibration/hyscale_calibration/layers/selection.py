"""A selection as a system makes it: by score tables or HyTopK, made again or kept for the recomputation."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from hyscale_kernels.checkpoint import select_once
from hyscale_kernels.hytopk import hytopk
from hyscale_kernels.indices import made_indices
from hyscale_kernels.replay import replay, replay_gradients
from hyscale_kernels.score_table import score_table
from hyscale_kernels.top_k import top_k

from hyscale_calibration.layers.systems import Strategy


class Selected(NamedTuple):
    """Selected keys of each query.

    Attributes:
        indices: int32 ``[n, k]``, -1 for none.
        scores: FP32 ``[n, k]``, as far as the selection left them.
    """

    indices: torch.Tensor
    scores: torch.Tensor | None


def select(
    system: Strategy,
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    topk: int,
    *,
    name: str,
    deterministic: bool,
) -> Selected:
    """The ``topk`` keys of highest score, under the policy of a system.

    Args:
        q: BF16 ``[n, heads, width]``; keys: BF16 ``[L, width]``; weights: ``[n, heads]`` or None.
        spans: int ``[n, 2]``, what each query sees.
        name: of the layer, by which a recomputation finds the selection of its forward.
        deterministic: of equal scores select the lower positions, and put indices in ascending order, in every system.
    """
    q, keys = q.detach(), keys.detach()
    weights = None if weights is None else weights.detach()
    if not system.keeps:
        return _made(system, q, keys, weights, spans, topk, deterministic, torch.is_grad_enabled())
    wanted = system.recompute_selection == "skip"
    kept = select_once(
        (name, tuple(q.shape), tuple(keys.shape), topk),
        lambda: _packed(_made(system, q, keys, weights, spans, topk, deterministic, wanted)),
    )
    indices = made_indices(kept[0], len(keys))
    return Selected(indices, kept[1].view(torch.float32)) if wanted else Selected(indices, None)


def scores_of(
    selected: Selected,
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    *,
    deterministic: bool,
) -> torch.Tensor:
    """FP32 ``[n, k]``, differentiable; scored again only where the selection left no scores, with the same bits."""
    if selected.scores is None:
        return replay(q, keys, weights, selected.indices, deterministic=deterministic)
    found: torch.Tensor = _Known.apply(q, keys, weights, *selected, deterministic)
    return found


@torch.no_grad()
def _made(
    system: Strategy,
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    topk: int,
    deterministic: bool,
    with_scores: bool,
) -> Selected:
    if system.selection == "hytopk":
        found = hytopk(q, keys, weights, spans, topk).indices
        return Selected(found, replay(q, keys, weights, found) if with_scores else None)
    n = len(q)
    rows = n if isinstance(system.table_rows, str) else system.table_rows
    indices = torch.empty(n, topk, dtype=torch.int32, device=q.device)
    scores = torch.zeros(n, topk, device=q.device) if with_scores else None
    for first in range(0, n, max(rows, 1)):
        part = slice(first, first + rows)
        table = score_table(q[part], keys, None if weights is None else weights[part], spans[part])
        radix = deterministic or system.table_topk == "radix"
        (_by_radix if radix else _by_torch)(table, spans[part], indices[part], None if scores is None else scores[part])
        # Before the next block's: two would be twice the memory.
        del table
    return Selected(indices, scores)


def _by_radix(table: torch.Tensor, spans: torch.Tensor, indices: torch.Tensor, scores: torch.Tensor | None) -> None:
    indices.copy_(top_k(table, indices.shape[1], spans))
    if scores is not None:
        torch.gather(table, 1, indices.clamp(min=0).long(), out=scores)
        scores.masked_fill_(indices < 0, 0.0)


def _by_torch(table: torch.Tensor, spans: torch.Tensor, indices: torch.Tensor, scores: torch.Tensor | None) -> None:
    """In no order, as Megatron-LM's."""
    kept = min(indices.shape[1], table.shape[1])
    best = torch.topk(table, kept, dim=-1, sorted=False)
    unseen = best.values == float("-inf")
    indices[:, kept:] = -1
    indices[:, :kept] = best.indices.to(torch.int32).masked_fill_(unseen, -1)
    if scores is not None:
        scores[:, :kept] = best.values.masked_fill_(unseen, 0.0)


def _packed(selected: Selected) -> torch.Tensor:
    """int32 ``[1 or 2, n, k]``: indices, and the bits of scores if there are any."""
    parts = [selected.indices] if selected.scores is None else [selected.indices, selected.scores.view(torch.int32)]
    return torch.stack(parts) if len(parts) > 1 else parts[0][None]


class _Known(torch.autograd.Function):
    """Scores that are there already, with the gradients of ``replay``."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        indices: torch.Tensor,
        scores: torch.Tensor,
        deterministic: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(q, keys, weights, indices)
        ctx.deterministic = deterministic
        return scores.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, keys, weights, indices = ctx.saved_tensors
        found = replay_gradients(
            grad,
            q,
            keys,
            weights,
            indices,
            deterministic=ctx.deterministic,
        )
        dweights = None if weights is None else found.weights.to(weights.dtype)
        return found.q.to(q.dtype), found.keys.to(keys.dtype), dweights, None, None, None
