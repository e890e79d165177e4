"""The transformer: blocks of a sparse-attention layer and a gated feed-forward, each recomputed as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy, embedding, linear, silu

from hyscale_calibration.layers.context import WholeSequence
from hyscale_calibration.layers.dsa import DsaLayer
from hyscale_calibration.layers.layer import Options
from hyscale_calibration.layers.parts import normed, ones, weight
from hyscale_calibration.layers.recompute import recomputed
from hyscale_calibration.layers.sizes import DsaSizes
from hyscale_calibration.layers.systems import Strategy
from hyscale_calibration.training.fingerprint import fingerprint
from hyscale_calibration.training.task import NO_ANSWER, Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Dimensions.

    Attributes:
        intermediate: width of a feed-forward; layers: blocks; vocabulary: rows of the embedding and of the head.
    """

    attention: DsaSizes
    intermediate: int
    layers: int
    vocabulary: int

    @classmethod
    def of(cls, values: dict[str, Any]) -> Sizes:
        """From the fields of a configuration in Hugging Face's names."""
        return cls(
            attention=DsaSizes.of(values),
            intermediate=values["intermediate_size"],
            layers=values["num_hidden_layers"],
            vocabulary=values["vocab_size"],
        )


class Block(torch.nn.Module):
    """Attention, then a feed-forward, each added to the residual stream.

    Attributes:
        seen: fingerprints of the selections of the last forward and of its recomputation.
    """

    def __init__(self, attention: DsaLayer, intermediate: int, device: Any, generator: torch.Generator) -> None:
        super().__init__()
        hidden = attention.sizes.hidden
        self.attention, self.norm = attention, ones(hidden, device)
        self.widen = weight(2 * intermediate, hidden, device=device, generator=generator)
        self.narrow = weight(hidden, intermediate, device=device, generator=generator)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states ``[n, hidden]`` and the index loss."""
        x, loss = self.attention(x)
        if self.attention.last is not None:
            self.seen.append(fingerprint(self.attention.last[0]))
        gate, value = linear(normed(x, self.norm), self.widen).chunk(2, dim=-1)
        return x + linear(silu(gate) * value, self.narrow), loss


class Transformer(torch.nn.Module):
    """A language model on one device that has whole sequences.

    Args:
        sizes: dimensions; tokens: of a sequence; system: how it selects.
        options: of its layers.
        index_coefficient: what the index loss is multiplied by.
        seed: of the weights, which are those of every system.
    """

    def __init__(
        self,
        sizes: Sizes,
        tokens: int,
        system: Strategy,
        *,
        options: Options,
        index_coefficient: float,
        device: str,
        seed: int,
    ) -> None:
        super().__init__()
        draw = torch.Generator(device).manual_seed(seed)
        context = WholeSequence(tokens, device)
        hidden = sizes.attention.hidden
        self.keeps, self.index_coefficient = system.keeps, index_coefficient
        # As large as what attention adds.
        rows = torch.randn(sizes.vocabulary, hidden, device=device, generator=draw)
        self.embedding = torch.nn.Parameter(rows.bfloat16())
        self.blocks = torch.nn.ModuleList(
            Block(
                DsaLayer(
                    sizes.attention,
                    system,
                    context,
                    options._replace(name=f"layer {number}"),
                    device=device,
                    generator=draw,
                ),
                sizes.intermediate,
                device,
                draw,
            )
            for number in range(sizes.layers)
        )
        self.norm = ones(hidden, device)
        self.head = weight(sizes.vocabulary, hidden, device=device, generator=draw)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The mean cross-entropy of the answers, FP32; its backward brings the index losses along."""
        x = embedding(batch.parts, self.embedding).sum(1)
        for block in self.blocks:
            block.attention.spans = batch.spans
            x = recomputed(block, x, keeps=self.keeps, coefficient=self.index_coefficient)
        logits = linear(normed(x, self.norm), self.head)
        return cross_entropy(logits.float(), batch.answers, ignore_index=NO_ANSWER)
