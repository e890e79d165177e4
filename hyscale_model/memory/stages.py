"""Memory of each pipeline stage: what is always there, and what comes on top at each moment of a step.

Moments: forward and backward pass of each kind of attention layer at its selection and at its core, of the experts,
the output head, the optimizer step. The peak is the largest sum over moments and stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.families import anatomy
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.ends import deepep_bytes, workspace_bytes
from hyscale_model.memory.holdings import Stages
from hyscale_model.memory.moments import SCALED_KINDS, Moments
from hyscale_model.memory.sharding import host_state_bytes, static_bytes
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import Held, block_parameters
from hyscale_model.step.pipeline import Structure

KINDS = tuple(MEMORY_KINDS)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of every stage at every moment.

    Attributes:
        moments: names of the moments.
        totals: bytes, shape (stages, moments, points, draws).
        always: bytes by kind that are there all the time, broadcastable to (stages, points, draws).
        at: bytes by (moment, kind) that come on top, likewise.
        stored: bytes of activations that wait for their backward when most micro-batches are in flight, likewise.
        allocator: bytes reserved per byte in use.
        on_host: bytes of optimizer state and activations in host memory, likewise.
    """

    moments: tuple[str, ...]
    totals: np.ndarray
    always: dict[str, Number]
    at: dict[tuple[str, str], Number]
    stored: Number
    allocator: Number
    on_host: Number

    def at_point(self, point: int) -> StageMemory:
        """Of one of the points alone."""

        def one(value: Number) -> Number:
            varies = isinstance(value, np.ndarray) and value.ndim > 1 and value.shape[-2] > 1
            return value[..., point : point + 1, :] if varies else value

        return replace(
            self,
            totals=one(self.totals),
            always={kind: one(value) for kind, value in self.always.items()},
            at={key: one(value) for key, value in self.at.items()},
            stored=one(self.stored),
            allocator=one(self.allocator),
            on_host=one(self.on_host),
        )

    def peak(self) -> np.ndarray:
        """Largest total of any stage and moment, shape (points, draws)."""
        peak: np.ndarray = self.totals.max(axis=(0, 1))
        return peak

    def nominal_kinds(self) -> np.ndarray:
        """Bytes by kind at the nominal point, shape (stages, moments, kinds); they sum to ``totals`` there."""
        kinds = np.zeros((self.totals.shape[0], len(self.moments), len(KINDS)))
        for kind, value in self.always.items():
            kinds[:, :, KINDS.index(kind)] = _nominal(value)[:, None]
        for (moment, kind), value in self.at.items():
            kinds[:, self.moments.index(moment), KINDS.index(kind)] = _nominal(value)
        return kinds

    def nominal_allocated(self, kinds: np.ndarray) -> np.ndarray:
        """What the allocator has handed out at the nominal point (``torch.cuda.max_memory_allocated``).

        Args:
            kinds: as ``nominal_kinds`` gives them.

        Returns:
            Bytes of shape (stages, moments): without the framework's own, and as used instead of as reserved.
        """
        weights = np.ones(len(KINDS))
        weights[KINDS.index("framework")] = 0.0
        weights[[KINDS.index(kind) for kind in SCALED_KINDS]] = 1 / _nominal(self.allocator)[0]
        allocated: np.ndarray = kinds @ weights
        return allocated

    def nominal_on_host(self) -> float:
        """``on_host`` of the rank that has most of it, at the nominal point."""
        return float(_nominal(self.on_host).max())

    def nominal_stored(self) -> np.ndarray:
        """``stored`` at the nominal point, shape (stages,)."""
        return np.broadcast_to(_nominal(self.stored), self.totals.shape[:1])


def stages_of(case: Scenario, pipeline: Sequence[Structure], shape: tuple[int, int]) -> Stages:
    """Collect what ranks hold over the structures of a batch of ``shape`` (points, draws).

    Points of one structure share what they hold, as arrays of one point and draw.
    """
    pp, names = pipeline[0].pp, block_names(anatomy(case.model))
    if len(pipeline) == 1:
        (group,) = pipeline
        runs = {name: group.rank_counts[:, row, None, None] for row, name in enumerate(names)}
        held = Held.of(case, group.rank_counts)
        return Stages(held=held, runs=runs, in_flight=group.in_flight[:, None, None])
    counts = np.empty((pp, len(names), shape[0] * shape[1]))
    flying = np.empty((pp, counts.shape[-1]))
    for group in pipeline:
        counts[:, :, group.columns] = group.rank_counts[:, :, None]
        flying[:, group.columns] = group.in_flight[:, None]
    by_point = counts.reshape(pp, len(names), *shape)
    parameters = [np.broadcast_to(part, (len(names), *shape)) for part in block_parameters(case)]
    ends = [names.index("embedding"), names.index("head")]
    whole = [np.einsum("rbpd,bpd->rpd", by_point, part) for part in parameters]
    outside = [np.einsum("rbpd,bpd->rpd", by_point[:, ends], part[ends]) for part in parameters]
    return Stages(
        held=Held(*whole, *outside),
        runs={name: by_point[:, row] for row, name in enumerate(names)},
        in_flight=flying.reshape(pp, *shape),
    )


def stage_memory(
    case: Scenario, sizes: Sizes, stages: Stages, shape: tuple[int, int], framework: Number, allocator: Number
) -> StageMemory:
    """Memory of every stage and moment.

    Args:
        case: one system, overrides applied.
        sizes: its sizes.
        stages: what its ranks hold.
        shape: (points, draws) of the batch.
        framework: bytes outside the allocator.
        allocator: bytes reserved per byte of activations in use.
    """
    ranks = stages.in_flight.shape[0]
    body = anatomy(case.model)
    workspaces = workspace_bytes(case, sizes, body, stages.runs)
    framework = framework + deepep_bytes(case, body)
    always = static_bytes(case, sizes, stages.held) | {"workspaces": workspaces, "framework": framework}
    found = Moments(case, sizes, stages, allocator)
    fixed = sum(always.values())
    sums: dict[str, Number] = {}
    for (moment, _), value in found.at.items():
        sums[moment] = sums.get(moment, fixed) + value
    sums["optimizer step"] = fixed
    moments = tuple(sums)
    totals = np.empty((ranks, len(moments), *shape))
    for index, total in enumerate(sums.values()):
        totals[:, index] = total
    on_host = host_state_bytes(case, sizes, stages.held) + found.on_host
    return StageMemory(moments, totals, always, found.at, found.stored, allocator, on_host)


def _nominal(value: Number) -> np.ndarray:
    """The nominal column of a number that broadcasts to (stages, points, draws), shape (stages or 1,)."""
    array = np.asarray(value)
    column: np.ndarray = array[:, 0, 0] if array.ndim == 3 else array.reshape(-1)[:1]
    return column
