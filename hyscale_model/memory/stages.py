"""Memory of each pipeline stage: what is always there, and what comes on top at each moment of a step.

Moments: forward pass at the selection, at the experts, at the output head; backward pass of a layer at the
selection (recomputed), at the attention core and at the experts; the optimizer step. The peak is the largest
sum over moments and stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number, equals, minimum
from hyscale_model.layers.attention import gathered_bytes
from hyscale_model.layers.selection import candidate_bytes, score_table_bytes
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes, kept_indices_bytes
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import ADAM_STATES, block_parameters, optimizer_shards
from hyscale_model.step.pipeline import structures

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
# Policies that keep the selection of every layer in flight.
KEEPS_INDICES = ("keep_indices", "skip", "replay")


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of each kind, shape (stages, moments, kinds, points, draws)."""

    bytes: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """Sum over kinds, shape (stages, moments, points, draws)."""
        return self.bytes.sum(axis=2)

    def peak(self) -> np.ndarray:
        """Largest total of any stage and moment, shape (points, draws)."""
        return self.totals.max(axis=(0, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes of one layer and micro-batch on one GPU.

    Attributes:
        kept: input that full recomputation starts from.
        attention: activations of the attention block between its forward and backward.
        experts: tokens at this rank's experts, with their intermediate activations.
        indices: the kept selection; ``loss``: gradients of the kept scores.
        table: score table; ``candidates``: HyTopK's buffers; ``gathered``: keys and latents of the sequence.
        gradients: FP32 gradients of the gathered latents.
        logits: BF16 and FP32 logits.
    """

    kept: Number
    attention: Number
    experts: Number
    indices: Number
    loss: Number
    table: Number
    candidates: Number
    gathered: Number
    gradients: Number
    logits: Number


def layer_bytes(case: Scenario, sizes: Sizes) -> LayerBytes:
    """Bytes from shapes; see ``LayerBytes``."""
    model, layout, system = case.model, case.layout, case.systems[0]
    heads = model.num_attention_heads / layout.tp
    latent = model.kv_lora_rank + model.qk_rope_head_dim
    key = model.qk_nope_head_dim + model.qk_rope_head_dim
    # Normalised input, low-rank queries and latents before and after their norms, queries in head and in latent
    # space, attention output in latent and in head space, index queries.
    per_token = (
        2 * model.hidden_size
        + 2 * (model.q_lora_rank + latent)
        + heads * (key + latent + model.kv_lora_rank + model.v_head_dim)
        + model.index_n_heads * model.index_head_dim
    )
    copies = sizes.queries * model.num_experts_per_tok * case.training.moe_imbalance
    # A copy as sent and as received, gate and up, their product.
    expert_values = 2 * model.hidden_size + 3 * model.moe_intermediate_size / layout.etp
    table = score_table_bytes(case, sizes)
    hytopk = system.selection == "hytopk"
    return LayerBytes(
        kept=BF16_BYTES * sizes.queries * model.hidden_size,
        attention=BF16_BYTES * sizes.tokens * per_token,
        experts=BF16_BYTES * copies * expert_values,
        indices=kept_indices_bytes(sizes.queries, model.index_topk),
        loss=FP32_BYTES * sizes.queries * model.index_topk * equals(case.training.index_loss, "sparse"),
        table=0.0 if hytopk else table,
        candidates=candidate_bytes(case, sizes) if hytopk else 0.0,
        gathered=gathered_bytes(case, sizes),
        gradients=FP32_BYTES * case.workload.micro_batch_size * sizes.keys * latent,
        logits=(BF16_BYTES + FP32_BYTES) * sizes.tokens * model.vocab_size / layout.tp,
    )


def in_flight(rank: int, pp: int, vpp: int, micro_batches: int) -> float:
    """Micro-batches whose activations a rank holds at its peak, in units of all its layers."""
    if vpp == 1:
        return float(min(micro_batches, pp - rank))
    chunks = min(micro_batches * vpp, 2 * (pp - rank - 1) + (vpp - 1) * pp + 1)
    return chunks / vpp


def stage_memory(
    case: Scenario, sizes: Sizes, shape: tuple[int, int], framework: Number, allocator: Number
) -> StageMemory:
    """Memory of every stage and moment.

    Args:
        case: one system, overrides applied.
        sizes: its sizes.
        shape: (points, draws) of the batch.
        framework: bytes outside the allocator.
        allocator: bytes reserved per byte of activations in use.
    """
    pp = int(case.layout.pp)
    result = np.zeros((pp, len(MOMENTS), len(KINDS), shape[0] * shape[1]))
    layer = layer_bytes(case, sizes)
    flat = {name: _flat(getattr(layer, name), shape) for name in LayerBytes.__dataclass_fields__}
    spare = _flat(allocator, shape)
    parameters = [part.reshape(part.shape[0], -1) for part in block_parameters(case)]
    shards = optimizer_shards(case, sizes)
    gradient = BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")
    for group in structures(case, sizes, shape):
        columns = slice(None) if group.columns is None else group.columns
        counts = group.rank_counts
        bytes_of = {name: group.take(values) for name, values in flat.items()}
        for rank in range(pp):
            shared, experts = (_held(counts[rank], part) for part in parameters)
            layers = counts[rank, 0] * in_flight(rank, pp, group.vpp, group.micro_batches)
            here = _moments(case, bytes_of, group.take(spare), layers, moe=counts[rank, 2] > 0, last=rank == pp - 1)
            states = FP32_BYTES * ADAM_STATES * (shared / shards[0] + experts / shards[1])
            fixed = {
                "parameters": BF16_BYTES * (shared + experts),
                "gradients": (shared + experts) * gradient,
                "optimizer": states,
                "framework": framework,
            }
            for kind, value in fixed.items():
                result[rank, :, KINDS.index(kind), columns] = group.take(_flat(value, shape))[..., None]
            for (moment, kind), value in here.items():
                result[rank, MOMENTS.index(moment), KINDS.index(kind), columns] += value
    return StageMemory(result.reshape(pp, len(MOMENTS), len(KINDS), *shape))


def _moments(
    case: Scenario, of: dict[str, np.ndarray], spare: np.ndarray, layers: float, moe: bool, last: bool
) -> dict[tuple[str, str], np.ndarray]:
    """Bytes by (moment, kind) beside what is always there; ``layers`` x micro-batches are in flight."""
    full = case.training.recompute == "full"
    policy = case.systems[0].recompute_selection
    on_device = case.systems[0].index_storage == "device"
    keeps = full and policy in KEEPS_INDICES or not full
    activations = layers * (of["kept"] if full else of["kept"] + of["attention"] + moe * of["experts"])
    if full and policy == "skip":
        activations = activations + layers * of["loss"]
    indices = layers * of["indices"] if keeps and on_device else of["indices"]
    kept_tables = layers * of["table"] if full and policy == "keep_scores" else 0.0 * of["table"]
    result: dict[tuple[str, str], np.ndarray] = {}
    for moment in MOMENTS[:-1]:
        result[moment, "activations"] = spare * activations
        result[moment, "selection_indices"] = spare * indices
        result[moment, "score_table"] = kept_tables
    one_table = 0.0 * of["table"] if full and policy == "keep_scores" else of["table"]
    for phase in ("forward", "backward"):
        at_selection = f"{phase}, selection"
        again = phase == "forward" or (full and policy in ("rerun", "keep_indices"))
        if again:
            result[at_selection, "score_table"] = kept_tables + one_table
            result[at_selection, "candidates"] = of["candidates"]
        result[at_selection, "gathered_kv"] = of["gathered"]
        result[at_selection, "activations"] = spare * (activations + of["attention"])
        if moe:
            result[f"{phase}, experts", "expert_buffers"] = spare * of["experts"] * (1 if phase == "forward" else 2)
    # In the backward pass of a layer both its blocks' activations are there, and gradients of what is gathered.
    result["backward, experts", "activations"] = spare * (activations + of["attention"])
    result["backward, experts", "gathered_kv"] = of["gathered"]
    result["backward, attention", "activations"] = spare * (activations + 2 * of["attention"])
    result["backward, attention", "gathered_kv"] = of["gathered"] + of["gradients"]
    if last:
        result["forward, output head", "logits"] = of["logits"]
    return result


def _held(counts: np.ndarray, parameters: np.ndarray) -> Number:
    held = np.tensordot(counts, parameters, axes=1)
    return held[0] if held.size == 1 else held[None, :]


def _flat(value: Number, shape: tuple[int, int]) -> np.ndarray:
    return np.broadcast_to(value, shape).reshape(shape[0] * shape[1])


def indices_per_layer(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of the kept selection of one layer and micro-batch on one GPU."""
    return kept_indices_bytes(sizes.queries, minimum(case.model.index_topk, sizes.keys))
