"""The sparse attention block of Qwen3.8: blocks of tokens are selected by the mean of their index keys.

    S(t) = the topk complete blocks of highest sum_j relu(q_I[t, j] . mean of k_I over the block)
    out  = x[t] + W_o (sigmoid gate[t] attention(q[t], tokens of S(t) and of t's unfinished block))

Query heads share the keys and values of their group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from hyscale_kernels.selection import block_means, tokens_of, unfinished_spans
from torch.nn.functional import linear

from hyscale_calibration.layers.context import Context
from hyscale_calibration.layers.layer import IndexOperands, Operands, Options, SparseLayer
from hyscale_calibration.layers.parts import Device, normed, ones, rotations, turn_end, weight
from hyscale_calibration.layers.sizes import QsaSizes
from hyscale_calibration.layers.systems import Strategy


class QsaLayer(SparseLayer):
    """See the module.

    Args:
        sizes: dimensions; the others are those of ``SparseLayer``.
        generator: of the weights.
    """

    unfinished: torch.Tensor

    def __init__(
        self,
        sizes: QsaSizes,
        system: Strategy,
        context: Context,
        options: Options = Options(),  # noqa: B008
        *,
        device: Device = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        # Heads of the indexer have no weights that would bring scores to the order of 1.
        scale = (sizes.index.heads * sizes.index.width) ** -0.5
        super().__init__(sizes.index, sizes.width**-0.5, system, context, options, index_scale=scale)
        made = partial(weight, device=device, generator=generator)
        self.sizes, index = sizes, sizes.index
        self.input_norm = ones(sizes.hidden, device)
        self.q = made(2 * sizes.heads * sizes.width, sizes.hidden)
        self.kv = made(2 * sizes.groups * sizes.width, sizes.hidden)
        self.q_norm, self.k_norm = ones(sizes.width, device), ones(sizes.width, device)
        self.output = made(sizes.hidden, sizes.heads * sizes.width)
        self.index_query = made(index.heads * index.width, sizes.hidden)
        self.index_key = made(index.width, sizes.hidden)
        self.index_q_norm, self.index_k_norm = ones(index.width, device), ones(index.width, device)
        self.register_buffer("unfinished", self._unfinished(), persistent=False)
        self._gate: torch.Tensor | None = None

    def index_query_weights(self) -> torch.Tensor:
        """Of all heads."""
        return self.index_query

    def project(self, x: torch.Tensor) -> tuple[Callable[[], Operands], IndexOperands]:
        """Keys and values of groups of heads; the gate of the output waits for ``back``."""
        sizes, phases, context = self.sizes, self.phases, self.context
        rotation = rotations(context.positions, sizes.rope)
        hidden = normed(x, self.input_norm)
        q, gate = linear(hidden, self.q).view(len(x), sizes.heads, 2, sizes.width).unbind(2)
        self._gate = gate
        q = phases.begin_backward("projections", turn_end(normed(q, self.q_norm), rotation))
        keys, values = linear(hidden, self.kv).view(len(x), 2, sizes.groups, sizes.width).unbind(1)
        keys = context.whole("attention_keys", turn_end(normed(keys, self.k_norm), rotation).flatten(1))
        values = context.whole("attention_values", values.flatten(1))
        phases.begin("index_projections")
        detached = hidden.detach()
        index_q = linear(detached, self.index_query).unflatten(-1, (self.index.heads, self.index.width))
        index_q = phases.begin_backward("index_projections", turn_end(normed(index_q, self.index_q_norm), rotation))
        index_keys = turn_end(normed(linear(detached, self.index_key), self.index_k_norm), rotation)
        blocks = context.whole("index_keys", block_means(index_keys, self.index.ratio))
        by_group = (len(keys), sizes.groups, sizes.width)
        return (
            partial(Operands, q, keys.view(by_group), values.view(by_group)),
            IndexOperands(index_q, blocks, None),
        )

    def attended(self, indices: torch.Tensor) -> torch.Tensor:
        """All tokens of selected blocks, then those of the unfinished one."""
        return torch.cat([tokens_of(indices, self.index.ratio), self.unfinished], dim=1)

    def teacher(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Of a block, what its tokens have together."""
        tokens = self.index.topk * self.index.ratio
        return probabilities[:, :tokens].unflatten(1, (-1, self.index.ratio)).sum(-1)

    def back(self, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Gated, and to the residual stream."""
        assert self._gate is not None
        gated, self._gate = out * torch.sigmoid(self._gate), None
        return x + linear(gated.flatten(1), self.output)

    def _unfinished(self) -> torch.Tensor:
        """Tokens of each query's own block as long as it is not complete: int32 ``[n, ratio - 1]``, -1 for none."""
        first, end = unfinished_spans(self.context.positions, self.index.ratio).unbind(1)
        places = first[:, None] + torch.arange(self.index.ratio - 1, device=first.device, dtype=torch.int32)
        return places.masked_fill(places >= end[:, None], -1)
