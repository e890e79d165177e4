"""Parameters, gradients and optimizer state of each rank, by ZeRO stage (arXiv 1910.02054).

Bytes a parameter: 2 as BF16, 4 or 2 of accumulated gradient, 12 of FP32 master and Adam moments (8 with moments in
BF16); in FP8 also 2 x 1 for the copies in both orientations that products of layers read, made once a step. Stage 1
spreads the optimizer state over data and context ranks (Megatron-LM's distributed optimizer), stage 2 gradients too,
stage 3 parameters too; what a layer computes with is gathered then, one layer ahead of the one at work.
"""

from __future__ import annotations

from hyscale_model.arrays import Number, equals, minimum
from hyscale_model.families import anatomy
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.memory.holdings import Stages
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import block_parameters, layer_parameters, optimizer_shards, state_bytes

# The layer at work and the next one.
GATHERED_LAYERS = 2


# Rowwise and columnwise, one byte each.
FP8_COPIES = 2


def _in_layers(case: Scenario, stages: Stages) -> Number:
    """Parameters of a rank's layers, without embedding and head."""
    shared, experts = block_parameters(case)
    names = block_names(anatomy(case.model))
    ends = sum(stages.runs[name] * (shared + experts)[names.index(name)] for name in ("embedding", "head"))
    return stages.held[0] + stages.held[1] - ends


def static_bytes(case: Scenario, sizes: Sizes, stages: Stages) -> dict[str, Number]:
    """Bytes by kind that are there all the time, broadcastable to (stages, points, draws)."""
    zero = case.layout.zero
    shared, experts = stages.held
    shards = optimizer_shards(case, sizes)
    sharded = shared / shards[0] + experts / shards[1]
    whole = shared + experts
    layer = layer_parameters(case, anatomy(case.model)) if zero > 1 else 0.0
    parameters = minimum(sharded + GATHERED_LAYERS * layer, whole) if zero > 2 else whole
    gradient = BF16_BYTES + (FP32_BYTES - BF16_BYTES) * equals(case.training.gradient_precision, "fp32")
    # The gradient of the layer at work is whole until it is reduced.
    gradients = sharded * gradient + BF16_BYTES * layer if zero > 1 else whole * gradient
    copies = FP8_COPIES * _in_layers(case, stages) if case.training.precision == "fp8" and zero < 3 else 0.0
    return {
        "parameters": BF16_BYTES * parameters + copies,
        "gradients": gradients,
        "optimizer": state_bytes(case) * sharded,
    }
