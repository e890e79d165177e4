"""Stages of a pipeline: which layers each virtual stage holds, and groups of points with one structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hyscale_model.families import Anatomy, anatomy
from hyscale_model.layers.model_blocks import block_counts, scope_counts
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import LayerScope, Scenario
from hyscale_model.scenario.stages import virtual_stage_layers
from hyscale_model.step.orders import dual_order, most_in_flight


@dataclass(frozen=True, slots=True)
class Structure:
    """Points that share their pipeline: chunks, micro-batches and what each virtual stage holds.

    Attributes:
        columns: flat indices of the points.
        counts: blocks of each virtual stage, shape (vpp pp, blocks); virtual stage s lies on rank s mod pp.
        mirrored: rank r also holds stage pp - 1 - r, for micro-batches that come from the other end (DualPipe).
    """

    columns: np.ndarray
    pp: int
    vpp: int
    micro_batches: int
    counts: np.ndarray
    mirrored: bool = False

    @property
    def rank_counts(self) -> np.ndarray:
        """Blocks of each pipeline rank, shape (pp, blocks)."""
        if self.mirrored:
            return self.counts + self.counts[::-1]
        return self.counts.reshape(self.vpp, self.pp, -1).sum(axis=0)

    @property
    def passes(self) -> float:
        """How often a rank runs each of its blocks in a step."""
        return self.micro_batches / 2 if self.mirrored else self.micro_batches

    @property
    def in_flight(self) -> np.ndarray:
        """Micro-batches whose activations a rank holds at its fullest, in units of all its layers, shape (pp,)."""
        pp, vpp = self.pp, self.vpp
        if self.mirrored:
            return np.array([most_in_flight(dual_order(rank, pp, self.micro_batches)) / 2 for rank in range(pp)])
        behind = pp - np.arange(pp)
        if vpp == 1:
            return np.minimum(self.micro_batches, behind).astype(float)
        return np.minimum(self.micro_batches * vpp, 2 * (behind - 1) + (vpp - 1) * pp + 1) / vpp


@lru_cache(maxsize=256)
def _stage_layers(body: Anatomy, pp: int, vpp: int, stated: tuple[int, ...] | None) -> tuple[int, ...]:
    """Layers of each virtual stage; where layers share a selection, every stage begins on one that selects."""
    selecting = tuple(number for number, (kind, _) in enumerate(body.layers, start=1) if kind != "dsa_shared")
    shared = selecting if len(selecting) < len(body.layers) else None
    return virtual_stage_layers(len(body.layers), pp, vpp, stated, shared)


def structures(case: Scenario, sizes: Sizes, shape: tuple[int, int]) -> list[Structure]:
    """Group the points of a batch of ``shape`` (points, draws) by pipeline structure, over a flat axis.

    A scope of one layer is one stage that holds it, and one micro-batch.
    """
    if isinstance(case.scope, LayerScope):
        layer = scope_counts(anatomy(case.model), case.scope)
        return [Structure(np.arange(shape[0] * shape[1]), 1, 1, 1, layer)]
    pp = int(case.layout.pp)
    vpp, micro_batches = case.layout.vpp, sizes.micro_batches
    if not isinstance(vpp, np.ndarray) and not isinstance(micro_batches, np.ndarray):
        return [_structure(case, pp, int(vpp), int(micro_batches), np.arange(shape[0] * shape[1]))]
    keys = np.broadcast_to(np.asarray(vpp) * 2**32 + np.asarray(micro_batches), shape).ravel().astype(np.int64)
    unique, inverse = np.unique(keys, return_inverse=True)
    return [
        _structure(case, pp, key // 2**32, key % 2**32, np.flatnonzero(inverse == index))
        for index, key in enumerate(unique.tolist())
    ]


def _structure(case: Scenario, pp: int, vpp: int, micro_batches: int, columns: np.ndarray) -> Structure:
    body, stated = anatomy(case.model), case.layout.stage_layers
    counts = block_counts(body, _stage_layers(body, pp, vpp, None if stated is None else tuple(stated)))
    return Structure(columns, pp, vpp, micro_batches, counts, case.layout.schedule == "dualpipe" and pp > 1)


def join(parts: Sequence[Sequence[Structure]], length: int) -> list[Structure]:
    """Structures over several batches of equal ``length`` laid one after another."""
    found: dict[tuple[int, int, int, bool, bytes], list[np.ndarray]] = {}
    kinds: dict[tuple[int, int, int, bool, bytes], Structure] = {}
    for index, part in enumerate(parts):
        for item in part:
            key = (item.pp, item.vpp, item.micro_batches, item.mirrored, item.counts.tobytes())
            kinds.setdefault(key, item)
            found.setdefault(key, []).append(item.columns + index * length)
    return [replace(kinds[key], columns=np.concatenate(columns)) for key, columns in found.items()]
