"""Memory of each pipeline stage: what is always there, and what comes on top at each moment of a step.

Moments: forward pass at the selection, at the experts, at the output head; backward pass of a layer at the
selection (recomputed), at the attention core and at the experts; the optimizer step. The peak is the largest
sum over moments and stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number, equals
from hyscale_model.layers.model_blocks import BLOCKS
from hyscale_model.layers.selection import KEEPS_INDICES
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.memory.layer import LayerBytes, layer_bytes
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import ADAM_STATES, block_parameters, optimizer_shards
from hyscale_model.step.pipeline import Structure

MOMENTS = (
    "forward, selection",
    "forward, experts",
    "forward, output head",
    "backward, selection",
    "backward, attention",
    "backward, experts",
    "optimizer step",
)
KINDS = tuple(MEMORY_KINDS)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of every stage at every moment of ``MOMENTS``.

    Attributes:
        totals: bytes, shape (stages, moments, points, draws).
        always: bytes by kind that are there all the time, broadcastable to (stages, points, draws).
        at: bytes by (moment, kind) that come on top, likewise.
    """

    totals: np.ndarray
    always: dict[str, Number]
    at: dict[tuple[str, str], Number]

    def peak(self) -> np.ndarray:
        """Largest total of any stage and moment, shape (points, draws)."""
        peak: np.ndarray = self.totals.max(axis=(0, 1))
        return peak

    def nominal_kinds(self) -> np.ndarray:
        """Bytes by kind at the nominal point, shape (stages, moments, kinds); they sum to ``totals`` there."""
        kinds = np.zeros((self.totals.shape[0], len(MOMENTS), len(KINDS)))
        for kind, value in self.always.items():
            kinds[:, :, KINDS.index(kind)] = _nominal(value)[:, None]
        for (moment, kind), value in self.at.items():
            kinds[:, MOMENTS.index(moment), KINDS.index(kind)] = _nominal(value)
        return kinds


@dataclass(frozen=True, slots=True)
class Stages:
    """What each pipeline rank holds, for all points; arrays have shape (ranks, points, draws).

    Attributes:
        held: parameters on the GPU, (replicated over context ranks, experts).
        layers_in_flight: layers x micro-batches whose activations are held at the peak.
        moe: whether the rank has expert layers; ``last``: whether it has the output head.
    """

    held: tuple[np.ndarray, np.ndarray]
    layers_in_flight: np.ndarray
    moe: np.ndarray
    last: np.ndarray


def in_flight(rank: int, pp: int, vpp: int, micro_batches: int) -> float:
    """Micro-batches whose activations a rank holds at its peak, in units of all its layers."""
    if vpp == 1:
        return float(min(micro_batches, pp - rank))
    chunks = min(micro_batches * vpp, 2 * (pp - rank - 1) + (vpp - 1) * pp + 1)
    return chunks / vpp


def stages_of(case: Scenario, pipeline: Sequence[Structure], shape: tuple[int, int]) -> Stages:
    """Collect what ranks hold over the structures of a batch of ``shape`` (points, draws)."""
    pp = int(case.layout.pp)
    counts = np.empty((pp, len(BLOCKS), shape[0] * shape[1]))
    layers = np.empty((pp, counts.shape[-1]))
    for group in pipeline:
        counts[:, :, group.columns] = group.rank_counts[:, :, None]
        flying = [in_flight(rank, pp, group.vpp, group.micro_batches) for rank in range(pp)]
        layers[:, group.columns] = (group.rank_counts[:, BLOCKS.index("attention_core")] * flying)[:, None]
    by_point = counts.reshape(pp, len(BLOCKS), *shape)
    held = [
        np.einsum("rbpd,bpd->rpd", by_point, np.broadcast_to(part, (len(BLOCKS), *shape)))
        for part in block_parameters(case)
    ]
    return Stages(
        held=(held[0], held[1]),
        layers_in_flight=layers.reshape(pp, *shape),
        moe=by_point[:, BLOCKS.index("moe")] > 0,
        last=by_point[:, BLOCKS.index("head")] > 0,
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
    ranks = stages.moe.shape[0]
    shared, experts = stages.held
    shards = optimizer_shards(case, sizes)
    gradient = BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")
    always = {
        "parameters": BF16_BYTES * (shared + experts),
        "gradients": (shared + experts) * gradient,
        "optimizer": FP32_BYTES * ADAM_STATES * (shared / shards[0] + experts / shards[1]),
        "framework": framework,
    }
    at = _moments(case, layer_bytes(case, sizes), stages, allocator)
    fixed = sum(always.values())
    totals = np.empty((ranks, len(MOMENTS), *shape))
    for index, moment in enumerate(MOMENTS):
        totals[:, index] = sum((value for (when, _), value in at.items() if when == moment), start=fixed)
    return StageMemory(totals, always, at)


def _nominal(value: Number) -> np.ndarray:
    """The nominal column of a number that broadcasts to (stages, points, draws), shape (stages or 1,)."""
    array = np.asarray(value)
    column: np.ndarray = array[:, 0, 0] if array.ndim == 3 else array.reshape(-1)[:1]
    return column


def _moments(case: Scenario, of: LayerBytes, stages: Stages, allocator: Number) -> dict[tuple[str, str], Number]:
    """Bytes by (moment, kind) beside what is always there."""
    full = case.training.recompute == "full"
    policy = case.systems[0].recompute_selection
    layers = stages.layers_in_flight
    activations = layers * (of.kept if full else of.kept + of.attention + stages.moe * of.experts)
    if not full or policy == "skip":
        activations = activations + layers * of.loss
    keeps = (policy in KEEPS_INDICES or not full) and case.systems[0].index_storage == "device"
    indices = allocator * (layers * of.indices if keeps else of.indices)
    # Kept score tables fill the memory between passes; otherwise there is one table, while a layer selects.
    keeps_tables = full and policy == "keep_scores"
    kept_tables: Number = layers * of.kept_table if keeps_tables else 0.0
    table = kept_tables if keeps_tables else of.table
    at: dict[tuple[str, str], Number] = {}
    for moment in MOMENTS[:-1]:
        at[moment, "activations"] = allocator * activations
        at[moment, "selection_indices"] = indices
        at[moment, "score_table"] = kept_tables
    block = allocator * (activations + of.attention)
    gathered = of.gathered if full else layers * of.gathered
    for phase in ("forward", "backward"):
        selection = f"{phase}, selection"
        if phase == "forward" or (full and policy in ("rerun", "keep_indices")):
            at[selection, "score_table"] = table
            at[selection, "candidates"] = of.candidates
            at[selection, "activations"] = block + of.topk_outputs
        else:
            at[selection, "activations"] = block
        at[selection, "gathered_kv"] = gathered
    # Without recomputation every layer in flight keeps what it gathered.
    for moment in ("forward, experts", "forward, output head"):
        at[moment, "gathered_kv"] = 0.0 if full else gathered
    at["forward, experts", "expert_buffers"] = allocator * stages.moe * of.experts
    at["forward, output head", "logits"] = stages.last * of.logits
    # In the backward pass of a layer both its blocks' activations are there, and gradients of what is gathered.
    at["backward, experts", "expert_buffers"] = 2 * allocator * stages.moe * of.experts
    at["backward, experts", "activations"] = block
    at["backward, experts", "gathered_kv"] = gathered
    at["backward, attention", "activations"] = allocator * (activations + 2 * of.attention)
    at["backward, attention", "gathered_kv"] = gathered + of.gradients
    return at
