"""The attention block of DeepSeek-V3.2 and GLM-5: an indexer, and absorbed latent attention over what it selects.

With h the normed hidden states, c the normed low-rank queries, l the latent that all heads share:

    q[t, j]    = (W_uk[j] q_nope[t, j], rope q_rope[t, j])       of W_q c[t], as wide as a latent
    l[t]       = (norm W_l h[t], rope W_r h[t])
    S(t)       = the topk of sum_j w[t, j] relu(q_I[t, j] . k_I[s])
    out[t]     = x[t] + W_o (W_uv[j] attention(q[t, j], l[s in S(t)]))_j
    loss       = KL of attention's distribution over S(t), summed over heads, from the indexer's softmax
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import linear

from hyscale_calibration.layers.context import Context
from hyscale_calibration.layers.layer import IndexOperands, Operands, Options, SparseLayer
from hyscale_calibration.layers.parts import (
    Device,
    Indexer,
    Rotation,
    normed,
    ones,
    per_head,
    rotations,
    turn_end,
    weight,
)
from hyscale_calibration.layers.sizes import DsaSizes
from hyscale_calibration.layers.systems import Strategy


class DsaLayer(SparseLayer):
    """See the module.

    Args:
        sizes: dimensions; the others are those of ``SparseLayer``.
        generator: of the weights.
    """

    def __init__(
        self,
        sizes: DsaSizes,
        system: Strategy,
        context: Context,
        options: Options = Options(),  # noqa: B008
        *,
        device: Device = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        # The scale of queries before they are absorbed.
        super().__init__(sizes.index, (sizes.nope + sizes.rope) ** -0.5, system, context, options)
        made = partial(weight, device=device, generator=generator)
        self.sizes = sizes
        self.input_norm = ones(sizes.hidden, device)
        self.q_down, self.q_norm = made(sizes.q_rank, sizes.hidden), ones(sizes.q_rank, device)
        self.q_up = made(sizes.heads * (sizes.nope + sizes.rope), sizes.q_rank)
        self.kv_down, self.kv_norm = made(sizes.latent, sizes.hidden), ones(sizes.kv_rank, device)
        self.q_absorb = made(sizes.heads, sizes.kv_rank, sizes.nope)
        self.v_absorb = made(sizes.heads, sizes.value, sizes.kv_rank)
        self.output = made(sizes.hidden, sizes.heads * sizes.value)
        self.indexer = Indexer(
            sizes.index, sizes.q_rank, sizes.hidden, sizes.rope, weighted=True, device=device, generator=generator
        )

    def index_query_weights(self) -> torch.Tensor:
        """Of all heads."""
        return self.indexer.query

    def project(self, x: torch.Tensor) -> tuple[Callable[[], Operands], IndexOperands]:
        """One latent a token is key and value of all heads.

        Index keys are gathered first and by themselves: scores need them, and they are a fifth of the bytes. Latents
        follow, beside the selection where the system hides them.
        """
        phases, context, index = self.phases, self.context, self.indexer
        rotation = rotations(context.positions, self.sizes.rope)
        hidden = normed(x, self.input_norm)
        low = normed(linear(hidden, self.q_down), self.q_norm)
        q = phases.begin_backward("projections", self._queries(low, rotation))
        latent = phases.begin_backward("projections", self._latent(hidden, rotation))
        phases.begin("index_projections")
        index_q = phases.begin_backward("index_projections", index.queries(low, rotation))
        index_keys = phases.begin_backward("index_projections", index.keys(hidden, rotation))
        weights = index.head_weights(hidden)
        phases.begin("gather")
        index_keys = phases.begin_backward("gather", context.whole("index_keys", index_keys))
        coming = context.coming("latent", latent, hidden=self.system.hides_gathers)

        def operands() -> Operands:
            phases.begin("gather")
            return Operands(q, phases.begin_backward("gather", coming()), value_width=self.sizes.kv_rank)

        return operands, IndexOperands(index_q, index_keys, weights)

    def back(self, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Out of latent space, and to the residual stream."""
        return x + linear(per_head(out, self.v_absorb).flatten(1), self.output)

    def _queries(self, low: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """BF16 ``[n, heads, latent]``."""
        q = linear(low, self.q_up).unflatten(-1, (self.sizes.heads, -1))
        return turn_end(per_head(q, self.q_absorb), rotation)

    def _latent(self, hidden: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """BF16 ``[n, latent]`` of this rank's tokens."""
        latent, rope = linear(hidden, self.kv_down).split([self.sizes.kv_rank, self.sizes.rope], dim=-1)
        return turn_end(torch.cat([normed(latent, self.kv_norm), rope], dim=-1), rotation)
