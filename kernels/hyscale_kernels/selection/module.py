"""Selection as a module of a model."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from hyscale_kernels.checkpoint import select_once
from hyscale_kernels.indices import made_indices
from hyscale_kernels.replay import replay
from hyscale_kernels.scoring.inputs import FP8
from hyscale_kernels.selection.ops import hytopk_op, score_table_op
from hyscale_kernels.top_k.api import check_topk

Method = Literal["hytopk", "score_table"]
Precision = Literal["bf16", "fp8"]
# The largest finite number of FP8 E4M3.
FP8_MAX = 448.0


class SparseSelection(torch.nn.Module):
    """Selects the ``topk`` entries of highest indexer score for each query, once a forward.

    Inside a checkpoint made with ``checkpoint.checkpoint_contexts`` the recomputation is given the indices of its
    forward and scores nothing but those entries. The module has no parameters.

    ::

        selection = SparseSelection(topk=2048)
        indices = selection(q, keys, weights, causal_spans(positions))
        scores = selection.scores(q, keys, weights, indices)  # for the index loss

    Args:
        topk: 1 to 2,048.
        method: ``hytopk``, or through a ``score_table``: the same indices.
        precision: what is multiplied. ``fp8`` quantises queries per head and keys per entry; ``scores`` and gradients
            stay in BF16.
        name: of the layer; a recomputation must ask for selections of the same names in the same order.

    Attributes:
        recovered: bool ``[n]`` of the last selection by ``hytopk``: queries that were scored twice.
    """

    recovered: torch.Tensor | None

    def __init__(
        self, topk: int, *, method: Method = "hytopk", precision: Precision = "bf16", name: str = "selection"
    ) -> None:
        super().__init__()
        check_topk(topk)
        for value, choices in ((method, Method), (precision, Precision)):
            if value not in get_args(choices):
                raise ValueError(f"{value!r} is none of {', '.join(get_args(choices))}")
        self.topk = topk
        self.method = method
        self.precision = precision
        self.name = name
        self.recovered = None

    def forward(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        spans: torch.Tensor,
        *,
        chunk: int = 0,
    ) -> torch.Tensor:
        """Indices int32 ``[n, topk]``, ascending, -1 behind the last.

        Args:
            q: BF16 ``[n, heads, dim]``; keys: BF16 ``[L, dim]``; weights: ``[n, heads]`` or None for ones.
            spans: int ``[n, 2]``, what each query sees, see ``spans.causal_spans``.
            chunk: which of several selections of this layer in one forward, such as its first query.

        Raises:
            ValueError: an input that does not fit the others.
            SelectionReplayError: in a recomputation, if its forward made another selection at this place.
        """
        key = (self.name, chunk, tuple(q.shape), tuple(keys.shape), self.topk)
        return select_once(key, lambda: self._select(q, keys, weights, spans))

    def scores(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        indices: torch.Tensor,
        *,
        deterministic: bool = False,
    ) -> torch.Tensor:
        """Scores FP32 ``[n, topk]`` of selected entries, with gradients; see ``replay.replay``."""
        return replay(q, keys, weights, indices, deterministic=deterministic)

    def extra_repr(self) -> str:
        """What the module is set to."""
        return f"topk={self.topk}, method={self.method}, precision={self.precision}, name={self.name}"

    @torch.no_grad()
    def _select(
        self, q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, spans: torch.Tensor
    ) -> torch.Tensor:
        q_scale = key_scale = None
        if self.precision == "fp8":
            q, q_scale = quantise(q)
            keys, key_scale = quantise(keys)
        if self.method == "score_table":
            self.recovered = None
            indices = score_table_op(q, keys, weights, spans, self.topk, q_scale, key_scale)
        else:
            indices, _, _, self.recovered = hytopk_op(q, keys, weights, spans, self.topk, q_scale, key_scale)
        return made_indices(indices, keys.shape[0])


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 E4M3 ``[..., dim]`` and scales ``[...]``: the largest magnitude of each row becomes 448."""
    wide = values.float()
    scale = wide.abs().amax(-1) / FP8_MAX
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (wide / scale[..., None]).to(FP8), scale
