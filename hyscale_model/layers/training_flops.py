"""FLOP that training needs, without recomputation: the numerator of model FLOP utilisation."""

from __future__ import annotations

from hyscale_model.arrays import Number
from hyscale_model.families import anatomy, count_parameters
from hyscale_model.families.anatomy import layer_counts
from hyscale_model.families.tokens import recurrence_flops
from hyscale_model.layers.sizes import Sizes, mean_attended
from hyscale_model.scenario.schema import Scenario


def training_flops_per_token(case: Scenario, sizes: Sizes) -> Number:
    """FLOP of one token, forward and backward, averaged over its position.

    6 per weight (4 per index weight, whose inputs are detached), scores of visible keys once, the kept scores'
    backward twice, attention three times (Megatron-Bridge's accounting for DSA).
    """
    body = anatomy(case.model)
    count = count_parameters(body)
    flops: Number = 6 * (count.multiplied - count.indexers) + 4 * count.indexers
    for (kind, _), layers in layer_counts(body):
        layer = body.attention(kind)
        core = layer.core.flops_per_key * mean_attended(sizes, layer.core) + recurrence_flops(layer.core)
        flops = flops + 3 * layers * core
        if layer.index:
            score = 2 * layers * layer.index.heads * layer.index.head_dim
            flops = flops + score * sizes.visible(layer.index.ratio)
            flops = flops + 2 * score * sizes.selected(layer.index.topk, layer.index.ratio)
    return flops
