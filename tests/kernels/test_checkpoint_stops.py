"""How far a recomputation goes, and what is asked for on the way."""

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionReplayError, checkpoint_contexts, select_once
from taped import (
    EARLY_STOP,
    OFFLOAD,
    ROWS,
    WIDTH,
    Selector,
    assert_each_forward_kept_its_own,
    batch,
    gradients,
    modules,
    tower,
)
from torch.utils.checkpoint import CheckpointError, checkpoint, set_checkpoint_early_stop


@OFFLOAD
@EARLY_STOP
@pytest.mark.parametrize("depth", [1, 2])
def test_every_backward_of_a_retained_graph_begins_at_the_first_selection(depth, early_stop, offload):
    selector = Selector()
    module = tower(depth, selector, context_fn=checkpoint_contexts(offload))
    x = batch()
    with set_checkpoint_early_stop(early_stop):
        out = module(x).square().sum()
    (once,) = torch.autograd.grad(out, x, retain_graph=True)
    (twice,) = torch.autograd.grad(out, x)
    torch.testing.assert_close(once, twice)
    assert selector.calls == 2 * depth - 1
    assert_each_forward_kept_its_own(*modules(module.layer))
    torch.testing.assert_close(once, gradients(module.layer, x)[0])


def two_selections(selector, uses):
    """The second is behind the last tensor that a gradient needs."""

    def forward(x):
        y = x[select_once("first", lambda: selector(ROWS)).long()].square().sum(1)
        uses.append("first")
        if uses[0] != "stop":
            select_once("second", lambda: selector(ROWS))
            uses.append("second")
        return y.sum()

    return forward


def test_selections_behind_an_early_stop_are_not_asked_for():
    selector, uses = Selector(), []
    out = checkpoint(two_selections(selector, uses), batch(), use_reentrant=False, context_fn=checkpoint_contexts())
    out.backward()
    assert uses == ["first", "second"]
    assert selector.calls == 2


def test_without_early_stop_all_selections_are_asked_for():
    selector, uses = Selector(), []
    with set_checkpoint_early_stop(False):
        out = checkpoint(two_selections(selector, uses), batch(), use_reentrant=False, context_fn=checkpoint_contexts())
    out.backward(retain_graph=True)
    assert uses == ["first", "second"] * 2
    uses[0] = "stop"
    with pytest.raises(SelectionReplayError, match="ended after 1 of the 2 selections of its forward, before 'second'"):
        out.backward()
    assert selector.calls == 2


@pytest.mark.parametrize("check", ["default", "none"])
def test_what_torch_finds_wrong_with_a_recomputation_is_still_told(check):
    """Whatever ends a recomputation early passes through, and the tape is as good as before."""
    selector = Selector()
    widths = iter([WIDTH, WIDTH // 2, WIDTH])

    def forward(x):
        chosen = select_once("key", lambda: selector(ROWS))
        return x[:, : next(widths)].square()[chosen.long()].sum()

    out = checkpoint(forward, batch(), use_reentrant=False, context_fn=checkpoint_contexts(), determinism_check=check)
    with pytest.raises(CheckpointError if check == "default" else RuntimeError):
        out.backward()
    if check == "default":
        out.backward()
    assert selector.calls == 1
