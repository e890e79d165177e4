import functools
import gc
import re
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.checkpoint import SelectionReplayError, SelectionTape, checkpoint_contexts, select_once
from taped import (
    EARLY_STOP,
    OFFLOAD,
    ROWS,
    Checkpointed,
    Layer,
    Selector,
    assert_each_forward_kept_its_own,
    assert_same_gradients,
    batch,
    gradients,
    interrupt,
    modules,
    raising,
    recorded,
    replay,
    tower,
)
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop


@OFFLOAD
@EARLY_STOP
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_forwards_of_a_module_are_recomputed_each_with_its_own_indices(order, early_stop, offload):
    selector = Selector()
    module = Checkpointed(Layer("layer", selector), context_fn=checkpoint_contexts(offload))
    inputs = [batch(0), batch(1)]
    with set_checkpoint_early_stop(early_stop):
        outs = [module(x) for x in inputs]
    for i in order:
        outs[i].square().sum().backward()
    assert selector.calls == 2
    assert len(module.layer.uses) == 2
    assert_each_forward_kept_its_own(module.layer, uses=2)
    assert_same_gradients(module, *inputs)


def test_forwards_of_equal_inputs_keep_their_own_indices_apart():
    selector = Selector()
    module = Checkpointed(Layer("layer", selector))
    first, second = module(batch()), module(batch())
    ((chosen, other),) = module.layer.uses.values()
    assert not torch.equal(chosen, other)
    second.sum().backward()
    first.sum().backward()
    ((*_, again, at_last),) = module.layer.uses.values()
    assert torch.equal(again, other)
    assert torch.equal(at_last, chosen)


def test_without_a_tape_a_recomputation_would_select_again():
    selector = Selector()
    layer = Layer("layer", selector)
    checkpoint(layer, batch(), use_reentrant=False).sum().backward()
    ((forward, backward),) = layer.uses.values()
    assert selector.calls == 2
    assert not torch.equal(forward, backward)


def test_a_pipeline_interleaves_micro_batches_and_layers():
    selector = Selector()
    stage = [Checkpointed(Layer(f"layer {i}", selector)) for i in range(3)]
    inputs, outs = [batch(i) for i in range(5)], {}
    # One forward, one backward, two micro-batches ahead.
    schedule = [("F", 0), ("F", 1), ("F", 2), ("B", 0), ("F", 3), ("B", 1), ("F", 4), ("B", 2), ("B", 3), ("B", 4)]
    for step, i in schedule:
        if step == "F":
            outs[i] = inputs[i]
            for module in stage:
                outs[i] = module(outs[i])
        else:
            outs.pop(i).square().sum().backward()
    assert selector.calls == 3 * 5
    for module in stage:
        assert len(module.layer.uses) == 5
    assert_each_forward_kept_its_own(*(module.layer for module in stage), uses=2)


@settings(max_examples=60)
@given(
    order=st.integers(1, 4).flatmap(lambda n: st.permutations([*range(n), *range(n)])),
    depth=st.integers(1, 3),
    offload=st.booleans(),
    early_stop=st.booleans(),
    again=st.sets(st.integers(0, 3)),
    evaluate=st.sets(st.integers(0, 7)),
)
def test_any_interleaving_of_forwards_and_backwards_replays_the_own_forward(
    order, depth, offload, early_stop, again, evaluate
):
    selector = Selector()
    module = tower(depth, selector, context_fn=checkpoint_contexts(offload))
    inputs, outs = {}, {}
    forwards = len(set(order)) * (2 * depth - 1)
    for place, i in enumerate(order):
        if i in outs:
            outs[i].square().sum().backward(retain_graph=i in again)
            if i in again:
                inputs[i].grad = None
                outs[i].square().sum().backward()
        else:
            inputs[i] = batch(i)
            with set_checkpoint_early_stop(early_stop):
                outs[i] = module(inputs[i])
        if place in evaluate:
            with torch.no_grad():
                module(batch(100 + place))
            forwards += 2 * depth - 1
    assert selector.calls == forwards
    assert_each_forward_kept_its_own(*modules(module.layer))
    for x in inputs.values():
        torch.testing.assert_close(x.grad, gradients(module.layer, x)[0])


@OFFLOAD
@EARLY_STOP
@pytest.mark.parametrize("depth", [2, 3])
def test_nested_checkpoints_replay_at_every_level(depth, early_stop, offload):
    selector = Selector()
    module = tower(depth, selector, context_fn=checkpoint_contexts(offload))
    inputs = [batch(0), batch(1)]
    with set_checkpoint_early_stop(early_stop):
        outs = [module(x) for x in inputs]
        for out in outs:
            out.square().sum().backward()
    # Two at every level but the innermost, which has none inside.
    assert selector.calls == len(inputs) * (2 * depth - 1)
    assert_each_forward_kept_its_own(*modules(module.layer))
    for part in modules(module.layer):
        assert max(len(indices) for indices in part.uses.values()) > 1
    assert_same_gradients(module, *inputs)


def test_a_checkpoint_made_in_a_recomputation_replays_what_the_outer_tape_gave():
    selector = Selector()
    outer, used = SelectionTape(), []

    def use(key):
        used.append(select_once(key, lambda: selector(ROWS)))

    def forward(inner):
        use("before")
        with inner.recording():
            use("inside")
        use("behind")

    with outer.recording():
        forward(SelectionTape())
    fresh = SelectionTape()
    with outer.replaying():
        forward(fresh)
    with fresh.replaying():
        use("inside")
    assert selector.calls == 3
    for indices, first in zip(used, [0, 1, 2, 0, 1, 2, 1], strict=True):
        assert torch.equal(indices, used[first])


@OFFLOAD
def test_a_backward_inside_another_forward_does_not_enter_its_tape(offload):
    """On the CPU it runs in the thread that records, on CUDA in another: the same tape either way."""
    selector = Selector()
    module = Checkpointed(Layer("layer", selector), context_fn=checkpoint_contexts(offload))
    x = batch()
    out = module(x).square().sum()
    tape = SelectionTape(offload)
    with tape.recording():
        before = select_once("before", lambda: selector(ROWS)).clone()
        out.backward()
        behind = select_once("behind", lambda: selector(ROWS)).clone()
    first, second = replay(tape, "before", "behind")
    assert torch.equal(first, before)
    assert torch.equal(second, behind)
    assert selector.calls == 3
    assert_each_forward_kept_its_own(module.layer, uses=2)
    assert_same_gradients(module, x)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_an_evaluation_between_forward_and_backward_records_and_disturbs_nothing(off):
    selector = Selector()
    module = tower(2, selector)
    x = batch()
    out = module(x)
    with off():
        module(batch(1))
        Layer("other", selector)(batch(2))
        module(x)
    calls = selector.calls
    assert calls == 3 + 3 + 1 + 3
    parts = modules(module.layer)
    forward = [{place: indices[:1] for place, indices in part.uses.items()} for part in parts]
    for part, uses in zip(parts, forward, strict=True):
        part.uses = uses
    out.square().sum().backward()
    assert selector.calls == calls
    assert_each_forward_kept_its_own(*parts)
    assert_same_gradients(module, x)


def test_a_forward_after_one_that_failed_is_recomputed_with_its_own_indices():
    selector = Selector()
    layer = Layer("layer", selector, chunks=(0, 3))
    module = Checkpointed(layer)
    x = batch()
    failing = iter([False, True])

    def select(rows, device):
        if next(failing, False):
            raise ValueError("out of luck")
        return selector(rows)

    layer.select = select
    # torch 2.11 leaves the hooks of a failed forward in place for as long as its traceback is kept.
    with pytest.raises(ValueError, match="out of luck"):
        module(x)
    gc.collect()
    layer.uses.clear()
    out = module(x)
    out.square().sum().backward()
    assert selector.calls == 1 + 2
    assert_each_forward_kept_its_own(layer, uses=2)
    assert_same_gradients(module, x)


def test_a_recording_that_is_left_late_and_elsewhere_takes_nothing_with_it():
    """As when a generator that entered it is collected long after the exception that ended it."""
    selector = Selector()

    def generator(tape):
        with tape.recording():
            yield

    stale, fresh = SelectionTape(), SelectionTape()
    entered = generator(stale)
    next(entered)
    with fresh.recording():
        forward = select_once("key", lambda: selector(ROWS))
        thread = threading.Thread(target=entered.close)
        thread.start()
        thread.join()
        select_once("later", lambda: selector(ROWS))
    assert torch.equal(replay(fresh, "key", "later")[0], forward)
    with pytest.raises(SelectionReplayError, match="ended by an exception"):
        replay(stale)
    assert select_once("key", lambda: "selected") == "selected"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_contexts_survive_exceptions(error):
    tape = recorded(Selector(), "first", "second")
    for context in (SelectionTape().recording(), tape.replaying(), tape.replaying()):
        with pytest.raises(error, match="stop"):
            interrupt(context, error)
    with pytest.raises(error), SelectionTape().recording():
        select_once("key", functools.partial(raising, error))
    assert select_once("key", lambda: "selected") == "selected"


def test_the_forward_of_an_exception_cannot_be_replayed():
    tape = SelectionTape()
    with pytest.raises(ValueError, match="stop"):
        interrupt(tape.recording())
    assert not tape.recorded
    assert not tape._entries
    with pytest.raises(SelectionReplayError, match="ended by an exception: repeat the forward with a new tape"):
        replay(tape)
    with pytest.raises(
        SelectionReplayError, match="cannot record, its forward was ended by an exception: make a new tape"
    ):
        tape.recording().__enter__()


@pytest.mark.parametrize("chunks", [(0,), (0, 3), (0, 2, 4)])
def test_chunks_of_queries_are_selections_of_their_own(chunks):
    selector = Selector()
    module = Checkpointed(Layer("layer", selector, chunks))
    x = batch()
    module(x).square().sum().backward()
    assert selector.calls == len(chunks)
    assert_each_forward_kept_its_own(module.layer, uses=2)
    assert_same_gradients(module, x)


@pytest.mark.parametrize("chunks", [(3, 0), (0, 2, 4), (0,)])
def test_other_chunks_in_the_recomputation_raise(chunks):
    selector = Selector()
    layer = Layer("layer", selector, chunks=(0, 3))
    out = checkpoint(layer, batch(), use_reentrant=False, context_fn=checkpoint_contexts())
    layer.chunks = chunks
    first = (chunks[0], ROWS // len(chunks))
    message = (
        f"asks for ('layer', {first[0]}, {first[1]}, 3) as selection 1 of 2, in its forward this was ('layer', 0, 3"
    )
    with pytest.raises(SelectionReplayError, match=re.escape(message)):
        out.sum().backward()
    assert selector.calls == 2
    # What failed was one recomputation, not the tape.
    layer.chunks = (0, 3)
    out.sum().backward()
    assert_each_forward_kept_its_own(layer)
