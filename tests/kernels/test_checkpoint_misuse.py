"""Another forward's indices are never used: what is wrong raises."""

import contextlib
import re

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionReplayError, SelectionTape, checkpoint_contexts, select_once
from taped import OFFLOAD, ROWS, Selector, batch, interrupt, recorded, replay
from torch.utils.checkpoint import checkpoint


@OFFLOAD
@pytest.mark.parametrize(
    "change", [lambda i: i.add_(1), lambda i: i[1:].clamp_(max=2), lambda i: i.detach().zero_(), lambda i: i.resize_(0)]
)
def test_indices_modified_after_they_were_recorded_raise(change, offload):
    x, seen = batch(), []

    def forward(x):
        seen.append(select_once(("layer", 0), lambda: Selector()(ROWS)))
        return x[seen[-1].long()].square().sum()

    out = checkpoint(forward, x, use_reentrant=False, context_fn=checkpoint_contexts(offload))
    change(seen[0])
    with pytest.raises(SelectionReplayError, match=r"indices of \('layer', 0\) were modified in place.*change a clone"):
        out.backward()


def test_indices_modified_between_two_recomputations_raise():
    tape = recorded(Selector(), "key")
    replay(tape, "key")[0].add_(1)
    with pytest.raises(SelectionReplayError, match="modified in place"):
        replay(tape, "key")


def test_indices_changed_before_they_are_returned_are_as_good_as_others():
    selector = Selector()
    tape = SelectionTape()
    with tape.recording():
        indices = select_once("key", lambda: selector(ROWS).add_(1))
    assert replay(tape, "key")[0] is indices


@OFFLOAD
def test_indices_of_inference_mode_are_recorded_but_not_replayed(offload):
    with torch.inference_mode():
        tape = recorded(Selector(), "key", offload=offload)
    with pytest.raises(SelectionReplayError, match=r"made under torch\.inference_mode"):
        replay(tape, "key")


def test_a_second_recording_raises():
    tape = recorded(Selector(), "key")
    with pytest.raises(
        SelectionReplayError, match="cannot record, it holds a forward of 1 selections: make a new tape"
    ):
        tape.recording().__enter__()
    replay(tape, "key")


def test_a_recording_within_its_own_raises():
    tape = SelectionTape()
    with tape.recording():
        with pytest.raises(SelectionReplayError, match="cannot record, it is recording already: make a new tape"):
            tape.recording().__enter__()
        select_once("key", lambda: Selector()(ROWS))
    replay(tape, "key")


def test_a_replay_without_a_forward_raises():
    with pytest.raises(SelectionReplayError, match=r"never recorded a forward: run the forward inside recording\(\)"):
        replay(SelectionTape())


def test_a_replay_within_its_recording_raises():
    tape = SelectionTape()
    with tape.recording():
        with pytest.raises(SelectionReplayError, match=r"still being recorded: leave recording\(\) first"):
            replay(tape)
        select_once("key", lambda: Selector()(ROWS))
    assert tape.recorded


def test_a_gradient_of_a_checkpointed_function_inside_itself_raises():
    selector = Selector()

    def forward(x):
        y = x[select_once("key", lambda: selector(ROWS)).long()].square().sum()
        (slope,) = torch.autograd.grad(y, x)
        return slope

    with pytest.raises(SelectionReplayError, match="do not take gradients of a checkpointed function inside itself"):
        checkpoint(forward, batch(), use_reentrant=False, context_fn=checkpoint_contexts())


@pytest.mark.parametrize(
    "key",
    [("other", 0, 6, 3), ("layer", 3, 6, 3), ("layer", 0, 5, 3), ("layer", 0, 6, 4)],
    ids=["layer", "chunk", "shape", "topk"],
)
def test_another_selection_at_this_place_raises(key):
    tape = recorded(Selector(), ("layer", 0, 6, 3))
    message = f"asks for {key} as selection 1 of 1, in its forward this was ('layer', 0, 6, 3)"
    with pytest.raises(SelectionReplayError, match=re.escape(message)):
        replay(tape, key)


@pytest.mark.parametrize("keys", [(), ("key",)])
def test_more_selections_than_recorded_raise(keys):
    tape = recorded(Selector(), *keys)
    message = f"asks for 'more' as selection {len(keys) + 1}, its forward made {len(keys)}"
    with pytest.raises(SelectionReplayError, match=message):
        replay(tape, *keys, "more")


def test_selections_left_over_raise_unless_an_exception_ended_the_replay():
    tape = recorded(Selector(), "first", "second")
    with pytest.raises(SelectionReplayError, match="after 1 of the 2 selections of its forward, before 'second'"):
        replay(tape, "first")
    with pytest.raises(ValueError, match="stop"):
        interrupt(tape.replaying())
    replay(tape, "first", "second")


def test_a_mistake_that_is_caught_inside_a_replay_is_told_at_its_end():
    replaying = recorded(Selector(), "first").replaying()
    with pytest.raises(SelectionReplayError, match="after 0 of the 1"), replaying, contextlib.suppress(RuntimeError):
        select_once("other", pytest.fail)


def test_a_forward_without_selections_is_a_forward():
    tape = recorded(Selector())
    assert tape.recorded
    assert replay(tape) == []


def test_only_hashable_keys_and_integers_are_recorded():
    with SelectionTape().recording():
        for wrong in (torch.zeros(2), [0], None):
            with pytest.raises(TypeError, match="must be a tensor of integers"):
                select_once("key", lambda wrong=wrong: wrong)
        with pytest.raises(TypeError, match="unhashable"):
            select_once(["key"], lambda: Selector()(ROWS))


def test_a_selection_made_of_selections_is_one():
    selector = Selector()

    def merged():
        return select_once("whole", lambda: torch.cat([select_once(i, lambda: selector(3)) for i in range(2)]))

    tape = SelectionTape()
    with tape.recording():
        forward = merged()
    with tape.replaying():
        assert torch.equal(merged(), forward)
    assert selector.calls == 2


def test_without_a_tape_it_just_selects():
    assert select_once(["any key"], lambda: "whatever") == "whatever"
