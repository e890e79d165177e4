"""A layer that selects, its checkpoints, and tapes by hand."""

import functools

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionTape, checkpoint_contexts, select_once
from torch import nn
from torch.utils.checkpoint import checkpoint

ROWS, WIDTH, TOPK = 6, 8, 3


# What the tapes of a checkpointed call hold may be on the device or in host memory.
OFFLOAD = pytest.mark.parametrize("offload", [False, True])


EARLY_STOP = pytest.mark.parametrize("early_stop", [True, False])


class Selector:
    """Other indices at every call, so that a selection that is made again is found out."""

    def __init__(self, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.calls = 0

    def __call__(self, rows, device="cpu"):
        self.calls += 1
        return torch.randint(ROWS, (rows, TOPK), generator=self.generator, dtype=torch.int32).to(device)


class Layer(nn.Module):
    """Rows mixed with those selected for them; ``uses`` has, by input and place, all indices that were used."""

    def __init__(self, name, selector, chunks=(0,), inner=None):
        super().__init__()
        self.name, self.select, self.chunks, self.inner = name, selector, chunks, inner
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.uses = {}

    def chosen(self, x, first, rows):
        key = (self.name, first, rows, TOPK)
        indices = select_once(key, lambda: self.select(rows, x.device))
        self.uses.setdefault((key, tuple(x.flatten().tolist())), []).append(indices.clone())
        return indices

    def forward(self, x):
        y = self.linear(x).tanh()
        rows = ROWS // len(self.chunks)
        mixed = [y[self.chosen(x, first, rows).long()].prod(1) for first in self.chunks]
        y = y + torch.cat(mixed) * x
        if self.inner is not None:
            y = self.inner(y)
            y = y + y[self.chosen(y, -1, ROWS).long()].prod(1) * x
        return y


def modules(layer):
    return [layer] if layer.inner is None else [layer, *modules(layer.inner.layer)]


class Checkpointed(nn.Module):
    def __init__(self, layer, **kwargs):
        super().__init__()
        self.layer = layer
        self.kwargs = {"use_reentrant": False, "context_fn": checkpoint_contexts()} | kwargs

    def forward(self, x):
        return checkpoint(self.layer, x, **self.kwargs)


def tower(depth, selector, **kwargs):
    """A checkpoint in a checkpoint ..., each with selections before and behind the one inside."""
    layer = None
    for level in reversed(range(depth)):
        inner = None if layer is None else Checkpointed(layer, **kwargs)
        layer = Layer(f"level {level}", selector, inner=inner)
    return Checkpointed(layer, **kwargs)


def batch(seed=0):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def recorded(selector, *keys, offload=False):
    tape = SelectionTape(offload)
    with tape.recording():
        for key in keys:
            select_once(key, lambda: selector(ROWS))
    return tape


def replay(tape, *keys):
    with tape.replaying():
        return [select_once(key, pytest.fail) for key in keys]


def interrupt(context, error=ValueError):
    """Leave a context by an exception behind a first selection."""
    with context:
        select_once("first", lambda: Selector()(ROWS))
        raise error("stop")


def raising(error):
    raise error


def assert_each_forward_kept_its_own(*layers, uses=None):
    for layer in layers:
        for indices in layer.uses.values():
            assert uses is None or len(indices) == uses
            for others in indices[1:]:
                torch.testing.assert_close(others, indices[0], rtol=0, atol=0)


def gradients(layer, x):
    """Of one forward without checkpoints that is given the indices of the forward before, for ``x`` and the weights."""
    parts = modules(layer)
    inner = [part.inner for part in parts]
    for part in parts:
        part.chosen, part.inner = functools.partial(known, part), part.inner and part.inner.layer
    try:
        out = layer(x)
    finally:
        for part, checkpointed in zip(parts, inner, strict=True):
            del part.chosen
            part.inner = checkpointed
    return torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])


def known(layer, x, first, rows):
    return layer.uses[(layer.name, first, rows, TOPK), tuple(x.flatten().tolist())][0]


def assert_same_gradients(module, *inputs):
    """What was accumulated from forwards of each input is what runs without checkpoints give."""
    expected = [gradients(module.layer, x) for x in inputs]
    for x, (of_x, *_) in zip(inputs, expected, strict=True):
        torch.testing.assert_close(x.grad, of_x)
    for parameter, *parts in zip(module.layer.parameters(), *(rest for _, *rest in expected), strict=True):
        torch.testing.assert_close(parameter.grad, sum(parts))
