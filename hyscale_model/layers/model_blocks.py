"""The blocks of a model and how often each stands in a pipeline stage."""

from __future__ import annotations

import numpy as np

from hyscale_model.layers.attention import attention_block
from hyscale_model.layers.ends import embedding_block, head_block
from hyscale_model.layers.feed_forward import dense_block, moe_block
from hyscale_model.layers.operation import Block, Factor
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import Model, Scenario

BLOCKS = ("attention", "dense_ffn", "moe", "embedding", "head")


def model_blocks(
    case: Scenario, sizes: Sizes, factor: Factor, known: tuple[Block, ...] | None = None
) -> tuple[Block, ...]:
    """One block of each kind, in the order of ``BLOCKS``.

    ``known``: blocks of a system that differs in its attention block at most; the others are taken from it.
    """
    attention = attention_block(case, sizes, factor)
    if known is not None:
        return (attention, *known[1:])
    return (
        attention,
        dense_block(case, sizes),
        moe_block(case, sizes),
        embedding_block(case, sizes),
        head_block(case, sizes),
    )


def block_counts(model: Model, stage_layers: tuple[int, ...]) -> np.ndarray:
    """Blocks of each virtual stage, shape (stages, len(BLOCKS)), from the layers of each in pipeline order."""
    counts = np.zeros((len(stage_layers), len(BLOCKS)))
    first = 0
    for stage, layers in enumerate(stage_layers):
        dense = max(0, min(model.first_k_dense_replace - first, layers))
        counts[stage, :3] = layers, dense, layers - dense
        first += layers
    counts[0, BLOCKS.index("embedding")] = 1
    counts[-1, BLOCKS.index("head")] = 1
    return counts
