"""Divergence of scores from attention over all visible keys, a block of queries and keys at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from hyscale_kernels.replay.gradients import Gradients, unfilled
from hyscale_kernels.scoring.inputs import Scored

# More keys at a time would make no product faster.
MOST_KEYS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """Inputs of a dense loss.

    Attributes:
        scored: the indexer's.
        attention_q: ``[n, heads, width]``; attention_k: ``[L, groups, width]``, each of as many heads.
        block_elements: the most (query, head, key) triples of a block, unless one query and key have more.
    """

    scored: Scored
    attention_q: torch.Tensor
    attention_k: torch.Tensor
    softmax_scale: float
    scale: float
    block_elements: int

    def blocks(self) -> Iterator[tuple[slice, list[slice]]]:
        """Queries, and the blocks of keys that one of them sees. Waits for the device once."""
        spans = self.scored.spans.cpu()
        heads = max(self.attention_q.shape[1], self.scored.q.shape[1])
        keys = min(MOST_KEYS, max(1, self.block_elements // heads))
        queries = max(1, self.block_elements // (heads * keys))
        for first in range(0, len(spans), queries):
            rows = slice(first, min(first + queries, len(spans)))
            begins, ends = spans[rows][spans[rows, 0] < spans[rows, 1]].unbind(1)
            if len(begins):
                low, high = int(begins.min()), int(ends.max())
                yield rows, [slice(start, min(start + keys, high)) for start in range(low, high, keys)]

    def visible(self, rows: slice, keys: slice) -> torch.Tensor:
        """Which queries see which keys: bool ``[queries, keys]``."""
        places = torch.arange(keys.start, keys.stop, device=self.scored.spans.device)
        begins, ends = self.scored.spans[rows].unbind(1)
        return (places >= begins[:, None]) & (places < ends[:, None])

    def attention(self, rows: slice, keys: slice, visible: torch.Tensor) -> torch.Tensor:
        """Scaled logits: FP32 ``[groups, queries, heads of a group, keys]``, minus infinity where not visible."""
        q, k = self.attention_q[rows], self.attention_k[keys]
        count, groups = q.shape[0], k.shape[1]
        by_group = q.unflatten(1, (groups, -1)).transpose(0, 1).flatten(1, 2)
        logits = multiply(by_group, k.permute(1, 2, 0)).mul_(self.softmax_scale)
        return logits.unflatten(1, (count, -1)).masked_fill_(~visible[:, None], -torch.inf)

    def teacher(self, rows: slice, keys: slice, visible: torch.Tensor, normaliser: torch.Tensor) -> torch.Tensor:
        """Attention's distribution, the mean of its heads: FP32 ``[queries, keys]``."""
        shares = self.attention(rows, keys, visible).sub_(finite(normaliser)[..., None]).exp_()
        return shares.sum((0, 2)).div_(self.attention_q.shape[1])

    def positive(self, rows: slice, keys: slice) -> torch.Tensor:
        """Products of the indexer that are not negative, others 0: FP32 ``[queries, heads, keys]``."""
        q = self.scored.q[rows]
        return multiply(q.flatten(0, 1), self.scored.keys[keys].T).unflatten(0, q.shape[:2]).relu_()

    def logits(self, rows: slice, keys: slice, visible: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
        """Scaled scores of the indexer: FP32 ``[queries, keys]``, minus infinity where not visible."""
        scores = torch.bmm(self.scored.weights[rows, None], positive)[:, 0]
        if self.scored.key_scale is not None:
            scores *= self.scored.key_scale[keys]
        return scores.mul_(self.scale).masked_fill_(~visible, -torch.inf)


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` of matrices or batches of them in FP32; on a GPU ``a`` is rounded to the type of ``b``, FP8 is BF16."""
    if not a.is_cuda:
        return a.float() @ b.float()
    b = b.bfloat16() if b.dtype.itemsize == 1 else b
    a = a.to(b.dtype)
    if b.dtype == torch.float32:
        return a @ b
    # The result of two BF16 factors would be BF16 by itself.
    return torch.bmm(a, b, out_dtype=torch.float32) if a.ndim == 3 else torch.mm(a, b, out_dtype=torch.float32)


def finite(normaliser: torch.Tensor) -> torch.Tensor:
    """Logarithms of sums, 0 where there was nothing to add: minus infinity less itself is NaN."""
    return normaliser.masked_fill(normaliser == -torch.inf, 0.0)


def divergences(dense: Dense) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """KL(attention || indexer) of each query, and logarithms of what the distributions are divided by.

    Returns:
        FP32 ``[n]``, 0 where nothing is visible; ``[groups, n, heads of a group]`` for attention and ``[n]`` for the
        indexer.
    """
    n, heads = dense.attention_q.shape[:2]
    groups = dense.attention_k.shape[1]
    device = dense.scored.q.device
    losses = torch.zeros(n, device=device)
    of_attention = torch.full((groups, n, heads // groups), -torch.inf, device=device)
    of_indexer = torch.full((n,), -torch.inf, device=device)
    for rows, blocks in dense.blocks():
        for keys in blocks:
            visible = dense.visible(rows, keys)
            block = dense.attention(rows, keys, visible).logsumexp(-1)
            of_attention[:, rows] = torch.logaddexp(of_attention[:, rows], block)
            block = dense.logits(rows, keys, visible, dense.positive(rows, keys)).logsumexp(-1)
            of_indexer[rows] = torch.logaddexp(of_indexer[rows], block)
        for keys in blocks:
            visible = dense.visible(rows, keys)
            shares = dense.teacher(rows, keys, visible, of_attention[:, rows])
            student = dense.logits(rows, keys, visible, dense.positive(rows, keys)) - of_indexer[rows, None]
            losses[rows] += (shares * (shares.log() - student)).where(shares > 0, 0.0).sum(-1)
    return losses, of_attention, of_indexer


def gradients(
    dense: Dense, grad_losses: torch.Tensor, of_attention: torch.Tensor, of_indexer: torch.Tensor
) -> Gradients:
    """FP32 gradients of filled-up inputs as they are stored, and of weights with query scales in them."""
    q, weights = dense.scored.q, dense.scored.weights
    device = q.device
    dq = torch.zeros(q.shape, device=device)
    dkeys = torch.zeros(dense.scored.keys.shape, device=device)
    dweights = torch.zeros(weights.shape, device=device)
    for rows, blocks in dense.blocks():
        for keys in blocks:
            visible = dense.visible(rows, keys)
            shares = dense.teacher(rows, keys, visible, of_attention[:, rows])
            positive = dense.positive(rows, keys)
            student = dense.logits(rows, keys, visible, positive)
            slopes = student.sub_(finite(of_indexer[rows])[:, None]).exp_().sub_(shares)
            slopes *= dense.scale * grad_losses[rows, None]
            if dense.scored.key_scale is not None:
                slopes *= dense.scored.key_scale[keys]
            dweights[rows] += torch.bmm(positive, slopes[..., None])[..., 0]
            # From here on the gradient of products, first without the head weights.
            inner = positive.gt_(0.0).mul_(slopes[:, None])
            found = multiply(inner.flatten(0, 1), dense.scored.keys[keys])
            dq[rows] += found.unflatten(0, inner.shape[:2]) * weights[rows, :, None]
            inner *= weights[rows, :, None]
            dkeys[keys] += multiply(inner.flatten(0, 1).T, q[rows].flatten(0, 1))
    return Gradients(dq, dkeys, dweights)


def dense_divergence(
    q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, dense: Dense, q_scale: torch.Tensor | None
) -> torch.Tensor:
    """The losses of ``divergences``, differentiable in the tensors that ``dense.scored`` was made of."""
    return _Divergence.apply(q, keys, weights, dense, q_scale)


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        dense: Dense,
        q_scale: torch.Tensor | None,
    ) -> torch.Tensor:
        losses, of_attention, of_indexer = divergences(dense)
        scored = dense.scored
        ctx.save_for_backward(
            scored.q,
            scored.keys,
            scored.weights,
            scored.key_scale,
            scored.spans,
            dense.attention_q,
            dense.attention_k,
            of_attention,
            of_indexer,
            q_scale,
        )
        ctx.settings = dense.softmax_scale, dense.scale, dense.block_elements
        ctx.dtype, ctx.filled_from = scored.dtype, q.shape[1:]
        ctx.dtypes = q.dtype, keys.dtype, None if weights is None else weights.dtype
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_losses: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, keys, weights, key_scale, spans, attention_q, attention_k, *normalisers, q_scale = ctx.saved_tensors
        softmax_scale, scale, block_elements = ctx.settings
        dense = Dense(
            scored=Scored(q=q, keys=keys, weights=weights, key_scale=key_scale, spans=spans, dtype=ctx.dtype),
            attention_q=attention_q,
            attention_k=attention_k,
            softmax_scale=softmax_scale,
            scale=scale,
            block_elements=block_elements,
        )
        heads, dim = ctx.filled_from
        found = unfilled(gradients(dense, grad_losses, *normalisers), heads, dim)
        dweights = found.weights if q_scale is None else found.weights * q_scale.float()
        wanted = (
            each.to(dtype) if needed else None
            for each, dtype, needed in zip(
                (found.q, found.keys, dweights), ctx.dtypes, ctx.needs_input_grad, strict=False
            )
        )
        return (*wanted, None, None)
