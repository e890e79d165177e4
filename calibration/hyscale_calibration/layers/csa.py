"""The compressed sparse attention block of DeepSeek-V4: entries of several tokens are selected, a window is attended.

A key is its own value. Entry e pools ``ratio`` tokens of its block and as many of the block before, each by its own
series of keys and gates, channel by channel:

    C[e] = sum_{t in block e} g_a[t] c_a[t] + sum_{t in block e - 1} g_b[t] c_b[t],   g = softmax over both of z + b
    S(t) = the topk complete entries of highest score, of an indexer whose keys are pooled likewise
    out  = x[t] + W_2 (W_1[group] attention(q[t], entries S(t) and the last ``window`` tokens; sinks))_group

On a rank of several, the first tokens of a chunk lack what the chunk before would add: one series of one block, and
the window's tokens before the chunk. They are a few rows of a neighbour, and nothing in time or memory.
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
    normed,
    ones,
    per_head,
    pooled,
    rotations,
    turn_end,
    weight,
)
from hyscale_calibration.layers.sizes import CsaSizes
from hyscale_calibration.layers.systems import Strategy


class CsaLayer(SparseLayer):
    """See the module.

    Args:
        sizes: dimensions; the others are those of ``SparseLayer``.
        generator: of the weights.
    """

    window: torch.Tensor
    first: torch.Tensor

    def __init__(
        self,
        sizes: CsaSizes,
        system: Strategy,
        context: Context,
        options: Options = Options(),  # noqa: B008
        *,
        device: Device = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(sizes.index, sizes.width**-0.5, system, context, options)
        made = partial(weight, device=device, generator=generator)
        self.sizes, ratio = sizes, sizes.index.ratio
        self.input_norm = ones(sizes.hidden, device)
        self.q_down, self.q_norm = made(sizes.q_rank, sizes.hidden), ones(sizes.q_rank, device)
        self.q_up = made(sizes.heads * sizes.width, sizes.q_rank)
        self.kv, self.kv_norm = made(sizes.width, sizes.hidden), ones(sizes.width, device)
        self.compressor = made(4 * sizes.width, sizes.hidden)
        self.gate_bias = torch.nn.Parameter(torch.zeros(2 * ratio, sizes.width, device=device, dtype=torch.bfloat16))
        self.index_gate_bias = torch.nn.Parameter(self.gate_bias.data.new_zeros(2 * ratio, sizes.index.width))
        self.sinks = torch.nn.Parameter(torch.zeros(sizes.heads, device=device))
        grouped = sizes.heads * sizes.width // sizes.groups
        self.output_groups = made(sizes.groups, sizes.group_rank, grouped)
        self.output = made(sizes.hidden, sizes.groups * sizes.group_rank)
        self.indexer = Indexer(
            sizes.index,
            sizes.q_rank,
            sizes.hidden,
            sizes.rope,
            weighted=True,
            biased=False,
            key_outputs=4 * sizes.index.width,
            device=device,
            generator=generator,
        )
        self.register_buffer("window", self._window(), persistent=False)
        self.register_buffer("first", self._first(), persistent=False)

    def index_query_weights(self) -> torch.Tensor:
        """Of all heads."""
        return self.indexer.query

    def project(self, x: torch.Tensor) -> tuple[Callable[[], Operands], IndexOperands]:
        """Keys are the entries of the sequence, and behind them the raw keys of this rank's tokens."""
        sizes, phases, context, ratio = self.sizes, self.phases, self.context, self.sizes.index.ratio
        rotation = rotations(context.positions, sizes.rope)
        of_entries = rotations(context.positions[::ratio], sizes.rope)
        hidden = normed(x, self.input_norm)
        low = normed(linear(hidden, self.q_down), self.q_norm)
        q = turn_end(linear(low, self.q_up).unflatten(-1, (sizes.heads, sizes.width)), rotation)
        q = phases.begin_backward("projections", q)
        raw = turn_end(normed(linear(hidden, self.kv), self.kv_norm), rotation)
        found = pooled(linear(hidden, self.compressor), self.gate_bias, self.first)
        entries = context.whole("latent", turn_end(normed(found, self.kv_norm), of_entries))
        phases.begin("index_projections")
        index_q = phases.begin_backward("index_projections", self.indexer.queries(low, rotation))
        found = pooled(linear(hidden.detach(), self.indexer.key), self.index_gate_bias, self.first)
        index_keys = context.whole("index_keys", self.indexer.keys_from(found, of_entries))
        return (
            partial(Operands, q, torch.cat([entries, raw]), value_width=sizes.width, sinks=self.sinks),
            IndexOperands(index_q, index_keys, self.indexer.head_weights(hidden)),
        )

    def attended(self, indices: torch.Tensor) -> torch.Tensor:
        """Entries, then the window."""
        return torch.cat([indices, self.window], dim=1)

    def teacher(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Those of the entries."""
        return probabilities[:, : self.index.topk]

    def back(self, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Positions of values turned back, then groups of heads to low rank, and those to the residual stream."""
        # A copy, for attention's own backward needs its output.
        back = turn_end(out.clone(), rotations(self.context.positions, self.sizes.rope), -1)
        return x + linear(
            per_head(back.view(len(x), self.sizes.groups, -1), self.output_groups).flatten(1), self.output
        )

    def _first(self) -> torch.Tensor:
        """Which of this rank's entries have no block before them here: bool ``[n / ratio]``."""
        starts = self.context.positions[:: self.index.ratio]
        before = torch.cat([starts.new_full((1,), -1), starts[:-1]])
        return starts != before + self.index.ratio

    def _window(self) -> torch.Tensor:
        """Raw keys that each query attends to, int32 ``[n, window]``: itself and those before it in its chunk."""
        positions, width = self.context.positions, self.sizes.window
        rows = torch.arange(len(positions), device=positions.device)[:, None]
        back = torch.arange(width - 1, -1, -1, device=positions.device)
        places = rows - back
        # A row of another chunk lies elsewhere than so many tokens before.
        near = (places >= 0) & (positions[places.clamp(min=0)] == positions[:, None] - back)
        entries = self.context.length // self.index.ratio
        return (places + entries).masked_fill(~near, -1).to(torch.int32)
