"""Stages of a pipeline: which layers each virtual stage holds, and groups of points with one structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hyscale_model.layers.model_blocks import block_counts
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.schedule import split_layers


@dataclass(frozen=True, slots=True)
class Structure:
    """Points that share pipeline depth, chunks and micro-batches.

    Attributes:
        columns: flat indices of the points; None: all of them.
        counts: blocks of each virtual stage, shape (vpp pp, blocks); virtual stage s lies on rank s mod pp.
    """

    columns: np.ndarray | None
    pp: int
    vpp: int
    micro_batches: int
    counts: np.ndarray

    @property
    def rank_counts(self) -> np.ndarray:
        """Blocks of each pipeline rank, shape (pp, blocks)."""
        return self.counts.reshape(self.vpp, self.pp, -1).sum(axis=0)

    def take(self, values: np.ndarray) -> np.ndarray:
        """The group's part of flat values."""
        return values if self.columns is None else values[..., self.columns]


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


def structures(case: Scenario, sizes: Sizes, shape: tuple[int, int]) -> Iterator[Structure]:
    """Group the points of a batch of ``shape`` (points, draws) by pipeline structure."""
    pp = int(case.layout.pp)
    vpp, micro_batches = case.layout.vpp, sizes.micro_batches
    if not isinstance(vpp, np.ndarray) and not isinstance(micro_batches, np.ndarray):
        yield _structure(case, pp, int(vpp), int(micro_batches), None)
        return
    keys = np.broadcast_to(np.asarray(vpp) * 2**32 + np.asarray(micro_batches), shape).ravel().astype(np.int64)
    for key in np.unique(keys):
        yield _structure(case, pp, int(key >> 32), int(key & (2**32 - 1)), np.flatnonzero(keys == key))


def _structure(case: Scenario, pp: int, vpp: int, micro_batches: int, columns: np.ndarray | None) -> Structure:
    return Structure(columns, pp, vpp, micro_batches, block_counts(case.model, virtual_stage_layers(case, vpp)))
