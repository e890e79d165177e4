"""What a stage does once a step: exchange of gradients and parameters, and the optimizer."""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number, equals
from hyscale_model.families import Anatomy, anatomy
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.operation import Operation, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.network.groups import stage_copies
from hyscale_model.scenario.schema import Scenario

# Two moments beside the master weights.
ADAM_MOMENTS = 2


def state_bytes(case: Scenario) -> Number:
    """Bytes of optimizer state a parameter: FP32 master weight, two moments (Megatron-LM --exp-avg-dtype)."""
    narrow = equals(case.training.optimizer_state_precision, "bf16")
    return FP32_BYTES + ADAM_MOMENTS * (FP32_BYTES - (FP32_BYTES - BF16_BYTES) * narrow)


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
    """Ranks that share the optimizer state of (replicated, expert) parameters: 1 without ZeRO."""
    layout = case.layout
    if layout.zero == 0:
        return 1, 1
    replicas = sizes.dp * layout.cp * stage_copies(layout)
    return replicas, replicas * layout.tp / (layout.ep * layout.etp)


def optimizer_operation(case: Scenario, sizes: Sizes, shared: Number, experts: Number) -> Operation:
    """Adam over the rank's shard: states read and written, gradient read, BF16 parameter written."""
    gradient = BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")
    shards = optimizer_shards(case, sizes)
    held = shared / shards[0] + experts / shards[1]
    return Operation(family="optimizer", hbm_bytes=held * (2 * state_bytes(case) + gradient + BF16_BYTES), launches=20)


def gradient_transfers(case: Scenario, shared: Number, experts: Number) -> tuple[Transfer, ...]:
    """Reduce-scatter of gradients and all-gather of what comes of them, for replicated and expert parameters.

    With ZeRO the updated BF16 parameters are gathered; without, the reduced gradients (ring all-reduce).
    """
    gradient = BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")
    gathered = BF16_BYTES if case.layout.zero else gradient
    return (
        Transfer(kind="reduce_scatter", group="dp", payload_bytes=shared * gradient),
        Transfer(kind="all_gather", group="dp", payload_bytes=shared * gathered),
        Transfer(kind="reduce_scatter", group="edp", payload_bytes=experts * gradient),
        Transfer(kind="all_gather", group="edp", payload_bytes=experts * gathered),
    )
