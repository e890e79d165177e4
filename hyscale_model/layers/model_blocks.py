"""The blocks of a model and how often each stands in a pipeline stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hyscale_model.families import Anatomy, anatomy
from hyscale_model.families.anatomy import Attention, FeedForward
from hyscale_model.layers.attention import core_block, input_block, output_block
from hyscale_model.layers.ends import embedding_block, head_block, prediction_block
from hyscale_model.layers.feed_forward import feed_forward_block
from hyscale_model.layers.hyper import hyper_block
from hyscale_model.layers.kept import attention_kept, feed_forward_kept, layer_input_bytes
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.offload import with_offload
from hyscale_model.layers.operation import Block, Factor
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import LayerScope, Scenario


@lru_cache(maxsize=256)
def block_names(body: Anatomy) -> tuple[str, ...]:
    """Blocks of a model: three for each kind of attention, one for each feed-forward, the ends."""
    names = [f"{attention.kind}.{part}" for attention in body.attentions for part in ("input", "core", "output")]
    names += [ffn.kind for ffn in body.feed_forwards]
    names += ["hyper"] if body.streams > 1 else []
    names += ["mtp"] if body.predicted else []
    return (*names, "embedding", "head")


def model_blocks(case: Scenario, sizes: Sizes, factor: Factor, memo: Memo) -> tuple[Block, ...]:
    """The blocks in the order of ``block_names``; what systems have in common comes from ``memo``."""
    body = anatomy(case.model)
    hidden = body.hidden
    blocks: list[Block] = []
    for attention in body.attentions:
        name = attention.kind
        blocks += [
            memo.part(f"{name}.input", case, (), lambda a=attention: _input(case, sizes, a, body)),  # type: ignore[misc]
            core_block(case, sizes, attention, factor, memo),
            memo.part(f"{name}.output", case, (), lambda a=attention: output_block(case, sizes, a, hidden)),  # type: ignore[misc]
        ]
    for ffn in body.feed_forwards:
        blocks.append(
            memo.part(ffn.kind, case, ("dispatcher",), lambda f=ffn: _feed_forward(case, sizes, f, body))  # type: ignore[misc]
        )
    if body.streams > 1:
        blocks.append(memo.part("hyper", case, (), lambda: hyper_block(sizes, body)))
    if body.predicted:
        blocks.append(memo.part("mtp", case, (), lambda: prediction_block(case, sizes, body)))
    blocks += [
        memo.part("embedding", case, (), lambda: embedding_block(sizes, body)),
        memo.part("head", case, (), lambda: head_block(case, sizes, body)),
    ]
    return tuple(blocks)


def _input(case: Scenario, sizes: Sizes, attention: Attention, body: Anatomy) -> Block:
    """With the copies of what the whole attention keeps, or of the layer's input where all else is recomputed."""
    block = input_block(case, sizes, attention, body.hidden)
    if case.training.recompute == "full":
        return with_offload(block, case, layer_input_bytes(case, sizes, body))
    return with_offload(block, case, attention_kept(case, sizes, attention, body).stored)


def _feed_forward(case: Scenario, sizes: Sizes, ffn: FeedForward, body: Anatomy) -> Block:
    block = feed_forward_block(case, sizes, ffn, body.hidden)
    if case.training.recompute == "full":
        return block
    return with_offload(block, case, feed_forward_kept(case, sizes, ffn, body).stored)


@lru_cache(maxsize=1024)
def block_counts(body: Anatomy, stage_layers: tuple[int, ...]) -> np.ndarray:
    """Blocks of each virtual stage, shape (stages, len(block_names)); the last one predicts further tokens.

    Args:
        body: the model.
        stage_layers: layers of each virtual stage in pipeline order; sums to the layers of the model.
    """
    names = block_names(body)
    of_layer = np.zeros((len(body.layers) + body.predicted_layers, len(names)))
    for row, (attention, ffn) in enumerate((*body.layers, *body.predicted)):
        for name in (*(f"{attention}.{part}" for part in ("input", "core", "output")), ffn):
            of_layer[row, names.index(name)] = 1
    if body.streams > 1:
        of_layer[:, names.index("hyper")] = 1
    ends = np.cumsum(stage_layers)
    counts = np.stack(
        [of_layer[end - layers : end].sum(axis=0) for end, layers in zip(ends, stage_layers, strict=True)]
    )
    if body.predicted:
        counts[-1] += of_layer[len(body.layers) :].sum(axis=0)
        counts[-1, names.index("mtp")] = body.predicted_layers
    counts[0, names.index("embedding")] = 1
    counts[-1, names.index("head")] = 1
    counts.flags.writeable = False
    return counts


def scope_counts(body: Anatomy, scope: LayerScope) -> np.ndarray:
    """One layer of a kind as a stage of its own, shape (1, len(block_names)): the parts that are included.

    Communication is part of the blocks; leaving it out is the step's affair.
    """
    names = block_names(body)
    included: list[str] = []
    if "attention" in scope.include:
        included += [f"{scope.layer}.{part}" for part in ("input", "core", "output")]
    if "hyper_connections" in scope.include and body.streams > 1:
        included.append("hyper")
    if "ffn" in scope.include:
        included += {ffn for attention, ffn in body.layers if attention == scope.layer}
    counts = np.zeros((1, len(names)))
    counts[0, [names.index(name) for name in included]] = 1
    return counts
