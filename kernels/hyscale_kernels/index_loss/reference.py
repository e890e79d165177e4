"""Divergences in float64, query by query; differentiable in q, keys and weights."""

from __future__ import annotations

import torch

from hyscale_kernels.replay.reference import replay


def divergence(teacher: torch.Tensor, log_student: torch.Tensor) -> torch.Tensor:
    """sum of p (log p - log q) over the entries where p is not 0."""
    some = teacher > 0
    return (teacher[some] * (teacher[some].log() - log_student[some])).sum()


def sparse_index_loss(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    indices: torch.Tensor,
    teacher: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    scale: float = 1.0,
) -> torch.Tensor:
    """Losses of all queries over the keys ``indices [n, k]``: float64 ``[n]``."""
    scores = replay(q, keys, weights, indices, q_scale, key_scale)
    losses = scores.new_zeros(len(scores))
    for t in range(len(scores)):
        some = indices[t] >= 0
        shares = teacher[t][some].double()
        if bool(shares.any()):
            student = torch.log_softmax(scale * scores[t][some], dim=-1)
            losses[t] = divergence(shares / shares.sum(), student)
    return losses


def dense_index_loss(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    attention_q: torch.Tensor,
    attention_k: torch.Tensor,
    softmax_scale: float,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    scale: float = 1.0,
) -> torch.Tensor:
    """Losses of all queries over all keys of ``spans [n, 2]``: float64 ``[n]``."""
    losses = torch.zeros(q.shape[0], dtype=torch.float64, device=q.device)
    heads = attention_q.shape[1]
    by_head = attention_k[:, None] if attention_k.ndim == 2 else attention_k
    by_head = by_head.double().repeat_interleave(heads // by_head.shape[1], dim=1)
    for t, (begin, end) in enumerate(spans.tolist()):
        if begin >= end:
            continue
        logits = softmax_scale * torch.einsum("hc,shc->hs", attention_q[t].double(), by_head[begin:end])
        teacher = torch.softmax(logits, dim=-1).mean(0)
        scores = replay(
            q[t : t + 1],
            keys,
            None if weights is None else weights[t : t + 1],
            torch.arange(begin, end, device=q.device)[None],
            None if q_scale is None else q_scale[t : t + 1],
            key_scale,
        )
        losses[t] = divergence(teacher, torch.log_softmax(scale * scores[0], dim=-1))
    return losses
