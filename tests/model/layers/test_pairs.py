"""Gradients of queries that share a pass are priced as the kernels that calibration measured."""

import pytest
from hyscale_calibration.work import work_of

from hyscale_model.batch import case_of
from hyscale_model.checks.layers import Layer, layer_scenario
from hyscale_model.families import anatomy
from hyscale_model.layers.core import core_operations
from hyscale_model.layers.sizes import Sizes

SHARED = 0.9
# Shapes of the calibration's benchmark beside the layers that they are of.
SHAPES = {
    ("glm-5.1", "dsa"): {"H": 64, "G": 1, "D": 576, "V": 512, "k": 2048, "values": 0, "sinks": 0},
    ("deepseek-v4-flash", "csa"): {"H": 64, "G": 1, "D": 512, "V": 512, "values": 0, "sinks": 1},
    ("qwen3.8-flash-next", "qsa"): {"H": 24, "G": 2, "D": 256, "V": 256, "values": 1, "sinks": 0},
}


def backward(model, kind, system):
    layer = Layer(model=model, layer=kind, system=system, length=2**20, ranks=32, shared_keys=SHARED)
    scenario = layer_scenario(layer, "h200")
    case = case_of(scenario, scenario.systems[0])
    (core,) = [each.core for each in anatomy(case.model).attentions if each.kind == kind]
    return core_operations(case, Sizes.of(case), core, {"pair_overlap": SHARED}.__getitem__).backward


@pytest.mark.parametrize(("model", "kind"), SHAPES)
def test_pairs_differ_from_one_query_as_in_the_calibration(model, kind):
    one, pairs = (backward(model, kind, system) for system in ("megatron", "hyscale"))
    shape = {"n": 32_768, "L": 2**20, "k": 2048, **SHAPES[model, kind], "shared": SHARED}
    measured = {name: work_of(f"sparse_attention_{name}", "bf16", shape) for name in ("backward", "backward_pairs")}
    assert one.family == measured["backward"].family
    assert pairs.family == measured["backward_pairs"].family
    assert pairs.launches - one.launches == measured["backward_pairs"].launches - measured["backward"].launches
    assert pairs.flops / one.flops == pytest.approx(measured["backward_pairs"].flops / measured["backward"].flops)
    for unit, amount in measured["backward"].units.items():
        if amount:
            ratio = measured["backward_pairs"].units[unit] / amount
            assert pairs.units()[unit] / one.units()[unit] == pytest.approx(ratio), unit
        else:
            assert not pairs.units()[unit]
            assert not one.units()[unit]
