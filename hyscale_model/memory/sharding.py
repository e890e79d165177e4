"""Parameters, gradients and optimizer state of each rank, by ZeRO stage (arXiv 1910.02054).

Bytes a parameter: 2 as BF16, 4 or 2 of accumulated gradient, 12 of FP32 master and Adam moments (8 with moments in
BF16; one moment less for matrices under Muon), less what is offloaded to the host. In FP8 also 2 x 1 for the copies
in both orientations that products of layers read, made once a step. Stage 1 spreads the optimizer state over data and
context ranks (Megatron-LM's distributed optimizer), stage 2 gradients too, stage 3 parameters too; what a layer
computes with is gathered then, one layer ahead of the one at work.
"""

from __future__ import annotations

from hyscale_model.arrays import Number, minimum
from hyscale_model.families import anatomy
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.optimizer import (
    Held,
    gradient_bytes,
    layer_parameters,
    offloaded_fraction,
    optimizer_shards,
    state_bytes,
)

# The layer at work and the next one.
GATHERED_LAYERS = 2


# Rowwise and columnwise, one byte each.
FP8_COPIES = 2


def static_bytes(case: Scenario, sizes: Sizes, held: Held) -> dict[str, Number]:
    """Bytes by kind that are there all the time, broadcastable to (stages, points, draws)."""
    zero = case.layout.zero
    shards = optimizer_shards(case, sizes)
    sharded = held.shared / shards[0] + held.experts / shards[1]
    whole = held.shared + held.experts
    layer = layer_parameters(case, anatomy(case.model)) if zero > 1 else 0.0
    parameters = minimum(sharded + GATHERED_LAYERS * layer, whole) if zero > 2 else whole
    gradient = gradient_bytes(case)
    # The gradient of the layer at work is whole until it is reduced.
    gradients = sharded * gradient + BF16_BYTES * layer if zero > 1 else whole * gradient
    in_layers = whole - held.ends_shared - held.ends_experts
    copies = FP8_COPIES * in_layers if case.training.precision == "fp8" and zero < 3 else 0.0
    return {
        "parameters": BF16_BYTES * parameters + copies,
        "gradients": gradients,
        "optimizer": (1 - offloaded_fraction(case)) * state_bytes(case, sizes, held),
    }


def host_state_bytes(case: Scenario, sizes: Sizes, held: Held) -> Number:
    """Bytes of optimizer state in host memory, of each rank."""
    fraction = offloaded_fraction(case)
    return fraction * state_bytes(case, sizes, held) if fraction else 0.0
