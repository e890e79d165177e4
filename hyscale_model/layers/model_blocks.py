"""The blocks of a model and how often each stands in a pipeline stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hyscale_model.layers.attention import core_block, input_block, output_block
from hyscale_model.layers.ends import embedding_block, head_block
from hyscale_model.layers.feed_forward import dense_block, moe_block
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.operation import Block, Factor
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import Scenario

BLOCKS = ("attention_input", "attention_core", "attention_output", "dense_ffn", "moe", "embedding", "head")


def model_blocks(case: Scenario, sizes: Sizes, factor: Factor, memo: Memo) -> tuple[Block, ...]:
    """One block of each kind, in the order of ``BLOCKS``; what systems have in common comes from ``memo``."""
    return (
        memo.part("attention input", case, (), lambda: input_block(case, sizes)),
        core_block(case, sizes, factor, memo),
        memo.part("attention output", case, (), lambda: output_block(case, sizes)),
        memo.part("dense", case, (), lambda: dense_block(case, sizes)),
        memo.part("moe", case, ("dispatcher",), lambda: moe_block(case, sizes)),
        memo.part("embedding", case, (), lambda: embedding_block(case, sizes)),
        memo.part("head", case, (), lambda: head_block(case, sizes)),
    )


@lru_cache(maxsize=1024)
def block_counts(layers: int, dense_layers: int, stage_layers: tuple[int, ...]) -> np.ndarray:
    """Blocks of each virtual stage, shape (stages, len(BLOCKS)).

    Args:
        layers: layers of the model; ``stage_layers`` sums to it.
        dense_layers: how many of them, the first ones, have a dense feed-forward.
        stage_layers: layers of each virtual stage in pipeline order.
    """
    ends = np.cumsum(stage_layers)
    dense = np.diff(np.minimum(ends, dense_layers), prepend=0)
    counts = np.zeros((len(stage_layers), len(BLOCKS)))
    counts[:, : BLOCKS.index("dense_ffn")] = np.array(stage_layers)[:, None]
    counts[:, BLOCKS.index("dense_ffn")] = dense
    counts[:, BLOCKS.index("moe")] = stage_layers - dense
    counts[0, BLOCKS.index("embedding")] = 1
    counts[-1, BLOCKS.index("head")] = 1
    counts.flags.writeable = False
    return counts
