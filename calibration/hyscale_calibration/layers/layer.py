"""What attention blocks with a selection have in common: project, select, attend, learn, project back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from hyscale_kernels.index_loss.sparse import sparse_divergence
from hyscale_kernels.sparse_attention import Impl, query_pairs, sparse_attention

from hyscale_calibration.layers.context import Context, spans_of
from hyscale_calibration.layers.phases import Phases
from hyscale_calibration.layers.selection import scores_of, select
from hyscale_calibration.layers.sizes import IndexSizes
from hyscale_calibration.layers.systems import Strategy


class Operands(NamedTuple):
    """What attention reads, see ``sparse_attention``; ``value_width`` where keys are their values."""

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor | None = None
    value_width: int | None = None
    sinks: torch.Tensor | None = None


class IndexOperands(NamedTuple):
    """What scores are made of: queries ``[n, heads, width]``, keys ``[L, width]``, weights ``[n, heads]`` or None."""

    q: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor | None


class Options(NamedTuple):
    """How a layer computes.

    Attributes:
        deterministic: the same bits every time, and the same selections in every system: of equal scores the lower
            positions, in ascending order, gradients of keys by sums of whole numbers, and no pairs of queries.
        pairs: pair queries of deterministic layers too, where the system does; bits are then those of pairs.
        impl: of sparse attention, see its ``api``.
        name: of the layer among those that are recomputed together.
    """

    deterministic: bool = False
    pairs: bool = False
    impl: Impl | None = None
    name: str = "layer"


class SparseLayer(torch.nn.Module):
    """An attention block on one context-parallel rank, from residual stream to residual stream.

    ::

        out, loss = layer(x)                                                  # x: BF16 [n, hidden]
        out = recomputed(layer, x, keeps=system.keeps, coefficient=0.01)      # under full recomputation

    Args:
        index: its indexer; softmax_scale: of attention; index_scale: of scores in the softmax of the index loss.
        system: how it selects; context: its tokens, and the keys of other ranks.

    Attributes:
        last: selected indices int32 ``[n, topk]`` and the index loss of the last run.
    """

    input_norm: torch.Tensor
    spans: torch.Tensor
    last: tuple[torch.Tensor, torch.Tensor] | None

    def __init__(
        self,
        index: IndexSizes,
        softmax_scale: float,
        system: Strategy,
        context: Context,
        options: Options,
        *,
        index_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.index, self.softmax_scale, self.index_scale = index, softmax_scale, index_scale
        self.system, self.context, self.options = system, context, options
        self.phases, self.last = Phases(), None
        self.register_buffer("spans", spans_of(context, index.ratio), persistent=False)

    def index_query_weights(self) -> torch.Tensor:
        """Weights ``[heads * width, inputs]`` that the indexer's queries are made with."""
        raise NotImplementedError

    def context_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Rows of other ranks."""
        return self.context.parameters() if isinstance(self.context, torch.nn.Module) else iter(())

    def project(self, x: torch.Tensor) -> tuple[Callable[[], Operands], IndexOperands]:
        """Operands of both attentions, of ``x [n, hidden]``; tells phases ``projections`` and ``index_projections``.

        Those of attention are asked for once, when the selection has been queued: until then they may be on their way.
        """
        raise NotImplementedError

    def attended(self, indices: torch.Tensor) -> torch.Tensor:
        """Keys that attention reads for selected entries: int32 ``[n, topk]`` to ``[n, k]``."""
        return indices

    def teacher(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Attention's probabilities of selected entries, from those of the keys that it read."""
        return probabilities

    def back(self, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Hidden states of what attention returned ``[n, heads, value]``, added to ``x``."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states ``[n, hidden]``, and the mean index loss of queries: 0, not computed, without gradients."""
        phases, options, learns = self.phases, self.options, torch.is_grad_enabled()
        phases.begin("projections")
        arriving, scored = self.project(x)
        phases.begin("selection")
        selected = select(
            self.system,
            *scored,
            self.spans,
            self.index.topk,
            name=options.name,
            deterministic=options.deterministic,
        )
        operands = arriving()
        phases.begin("sparse_attention")
        indices = self.attended(selected.indices)
        # Pairs serve the backward alone. What a pair adds to a key is rounded once, so its bits are those of pairs.
        pairs = self.system.sparse_attention == "query_pairs" and (options.pairs or not options.deterministic)
        found = sparse_attention(
            operands.q,
            operands.keys,
            indices,
            self.softmax_scale,
            values=operands.values,
            value_width=operands.value_width,
            sinks=operands.sinks,
            probabilities=learns,
            deterministic=options.deterministic,
            pairs=query_pairs(indices) if learns and pairs else None,
            impl=options.impl,
        )
        out = phases.begin_backward("sparse_attention", found.out)
        loss = x.new_zeros((), dtype=torch.float32)
        if found.probabilities is not None:
            phases.begin("selection")
            scores = scores_of(selected, *scored, deterministic=options.deterministic)
            phases.begin("index_loss")
            losses = sparse_divergence(scores, selected.indices, self.teacher(found.probabilities), self.index_scale)
            loss = phases.begin_backward("index_loss", losses.mean())
        phases.begin("output")
        hidden = phases.begin_backward("output", self.back(out, x))
        self.last = selected.indices, loss.detach()
        return hidden, loss
