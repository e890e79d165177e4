"""The attention block of DeepSeek-V3.2 and GLM-5: an indexer, and absorbed latent attention over what it selects.

With h the normed hidden states, c the low-rank queries, l the latent that all heads share:

    q[t, j]    = (W_uk[j] q_nope[t, j], rope q_rope[t, j])       of W_q c[t], one latent-wide query a head
    l[t]       = (norm W_l h[t], rope W_r h[t])
    S(t)       = the topk of sum_h w[t, h] relu(q_I[t, h] . k_I[s])
    out[t]     = x[t] + W_o (W_uv[j] attention(q[t, j], l[s in S(t)]))_j
    loss       = KL of attention's distribution over S(t), summed over heads, from the indexer's softmax
"""

from __future__ import annotations

from functools import partial

import torch
from hyscale_kernels.index_loss.sparse import sparse_divergence
from hyscale_kernels.sparse_attention import Impl, query_pairs, sparse_attention
from torch.nn.functional import linear

from hyscale_calibration.layers.context import Context, spans_of
from hyscale_calibration.layers.parts import Device, Indexer, normed, ones, rotated, rotations, weight
from hyscale_calibration.layers.phases import Phases
from hyscale_calibration.layers.selection import scores_of, select
from hyscale_calibration.layers.sizes import DsaSizes
from hyscale_calibration.layers.systems import Strategy


class DsaLayer(torch.nn.Module):
    """One attention block on one context-parallel rank.

    ::

        sizes, system = DsaSizes.of(values_of("models", "glm-5.1")), system_named("hyscale")
        layer = DsaLayer(sizes, system, WholeSequence(4096, "cuda"), device="cuda")
        out, loss = layer(x)                                                  # x: BF16 [n, hidden]
        out = recomputed(layer, x, keeps=system.keeps, coefficient=0.01)      # under full recomputation

    Args:
        sizes: dimensions; system: how it selects; context: its tokens, and the keys of others.
        deterministic: the same bits every time, and the same selections in every system: of equal scores the lower
            positions, in ascending order, gradients of keys by sums of whole numbers.
        impl: of sparse attention, see its ``api``.
        name: of the layer among those that are recomputed together.

    Attributes:
        last: selected indices int32 ``[n, topk]`` and the index loss of the last run.
    """

    last: tuple[torch.Tensor, torch.Tensor] | None

    def __init__(
        self,
        sizes: DsaSizes,
        system: Strategy,
        context: Context,
        *,
        deterministic: bool = False,
        impl: Impl | None = None,
        name: str = "layer",
        device: Device = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        made = partial(weight, device=device, generator=generator)
        self.sizes, self.system, self.context = sizes, system, context
        self.deterministic, self.impl, self.name = deterministic, impl, name
        self.phases, self.last = Phases(), None
        self.input_norm = ones(sizes.hidden, device)
        self.q_down, self.q_norm = made(sizes.q_rank, sizes.hidden), ones(sizes.q_rank, device)
        self.q_up = made(sizes.heads * (sizes.nope + sizes.rope), sizes.q_rank)
        self.kv_down, self.kv_norm = made(sizes.latent, sizes.hidden), ones(sizes.kv_rank, device)
        self.q_absorb = torch.nn.Parameter(
            made(sizes.heads, sizes.kv_rank, sizes.nope).data.transpose(1, 2).contiguous()
        )
        self.v_absorb = torch.nn.Parameter(
            made(sizes.heads, sizes.value, sizes.kv_rank).data.transpose(1, 2).contiguous()
        )
        self.output = made(sizes.hidden, sizes.heads * sizes.value)
        self.indexer = Indexer(
            sizes.index, sizes.q_rank, sizes.hidden, sizes.rope, weighted=True, device=device, generator=generator
        )
        self.register_buffer("spans", spans_of(context), persistent=False)

    @property
    def softmax_scale(self) -> float:
        """What products of queries and keys are multiplied by: that of the queries before they are absorbed."""
        return (self.sizes.nope + self.sizes.rope) ** -0.5

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states ``[n, hidden]`` and the index loss, a mean over queries; 0 and not computed without gradients."""
        sizes, phases = self.sizes, self.phases
        phases.begin("projections")
        rotation = rotations(self.context.positions, sizes.rope)
        hidden = normed(x, self.input_norm)
        low = normed(linear(hidden, self.q_down), self.q_norm)
        q = phases.begin_backward("projections", self._queries(low, rotation))
        latent = self.context.whole("latent", self._latent(hidden, rotation))
        phases.begin("index_projections")
        index_q = phases.begin_backward("index_projections", self.indexer.queries(low, rotation))
        index_keys = self.context.whole("index_keys", self.indexer.keys(hidden, rotation))
        index_weights = self.indexer.head_weights(hidden)
        phases.begin("selection")
        selected = select(
            self.system,
            index_q,
            index_keys,
            index_weights,
            self.spans,
            sizes.index.topk,
            name=self.name,
            deterministic=self.deterministic,
        )
        learns = torch.is_grad_enabled()
        phases.begin("sparse_attention")
        paired = self.system.sparse_attention == "query_pairs" and learns
        attended = sparse_attention(
            q,
            latent,
            selected.indices,
            self.softmax_scale,
            value_width=sizes.kv_rank,
            probabilities=learns,
            deterministic=self.deterministic,
            pairs=query_pairs(selected.indices) if paired else None,
            impl=self.impl,
        )
        out = phases.begin_backward("sparse_attention", attended.out)
        loss = x.new_zeros((), dtype=torch.float32)
        if attended.probabilities is not None:
            phases.begin("index_loss")
            scores = scores_of(selected, index_q, index_keys, index_weights, deterministic=self.deterministic)
            losses = sparse_divergence(scores, selected.indices, attended.probabilities, 1.0)
            loss = phases.begin_backward("index_loss", losses.mean())
        phases.begin("output")
        values = torch.einsum("nhr,hrv->nhv", out, self.v_absorb).flatten(1)
        found = phases.begin_backward("output", x + linear(values, self.output))
        self.last = selected.indices, loss.detach()
        return found, loss

    def _queries(self, low: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """BF16 ``[n, heads, latent]``."""
        q = linear(low, self.q_up).unflatten(-1, (self.sizes.heads, -1))
        nope, rope = q.split([self.sizes.nope, self.sizes.rope], dim=-1)
        return torch.cat([torch.einsum("nhd,hdr->nhr", nope, self.q_absorb), rotated(rope, rotation)], dim=-1)

    def _latent(self, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """BF16 ``[n, latent]`` of this rank's tokens."""
        latent, rope = linear(hidden, self.kv_down).split([self.sizes.kv_rank, self.sizes.rope], dim=-1)
        return torch.cat([normed(latent, self.kv_norm), rotated(rope, rotation)], dim=-1)
