"""Which layers each virtual stage of a pipeline holds; also where layers share an index.

Virtual stages are numbered in the order in which a token passes them; virtual stage s lies on pipeline rank s mod pp.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def even_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage: even, the remainder in the middle, as the ends hold embedding and head."""
    base, extra = divmod(layers, stages)
    first = (stages - extra) // 2
    return tuple(base + (first <= index < first + extra) for index in range(stages))


def selecting_layers(layers: int, index_topk_freq: int, index_skip_topk_offset: int) -> tuple[int, ...]:
    """The layers, counted from 1, that compute an index; each of the others reuses that of the last one before it.

    Layer i selects where i <= offset or (i - offset) mod freq = 0. The first layer always selects, having nothing to
    reuse, so an offset of 0 counts as 1 (Megatron-LM megatron/core/transformer/experimental_attention_variant/dsa.py).
    """
    offset = max(index_skip_topk_offset, 1)
    return tuple(i for i in range(1, layers + 1) if i <= offset or (i - offset) % index_topk_freq == 0)


@lru_cache(maxsize=256)
def sharing_split(layers: int, stages: int, selecting_layers: tuple[int, ...]) -> tuple[int, ...]:
    """Layers of each stage, every stage beginning on a layer of ``selecting_layers`` (counted from 1, ascending).

    Of all such splits the one whose largest stage is smallest, and of those the one with the least sum of squares.

    Raises:
        ValueError: there are fewer selecting layers than stages, or the first layer is none of them.
    """
    if not selecting_layers or selecting_layers[0] != 1 or len(selecting_layers) < stages:
        raise ValueError(f"{stages} stages cannot each begin on one of {len(selecting_layers)} selecting layers")
    starts = np.array([layer - 1 for layer in selecting_layers])
    limit = _smallest_maximum(layers, stages, starts)
    # sizes[a, b]: layers of a stage from start a up to start b; the last column is the end of the model.
    sizes = np.append(starts, layers)[None, :] - starts[:, None]
    steps = np.where((sizes > 0) & (sizes <= limit), sizes.astype(float) ** 2, np.inf)
    cost = steps[:, -1]
    chosen = []
    for _ in range(stages - 1):
        total = steps[:, :-1] + cost[None, :]
        chosen.append(total.argmin(axis=1))
        cost = total.min(axis=1)
    bounds = [0]
    for following in reversed(chosen):
        bounds.append(int(following[bounds[-1]]))
    ends = [*(int(starts[index]) for index in bounds[1:]), layers]
    return tuple(end - int(starts[index]) for index, end in zip(bounds, ends, strict=True))


def _smallest_maximum(layers: int, stages: int, starts: np.ndarray) -> int:
    """The least size of the largest stage: by bisection, each size tried by filling stages one after another."""
    low, high = -(-layers // stages), layers
    while low < high:
        middle = (low + high) // 2
        if _stages_needed(layers, middle, starts) <= stages:
            high = middle
        else:
            low = middle + 1
    return low


def _stages_needed(layers: int, limit: int, starts: np.ndarray) -> int:
    """Stages of at most ``limit`` layers that hold the model; more than there are starts where none do."""
    count, at = 0, 0
    while at < layers:
        count += 1
        if at + limit >= layers:
            break
        following = int(starts[np.searchsorted(starts, at + limit, side="right") - 1])
        if following <= at:
            return len(starts) + 1
        at = following
    return count


def virtual_stage_layers(
    layers: int,
    pp: int,
    vpp: int,
    stage_layers: Sequence[int] | None = None,
    selecting_layers: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Layers of each of the pp * vpp virtual stages.

    - ``stage_layers`` with pp * vpp entries are these.
    - ``stage_layers`` with pp entries are the layers of each rank, cut evenly into its vpp virtual stages.
    - Without them, layers are spread evenly, the remainder in the middle. Where only ``selecting_layers`` compute an
      index and such a split would begin a stage on another layer, it is ``sharing_split`` instead.

    Raises:
        ValueError: no split begins every stage on a selecting layer.
    """
    stages = pp * vpp
    if stage_layers is None:
        split = even_split(layers, stages)
        if selecting_layers is None or begins_without_index(split, selecting_layers) is None:
            return split
        return sharing_split(layers, stages, tuple(selecting_layers))
    if len(stage_layers) == stages:
        return tuple(stage_layers)
    cut = [even_split(count, vpp) for count in stage_layers]
    return tuple(cut[stage % pp][stage // pp] for stage in range(stages))


def begins_without_index(split: Sequence[int], selecting_layers: Sequence[int]) -> tuple[int, int] | None:
    """The first virtual stage (from 0) that begins on a layer (from 1) that computes no index; None if none does."""
    selecting = set(selecting_layers)
    layer = 1
    for stage, count in enumerate(split):
        if layer not in selecting:
            return stage, layer
        layer += count
    return None
