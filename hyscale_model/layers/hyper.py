"""Hyper-connections: several residual streams, mixed before and after each of a layer's two blocks.

Floors per token, hidden h and s streams, BF16: before a block s h values are read and h written; after it s h and h are
read and s h written. The mixing weights are a few values a token (DeepSeek-V4 report, section on mHC).
"""

from __future__ import annotations

from hyscale_model.families.anatomy import Anatomy
from hyscale_model.layers.operation import Block, Operation, Task
from hyscale_model.layers.sizes import BF16_BYTES, Sizes

BLOCKS_PER_LAYER = 2


def hyper_block(sizes: Sizes, anatomy: Anatomy) -> Block:
    """Both mixings of a layer; the backward reads and writes gradients beside the values."""
    streams = anatomy.streams
    moved = BF16_BYTES * BLOCKS_PER_LAYER * sizes.queries * anatomy.hidden * (3 * streams + 2)
    forward, backward = (
        Task(
            name=f"hyper_connections.{name}",
            term="hyper_connections",
            work=Operation(family="hyper_connections", sm_work=factor * moved, hbm_bytes=factor * moved, launches=8),
        )
        for name, factor in (("forward", 1.0), ("backward", 2.0))
    )
    return Block(name="hyper", forward=(forward,), recompute=(forward,), backward=(backward,))
