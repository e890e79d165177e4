"""Stages of a pipeline: which layers each virtual stage holds, and groups of points with one structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyscale_model.layers.model_blocks import block_counts
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.schedule import split_layers


@dataclass(frozen=True, slots=True)
class Structure:
    """Points that share their pipeline: chunks, micro-batches and what each virtual stage holds.

    Attributes:
        columns: flat indices of the points.
        counts: blocks of each virtual stage, shape (vpp pp, blocks); virtual stage s lies on rank s mod pp.
    """

    columns: np.ndarray | slice
    pp: int
    vpp: int
    micro_batches: int
    counts: np.ndarray

    @property
    def rank_counts(self) -> np.ndarray:
        """Blocks of each pipeline rank, shape (pp, blocks)."""
        return self.counts.reshape(self.vpp, self.pp, -1).sum(axis=0)


def virtual_stage_layers(case: Scenario, vpp: int) -> tuple[int, ...]:
    """Layers of each virtual stage: as given (per virtual stage, or per rank and then cut evenly), or split evenly."""
    layout = case.layout
    given = layout.stage_layers
    if given is None:
        return split_layers(case.model.num_hidden_layers, layout.pp * vpp)
    if len(given) == layout.pp * vpp:
        return given
    cut = [split_layers(layers, vpp) for layers in given]
    return tuple(cut[stage % layout.pp][stage // layout.pp] for stage in range(layout.pp * vpp))


def structures(cases: Sequence[Scenario], sizes: Sequence[Sizes], shape: tuple[int, int]) -> list[Structure]:
    """Group the points of several cases of equal pipeline depth by structure.

    The flat axis runs over (case, point, draw); ``shape`` is (points, draws) of each case.
    """
    pp = int(cases[0].layout.pp)
    tables: dict[tuple[Any, ...], np.ndarray] = {}
    keys = np.empty((len(cases), *shape), dtype=np.int64)
    kinds: dict[tuple[Any, ...], int] = {}
    for index, (case, size) in enumerate(zip(cases, sizes, strict=True)):
        kind = kinds.setdefault((case.model.name, case.layout.stage_layers), len(kinds))
        keys[index] = (np.asarray(case.layout.vpp) * 2**32 + np.asarray(size.micro_batches)) * 16 + kind
    flat = keys.ravel()
    found = []
    for key in np.unique(flat):
        pair, kind = divmod(int(key), 16)
        vpp, micro_batches = divmod(pair, 2**32)
        case = next(c for c in cases if kinds[c.model.name, c.layout.stage_layers] == kind)
        table = tables.setdefault((kind, vpp), block_counts(case.model, virtual_stage_layers(case, vpp)))
        columns = np.flatnonzero(flat == key)
        found.append(Structure(slice(None) if columns.size == flat.size else columns, pp, vpp, micro_batches, table))
    return found
