"""What a layer's backward holds in memory, counted in what runs, beside what the model counts."""

import gc

import pytest
import torch
from hyscale_calibration.layers import measure
from hyscale_calibration.layers.check import SIZES, small
from hyscale_calibration.layers.layer import Options
from hyscale_kernels.sparse_attention.attend import launches
from hyscale_kernels.sparse_attention.pairs import TOGETHER
from hyscale_kernels.sparse_attention.tiles import LEFT_BYTES, QUERIES, SLOTS
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hyscale_model.batch import case_of
from hyscale_model.checks.layers import Layer, layer_scenario
from hyscale_model.families import anatomy
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.launches import between_launches

# Model, kind of layer, tokens and ranks: one launch, four, five and a bit, eight and a half.
MEASURED = [
    ("glm-5.1", "dsa", 262144, 128),
    ("glm-5.1", "dsa", 1048576, 128),
    ("deepseek-v4-flash", "csa", 1048576, 32),
    ("qwen3.8-flash-next", "qsa", 1048576, 32),
]


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
@pytest.mark.parametrize(("model", "kind", "length", "ranks"), MEASURED)
def test_launches_leave_what_the_model_counts(model, kind, length, ranks, system):
    layer = Layer(model=model, layer=kind, system=system, length=length, ranks=ranks, shared_keys=0.9)
    scenario = layer_scenario(layer, "h200")
    case = case_of(scenario, scenario.systems[0])
    core, sizes = anatomy(case.model).attention(kind).core, Sizes.of(case)
    heads = core.heads // core.groups
    tile = QUERIES.at(heads)
    blocks = core.groups * -(-heads // tile.heads)
    padded = -(-(core.topk * core.entry_tokens + core.window) // SLOTS) * SLOTS
    kept = 2 * tile.heads * padded * 2
    pairs = system == "hyscale"
    of_launches = [
        tasks * kept
        for _, tasks in launches(int(sizes.tokens) * blocks, kept, LEFT_BYTES, blocks * (TOGETHER if pairs else 1))
    ]
    growing, last = between_launches(sizes, core, 1, pairs)
    # The next launch's are made before those of the last are gone.
    assert growing == max(a + b for a, b in zip([0, *of_launches], of_launches, strict=False))
    assert last == of_launches[-1]


class _Alive(TorchDispatchMode):
    """Shapes and types of tensors that operations made and that are alive."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self.made.append((StorageWeakRef(tensor.untyped_storage()), tuple(tensor.shape), tensor.dtype))
        return found

    def count(self, shape, dtype):
        storages = {held.cdata for held, made, of in self.made if (made, of) == (shape, dtype) and not held.expired()}
        return len(storages)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dsa", "qsa"])
def test_a_backward_holds_what_was_returned_twice_and_zeros_for_outputs_that_nothing_flows_back_to(
    kind, device, monkeypatch
):
    """The output of the forward is the bench's, that of the recomputation the checkpoint's."""
    from hyscale_kernels.sparse_attention import api

    bench = measure.Bench.of(small(kind), "hyscale", Options(), device, SIZES[kind])
    alive, seen = _Alive(), []
    given = api.gradients

    def counted(*arguments, **options):
        # The interpreter of kernels holds their arguments in cycles.
        gc.collect()
        n, hidden = bench.x.shape
        zeros = (n, arguments[0].indices.shape[-1])
        seen.append((alive.count((n, hidden), torch.bfloat16), alive.count(zeros, torch.float32)))
        return given(*arguments, **options)

    monkeypatch.setattr(api, "gradients", counted)
    with alive:
        bench.step()
    # The input and what its norm made of it too.
    assert seen == [(4, 1)]
