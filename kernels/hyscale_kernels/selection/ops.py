"""Selections as operators of PyTorch: ``torch.ops.hyscale.hytopk`` and ``torch.ops.hyscale.score_table``.

With shapes and types known to the compiler, so that they stand in compiled graphs and take meta tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from hyscale_kernels.hytopk import hytopk
from hyscale_kernels.score_table import select


# Annotations are read when operators are registered, which those of this file's other functions are not.
@torch.library.custom_op("hyscale::hytopk", mutates_args=())
def hytopk_op(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    topk: int,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``hytopk``: indices, candidates, margin and recovered (see ``hytopk.Selection``)."""
    found = hytopk(q, keys, weights, spans, topk, q_scale=q_scale, key_scale=key_scale)
    return found.indices, found.candidates, found.margin, found.recovered


@hytopk_op.register_fake
def _(
    q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, spans: torch.Tensor, topk: int, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    n = q.shape[0]
    return (
        q.new_empty((n, topk), dtype=torch.int32),
        q.new_empty((n,), dtype=torch.int32),
        q.new_empty((n,), dtype=torch.float32),
        q.new_empty((n,), dtype=torch.bool),
    )


@torch.library.custom_op("hyscale::score_table", mutates_args=())
def score_table_op(
    q: torch.Tensor,
    keys: torch.Tensor,
    weights: torch.Tensor | None,
    spans: torch.Tensor,
    topk: int,
    q_scale: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """``score_table.select`` by ``top_k``: the same indices as ``hytopk``, through a table."""
    return select(q, keys, weights, spans, topk, q_scale=q_scale, key_scale=key_scale, method="radix")


@score_table_op.register_fake
def _(
    q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, spans: torch.Tensor, topk: int, *_: Any
) -> torch.Tensor:
    return q.new_empty((q.shape[0], topk), dtype=torch.int32)
