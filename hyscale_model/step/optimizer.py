"""What a stage does once a step: exchange of gradients and parameters, and the optimizer.

State a parameter: an FP32 master weight, and moments in FP32 or BF16 (Megatron-LM --exp-avg-dtype), two of Adam, one
of Muon, which leaves embedding, output head and lookup tables to Adam. With ``optimizer_cpu_offload`` a fraction of it
lies in host memory, where the host updates it: gradients go there, BF16 parameters come back, beside each other and the
update itself with ``overlap_cpu_optimizer_d2h_h2d`` (Megatron-LM's HybridDeviceOptimizer, Adam alone).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hyscale_model.arrays import Number, equals
from hyscale_model.families import Anatomy, anatomy
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.operation import Operation, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.network.groups import stage_copies
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.muon import muon_operation, muon_transfers, rank_work

ADAM_MOMENTS, MUON_MOMENTS = 2, 1


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters on ranks.

    Attributes:
        shared: replicated over context ranks; ``experts``: over what expert parallelism leaves.
        ends_shared, ends_experts: of those, what lies in embedding, output head and lookup tables.
    """

    shared: Number
    experts: Number
    ends_shared: Number
    ends_experts: Number

    @classmethod
    def of(cls, case: Scenario, counts: np.ndarray, parts: tuple[np.ndarray, np.ndarray] | None = None) -> Held:
        """Of ranks that hold ``counts`` blocks, shape (ranks, blocks); fields have shape (ranks, points, draws).

        ``parts``: ``block_parameters``, where they are known.
        """
        parts = block_parameters(case) if parts is None else parts
        names = block_names(anatomy(case.model))
        ends = [names.index("embedding"), names.index("head")]
        whole = [np.tensordot(counts, part, axes=1) for part in parts]
        return cls(*whole, *(np.tensordot(counts[:, ends], part[ends], axes=1) for part in parts))

    def rank(self, rank: int) -> Held:
        """Of one of the ranks."""
        return Held(self.shared[rank], self.experts[rank], self.ends_shared[rank], self.ends_experts[rank])


def moment_bytes(case: Scenario) -> Number:
    """Bytes of one moment of a parameter."""
    return FP32_BYTES - (FP32_BYTES - BF16_BYTES) * equals(case.training.optimizer_state_precision, "bf16")


def gradient_bytes(case: Scenario) -> Number:
    """Bytes of an accumulated gradient."""
    return BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")


def state_bytes(case: Scenario, sizes: Sizes, held: Held) -> Number:
    """Bytes of master weights and moments of a rank's share, wherever they lie."""
    shared, experts = optimizer_shards(case, sizes)
    moments = ADAM_MOMENTS if case.training.optimizer == "adam" else MUON_MOMENTS
    each, further = FP32_BYTES + moments * moment_bytes(case), (ADAM_MOMENTS - moments) * moment_bytes(case)
    whole = held.shared / shared + held.experts / experts
    if not further:
        return each * whole
    return each * whole + further * (held.ends_shared / shared + held.ends_experts / experts)


def offloaded_fraction(case: Scenario) -> Number:
    """Share of the optimizer state that lies in host memory."""
    return case.training.optimizer_offload_fraction if case.training.optimizer_cpu_offload else 0.0


def block_parameters(case: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of one block of each kind on one GPU: (replicated over context ranks, experts), by block name."""
    layout, body = case.layout, anatomy(case.model)
    shared: dict[str, Number] = {
        "embedding": body.embedding / layout.tp,
        # The last stage of a pipeline keeps a copy of the embedding that a tied head multiplies by.
        "head": (body.head + (body.vocabulary * body.hidden if body.tied and layout.pp > 1 else 0)) / layout.tp,
    }
    if body.predicted:
        # The projection and three norms; ranks of a last stage of their own also hold a copy of the embedding.
        projection = 2 * body.hidden * body.hidden / layout.tp + 3 * body.hidden
        copy = body.embedding / layout.tp if layout.pp > 1 and not body.tied else 0
        shared["mtp"] = projection + copy / body.predicted_layers
    # A table of n-grams is looked up by every token like experts are, and spread over the same ranks.
    experts: dict[str, Number] = {}
    if body.table:
        experts["embedding"] = body.table / (layout.ep * layout.etp)
    for attention in body.attentions:
        split = sum(each.parameters for each in attention.projections if each.split != "none")
        shared[f"{attention.kind}.input"] = (
            split / layout.tp + (attention.parameters - split) + attention.index_parameters + body.norm_parameters / 2
        )
    for ffn in body.feed_forwards:
        shared[ffn.kind] = (
            ffn.shared_parameters(body.hidden) / layout.tp + ffn.router_parameters + body.norm_parameters / 2
        )
        if ffn.experts:
            experts[ffn.kind] = ffn.experts * ffn.expert_parameters(body.hidden) / (layout.ep * layout.etp)
    names = block_names(body)
    return _column(shared, names), _column(experts, names)


def layer_parameters(case: Scenario, body: Anatomy) -> Number:
    """Parameters of the largest layer on one GPU, experts included."""
    shared, experts = block_parameters(case)
    both = dict(zip(block_names(body), shared + experts, strict=True))
    attention = np.maximum.reduce([both[f"{each.kind}.input"] for each in body.attentions])
    largest: Number = attention + np.maximum.reduce([both[each.kind] for each in body.feed_forwards])
    return largest


def _column(values: dict[str, Number], names: tuple[str, ...]) -> np.ndarray:
    """Values by block as an array of shape (blocks, points, draws)."""
    shape = np.broadcast_shapes((1, 1), *(np.shape(value) for value in values.values()))
    column = np.zeros((len(names), *shape))
    for name, value in values.items():
        column[names.index(name)] = value
    return column


def optimizer_shards(case: Scenario, sizes: Sizes) -> tuple[Number, Number]:
    """Ranks that share the optimizer state of (replicated, expert) parameters: 1 without ZeRO, of one instance."""
    layout = case.layout
    if layout.zero == 0:
        return 1, 1
    replicas = sizes.dp * layout.cp * stage_copies(layout) / layout.num_distributed_optimizer_instances
    return replicas, replicas * layout.tp / (layout.ep * layout.etp)


def optimizer_operations(case: Scenario, sizes: Sizes, held: Held, counts: np.ndarray) -> tuple[Operation, ...]:
    """What the GPU does: states read and written, gradient read, BF16 parameter written; Muon's products.

    Args:
        case: the scenario; ``sizes``: its sizes.
        held: parameters of one rank.
        counts: blocks of the rank in the order of ``block_names``.
    """
    shards = optimizer_shards(case, sizes)
    whole = held.shared / shards[0] + held.experts / shards[1]
    moved = 2 * state_bytes(case, sizes, held) + (gradient_bytes(case) + BF16_BYTES) * whole
    update = Operation(family="optimizer", hbm_bytes=(1 - offloaded_fraction(case)) * moved, launches=20)
    if case.training.optimizer == "adam":
        return (update,)
    work = rank_work(case, counts)
    return (update, *(muon_operation(each, shards[experts]) for experts, each in work.items() if np.any(each.flops)))


def inner_transfers(case: Scenario, counts: np.ndarray) -> tuple[Transfer, ...]:
    """What ranks exchange inside the optimizer step: parts of the matrices that Muon needs whole."""
    if case.training.optimizer == "adam":
        return ()
    return tuple(
        each for experts, work in rank_work(case, counts).items() for each in muon_transfers(case, work, experts)
    )


@dataclass(frozen=True, slots=True)
class HostStep:
    """The host's part of the optimizer: copies both ways and the bytes that its update moves in host memory."""

    out: Transfer
    back: Transfer
    moved_bytes: Number


def host_step(case: Scenario, sizes: Sizes, held: Held) -> HostStep | None:
    """The part of the optimizer that runs on the host; None where none does."""
    fraction = offloaded_fraction(case)
    if not isinstance(fraction, np.ndarray) and not fraction:
        return None
    shards = optimizer_shards(case, sizes)
    parameters = fraction * (held.shared / shards[0] + held.experts / shards[1])
    # Values are converted on the host, before the narrower form crosses the link.
    out = Transfer(kind="to_host", group="host", payload_bytes=parameters * gradient_bytes(case))
    back = Transfer(kind="from_host", group="host", payload_bytes=parameters * BF16_BYTES)
    moved = 2 * fraction * state_bytes(case, sizes, held) + parameters * (gradient_bytes(case) + BF16_BYTES)
    return HostStep(out, back, moved)


def gradient_transfers(case: Scenario, sizes: Sizes, shared: Number, experts: Number) -> tuple[Transfer, ...]:
    """Reduce-scatter of gradients and all-gather of what comes of them, for replicated and expert parameters.

    With ZeRO the updated BF16 parameters are gathered; without, the reduced gradients (ring all-reduce). Instances of
    the distributed optimizer, each of which holds all of the state, sum up their shares in between.
    """
    gradient = gradient_bytes(case)
    gathered = BF16_BYTES if case.layout.zero else gradient
    found = (
        Transfer(kind="reduce_scatter", group="dp", payload_bytes=shared * gradient),
        Transfer(kind="all_gather", group="dp", payload_bytes=shared * gathered),
        Transfer(kind="reduce_scatter", group="edp", payload_bytes=experts * gradient),
        Transfer(kind="all_gather", group="edp", payload_bytes=experts * gathered),
    )
    if case.layout.num_distributed_optimizer_instances == 1:
        return found
    shards = optimizer_shards(case, sizes)
    return (
        *found,
        Transfer(kind="all_reduce", group="odp", payload_bytes=shared * gradient / shards[0]),
        Transfer(kind="all_reduce", group="oedp", payload_bytes=experts * gradient / shards[1]),
    )
