"""Memory of each pipeline stage: what is always there, and what comes on top at each moment of a step.

Moments: forward and backward pass of each kind of attention layer at its selection and at its core, of the experts,
the output head, the optimizer step. The peak is the largest sum over moments and stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number, equals
from hyscale_model.families import Anatomy, anatomy
from hyscale_model.families.anatomy import Attention
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.selection import KEEPS_INDICES
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.memory.layer import AttentionBytes, attention_bytes, feed_forward_bytes, kept_bytes, logits_bytes
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import ADAM_STATES, block_parameters, optimizer_shards
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
    """

    moments: tuple[str, ...]
    totals: np.ndarray
    always: dict[str, Number]
    at: dict[tuple[str, str], Number]

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


@dataclass(frozen=True, slots=True)
class Stages:
    """What each pipeline rank holds, for all points; arrays have shape (ranks, points, draws).

    Attributes:
        held: parameters on the GPU, (replicated over context ranks, experts).
        runs: blocks by name.
        in_flight: micro-batches whose activations are held at the peak, in units of all the rank's layers.
    """

    held: tuple[np.ndarray, np.ndarray]
    runs: dict[str, np.ndarray]
    in_flight: np.ndarray


def in_flight(rank: int, pp: int, vpp: int, micro_batches: int) -> float:
    """Micro-batches whose activations a rank holds at its peak, in units of all its layers."""
    if vpp == 1:
        return float(min(micro_batches, pp - rank))
    chunks = min(micro_batches * vpp, 2 * (pp - rank - 1) + (vpp - 1) * pp + 1)
    return chunks / vpp


def stages_of(case: Scenario, pipeline: Sequence[Structure], shape: tuple[int, int]) -> Stages:
    """Collect what ranks hold over the structures of a batch of ``shape`` (points, draws)."""
    pp, names = pipeline[0].pp, block_names(anatomy(case.model))
    counts = np.empty((pp, len(names), shape[0] * shape[1]))
    flying = np.empty((pp, counts.shape[-1]))
    for group in pipeline:
        counts[:, :, group.columns] = group.rank_counts[:, :, None]
        held = [in_flight(rank, pp, group.vpp, group.micro_batches) for rank in range(pp)]
        flying[:, group.columns] = np.array(held)[:, None]
    by_point = counts.reshape(pp, len(names), *shape)
    held_parameters = [
        np.einsum("rbpd,bpd->rpd", by_point, np.broadcast_to(part, (len(names), *shape)))
        for part in block_parameters(case)
    ]
    return Stages(
        held=(held_parameters[0], held_parameters[1]),
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
    shared, experts = stages.held
    shards = optimizer_shards(case, sizes)
    gradient = BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")
    always = {
        "parameters": BF16_BYTES * (shared + experts),
        "gradients": (shared + experts) * gradient,
        "optimizer": FP32_BYTES * ADAM_STATES * (shared / shards[0] + experts / shards[1]),
        "framework": framework,
    }
    at = _Moments(case, sizes, stages, allocator).at
    moments = (*dict.fromkeys(moment for moment, _ in at), "optimizer step")
    fixed = sum(always.values())
    totals = np.empty((ranks, len(moments), *shape))
    for index, moment in enumerate(moments):
        totals[:, index] = sum((value for (when, _), value in at.items() if when == moment), start=fixed)
    return StageMemory(moments, totals, always, at)


def _nominal(value: Number) -> np.ndarray:
    """The nominal column of a number that broadcasts to (stages, points, draws), shape (stages or 1,)."""
    array = np.asarray(value)
    column: np.ndarray = array[:, 0, 0] if array.ndim == 3 else array.reshape(-1)[:1]
    return column


class _Moments:
    """Bytes by (moment, kind) beside what is always there, in ``at``."""

    def __init__(self, case: Scenario, sizes: Sizes, stages: Stages, allocator: Number) -> None:
        self.case, self.stages, self.allocator = case, stages, allocator
        self.full = case.training.recompute == "full"
        self.policy = case.systems[0].recompute_selection
        self.at: dict[tuple[str, str], Number] = {}
        body = anatomy(case.model)
        kinds: dict[str, AttentionBytes] = {
            each.kind: attention_bytes(case, sizes, each, body.hidden) for each in body.attentions
        }
        ffns: dict[str, Number] = {
            each.kind: feed_forward_bytes(case, sizes, each, body.hidden) for each in body.feed_forwards
        }
        self._stored(body, kinds, ffns, kept_bytes(sizes, body))
        label = len(body.attentions) > 1
        for attention in body.attentions:
            self._attention(attention, kinds[attention.kind], f" ({attention.kind})" if label else "")
        self._experts(body, kinds, ffns)
        self._moment("forward, output head", gathered=self._gathered(None))
        self.at["forward, output head", "logits"] = (stages.runs["head"] > 0) * logits_bytes(case, sizes, body)

    def _stored(self, body: Anatomy, kinds: dict[str, AttentionBytes], ffns: dict[str, Number], kept: Number) -> None:
        """What is held of every layer in flight: activations, indices, score tables, gathered keys."""
        runs, flying = self.stages.runs, self.stages.in_flight
        # A layer that shares a selection is recomputed before the layer that made it, so that one must be kept.
        shared = any(attention.kind == "dsa_shared" for attention in body.attentions)
        keeps = shared or self.policy in KEEPS_INDICES or not self.full
        keeps = keeps and self.case.systems[0].index_storage == "device"
        self.activations: Number = 0.0
        self.indices: Number = 0.0
        self.tables: Number = 0.0
        self.all_gathered: Number = 0.0
        for attention in body.attentions:
            layers, of = flying * runs[f"{attention.kind}.core"], kinds[attention.kind]
            stored = kept if self.full else kept + of.activations
            if not self.full or self.policy == "skip":
                stored = stored + of.loss
            self.activations = self.activations + layers * stored
            self.indices = self.indices + (layers * of.indices if keeps else (layers > 0) * of.indices)
            if self.full and self.policy == "keep_scores":
                self.tables = self.tables + layers * of.kept_table
            self.all_gathered = self.all_gathered + layers * of.gathered
        if not self.full:
            for ffn in body.feed_forwards:
                self.activations = self.activations + flying * runs[ffn.kind] * ffns[ffn.kind]
        self.reserved = self.allocator * self.activations
        self.reserved_indices = self.allocator * self.indices

    def _gathered(self, own: Number | None) -> Number:
        """Gathered keys: of all layers in flight without recomputation, of the layer at work with it."""
        if not self.full:
            return self.all_gathered
        return 0.0 if own is None else own

    def _moment(self, name: str, more: Number = 0.0, gathered: Number = 0.0) -> None:
        self.at[name, "activations"] = self.reserved + self.allocator * more
        self.at[name, "selection_indices"] = self.reserved_indices
        self.at[name, "score_table"] = self.tables
        self.at[name, "gathered_kv"] = gathered

    def _attention(self, attention: Attention, of: AttentionBytes, label: str) -> None:
        here = self.stages.runs[f"{attention.kind}.core"] > 0
        own = self._gathered(here * of.gathered)
        block = here * of.activations
        keeps_tables = self.full and self.policy == "keep_scores"
        for phase in ("forward", "backward") if attention.index else ():
            name = f"{phase}, selection{label}"
            again = phase == "forward" or (self.full and self.policy in ("rerun", "keep_indices"))
            self._moment(name, block + (here * of.topk_outputs if again else 0.0), own)
            if again:
                self.at[name, "candidates"] = here * of.candidates
                if not keeps_tables:
                    self.at[name, "score_table"] = here * of.table
        if attention.index is None:
            self._moment(f"forward, attention{label}", block, own)
        # Gradients of the block's activations, and of what was gathered.
        self._moment(f"backward, attention{label}", 2 * block, own + here * of.gradients)

    def _experts(self, body: Anatomy, kinds: dict[str, AttentionBytes], ffns: dict[str, Number]) -> None:
        """In the backward pass of a layer both its blocks' activations are there, with gradients of the experts'."""
        runs = self.stages.runs
        widest: Number = 0.0
        gathered: Number = 0.0
        for attention in body.attentions:
            here = runs[f"{attention.kind}.core"] > 0
            widest = np.maximum(widest, here * kinds[attention.kind].activations)
            gathered = np.maximum(gathered, here * kinds[attention.kind].gathered)
        for ffn in body.feed_forwards:
            name = "experts" if ffn.kind == "moe" else "feed-forward"
            kind = "expert_buffers" if ffn.kind == "moe" else "activations"
            present = (runs[ffn.kind] > 0) * ffns[ffn.kind]
            for phase, times, more, held in (
                ("forward", 1, 0.0, self._gathered(None)),
                ("backward", 2, widest, self._gathered(gathered)),
            ):
                moment = f"{phase}, {name}"
                self._moment(moment, more, held)
                self.at[moment, kind] = self.at.get((moment, kind), 0.0) + self.allocator * times * present
