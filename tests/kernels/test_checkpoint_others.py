"""Checkpoints of other kinds: reentrant ones, and compiled modules."""

import functools

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionTape, select_once
from taped import (
    OFFLOAD,
    ROWS,
    Layer,
    Selector,
    assert_each_forward_kept_its_own,
    assert_same_gradients,
    batch,
    modules,
    tower,
)
from torch import nn
from torch.utils.checkpoint import checkpoint


class OwnCheckpoint(torch.autograd.Function):
    """A reentrant checkpoint as frameworks write for themselves."""

    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.run(x)
        torch.autograd.backward(out, upstream)
        return None, x.grad


class Taped(nn.Module):
    """A layer with a tape a call, made by hand."""

    def __init__(self, layer, offload, run):
        super().__init__()
        self.layer, self.offload, self.run = layer, offload, run

    def forward(self, x):
        tape = SelectionTape(self.offload)

        def run(x):
            with tape.replaying() if tape.recorded else tape.recording():
                return self.layer(x)

        return self.run(run, x)


REENTRANT = pytest.mark.parametrize(
    "run", [OwnCheckpoint.apply, functools.partial(checkpoint, use_reentrant=True)], ids=["own", "torch"]
)


@OFFLOAD
@REENTRANT
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_tape_a_call_serves_reentrant_checkpoints(order, run, offload):
    selector = Selector()
    module = Taped(Layer("layer", selector), offload, run)
    inputs = [batch(0), batch(1)]
    outs = [module(x) for x in inputs]
    with torch.no_grad():
        module(batch(2))
    for i in order:
        outs[i].square().sum().backward()
    assert selector.calls == 3
    assert_each_forward_kept_its_own(module.layer)
    assert_same_gradients(module, *inputs)


# With gradients off, the inner ones warn that there will be none.
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@REENTRANT
def test_reentrant_checkpoints_may_be_nested(run):
    selector = Selector()
    innermost = Layer("level 2", selector)
    middle = Layer("level 1", selector, inner=Taped(innermost, False, run))
    module = Taped(Layer("level 0", selector, inner=Taped(middle, False, run)), False, run)
    x = batch()
    module(x).square().sum().backward()
    assert selector.calls == 5
    assert_each_forward_kept_its_own(*modules(module.layer))
    assert_same_gradients(module, x)


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False])
def test_a_compiled_module_is_replayed_as_well(inside):
    torch._dynamo.reset()
    selector = Selector()
    module = tower(2, selector)
    if inside:
        compiled = functools.partial(checkpoint, torch.compile(module.layer, backend="eager"), **module.kwargs)
    else:
        compiled = torch.compile(module, backend="eager")
    for seed in range(2):
        x = batch(seed)
        module.zero_grad()
        compiled(x).square().sum().backward()
        assert selector.calls == 3 * (seed + 1)
        assert_each_forward_kept_its_own(*modules(module.layer))
        assert_same_gradients(module, x)


def test_a_selection_in_a_compiled_function_is_one_graph_break():
    torch._dynamo.reset()
    selector = Selector()

    def step(x):
        y = x * 2
        return y[select_once("key", lambda: selector(ROWS)).long()].sum()

    with SelectionTape().recording():
        assert torch._dynamo.explain(step)(batch()).graph_break_count == 1


def test_contexts_inside_a_compiled_function_are_entered():
    torch._dynamo.reset()
    selector = Selector()

    def step(x, context):
        y = x * 2
        with context:
            chosen = select_once("key", lambda: selector(ROWS))
        return y[chosen.long()].sum()

    compiled = torch.compile(step, backend="eager")
    for _ in range(2):
        tape = SelectionTape()
        x = batch()
        forward = compiled(x, tape.recording())
        assert torch.equal(forward, compiled(x, tape.replaying()))
    assert selector.calls == 2
