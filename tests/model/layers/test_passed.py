"""What kernels before and after a kernel move is part of what is moved in all, or less than nothing would be left."""

import numpy as np
import pytest

from hyscale_model.checks.layers import Layer, layer_scenario
from hyscale_model.evaluate import Evaluator
from hyscale_model.layers.operation import Operation
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile

LAYERS = (("glm-5.1", "dsa", 128), ("deepseek-v4-flash", "csa", 32), ("qwen3.8-flash-next", "qsa", 32))


@pytest.mark.parametrize("length", [2**15, 2**20, 2**22])
@pytest.mark.parametrize("system", ["megatron", "megatron-best", "hyscale"])
@pytest.mark.parametrize(("model", "kind", "ranks"), LAYERS)
def test_what_is_passed_is_moved(model, kind, ranks, system, length):
    layer = Layer(model=model, layer=kind, system=system, length=length, ranks=ranks, shared_keys=0.9)
    scenario = layer_scenario(layer, "h200")
    (found,) = Evaluator(scenario, {}, Draws(0), load_profile("h200-sxm")).steps(scenario.systems)
    blocks = found.priced.cases[0].blocks
    works = [task.work for block in blocks for task in (*block.forward, *block.recompute, *block.backward)]
    operations = [work for work in works if isinstance(work, Operation)]
    assert any(np.any(work.passed_bytes) for work in operations)
    for work in operations:
        assert np.all(np.asarray(work.passed_bytes) <= work.hbm_bytes), work.family
