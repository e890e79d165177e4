import contextlib
import functools
import gc
import re
import threading
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.checkpoint import SelectionReplayError, SelectionTape, checkpoint_contexts, select_once
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint, set_checkpoint_early_stop

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


@settings(deadline=None, max_examples=60)
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


def test_threads_have_tapes_of_their_own():
    selectors = [Selector(0), Selector(1)]
    towers = [tower(2, selector) for selector in selectors]
    together = threading.Barrier(2, timeout=60)
    failures = []

    def train(module):
        try:
            for step in range(10):
                x = batch(step)
                together.wait()
                out = module(x)
                together.wait()
                out.square().sum().backward()
                torch.testing.assert_close(x.grad, gradients(module.layer, x)[0])
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=train, args=(module,)) for module in towers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for selector, module in zip(selectors, towers, strict=True):
        assert selector.calls == 10 * 3
        assert_each_forward_kept_its_own(*modules(module.layer))


def test_a_backward_in_another_thread_replays_while_this_one_records():
    selector = Selector()
    module = Checkpointed(Layer("layer", selector))
    x = batch()
    out = module(x).square().sum()
    with SelectionTape().recording() as tape:
        thread = threading.Thread(target=out.backward)
        thread.start()
        thread.join()
        select_once("key", lambda: selector(ROWS))
    assert_each_forward_kept_its_own(module.layer, uses=2)
    assert_same_gradients(module, x)
    replay(tape, "key")


def test_one_tape_is_replayed_in_two_threads_at_once():
    tape = recorded(Selector(), *range(50))
    together = threading.Barrier(2, timeout=60)
    found = []
    context = tape.replaying()

    def recompute():
        mine = []
        with context:
            for key in range(50):
                together.wait()
                mine.append(select_once(key, pytest.fail))
        found.append(mine)

    threads = [threading.Thread(target=recompute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = found
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("backward", [True, False])
def test_a_tape_is_freed_with_the_graph_that_needs_it(backward):
    selector, tapes, kept = Selector(), [], []

    def contexts():
        tape = SelectionTape()
        tapes.append(weakref.ref(tape))
        return tape.recording(), tape.replaying()

    def select(rows, device):
        indices = selector(rows)
        kept.append(weakref.ref(indices))
        return indices

    module = tower(2, select, context_fn=contexts)
    out = module(batch())
    gc.collect()
    # The outer graph needs the tape inside as well, which made its selection in this forward.
    assert [tape() is not None for tape in tapes] == [True, True]
    assert all(indices() is not None for indices in kept)
    if backward:
        out.sum().backward()
    del out
    gc.collect()
    # Those that the recomputation made have gone, too.
    assert len(tapes) == (3 if backward else 2)
    assert all(tape() is None for tape in tapes)
    assert all(indices() is None for indices in kept)


def test_offloaded_indices_are_copies_and_their_own_memory_is_freed():
    selector, kept = Selector(), []

    def select(rows, device):
        indices = selector(rows)
        kept.append((weakref.ref(indices), weakref.ref(indices.untyped_storage())))
        return indices

    layer = Layer("layer", select)
    x = batch()
    out = checkpoint(layer, x, use_reentrant=False, context_fn=checkpoint_contexts(offload=True))
    gc.collect()
    ((tensor, storage),) = kept
    assert tensor() is None
    assert storage() is None
    out.sum().backward()
    assert_each_forward_kept_its_own(layer, uses=2)


def test_every_replay_of_offloaded_indices_gives_a_tensor_of_its_own():
    tape = recorded(Selector(), "key", offload=True)
    (first,) = replay(tape, "key")
    expected = first.clone()
    first.zero_()
    assert torch.equal(replay(tape, "key")[0], expected)


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


@pytest.mark.gpu
def test_offloaded_indices_come_back_whole(gpu):
    """Behind queued work, on another stream than they left on and without a wait of the host between."""
    n, topk, count = 4096, 1024, 12
    tape = SelectionTape(offload=True)
    busy = torch.randn(n, n, device="cuda")

    def select(key):
        # Written long after it was asked for.
        return ((busy @ busy)[:, :topk] * 0 + key).to(torch.int32)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), tape.recording():
        for key in range(count):
            select_once(key, functools.partial(select, key))
            # Takes the memory of the indices if it is free too early.
            torch.full((n, topk), -1, dtype=torch.int32, device="cuda")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(2):
        with tape.replaying():
            for key in range(count):
                indices = select_once(key, pytest.fail)
                assert indices.device == busy.device
                busy @ busy
                wrong += (indices != key).sum()
                del indices
    assert wrong.item() == 0


@pytest.mark.gpu
def test_a_tape_dropped_under_its_copies_harms_no_other(gpu):
    n, topk = 8192, 2048
    with SelectionTape(offload=True).recording():
        select_once("dropped", lambda: torch.full((n, topk), -1, dtype=torch.int32, device="cuda"))
    tape = SelectionTape(offload=True)
    with tape.recording():
        select_once("kept", lambda: torch.full((n, topk), 1, dtype=torch.int32, device="cuda"))
    # Fetched, but nobody comes for it.
    with contextlib.suppress(ValueError), tape.replaying():
        raise ValueError
    (indices,) = replay(tape, "kept")
    assert bool((indices == 1).all())


def active_bytes():
    """Of tensors, and of memory that other streams still use; asking for memory lets the allocator see who is done."""
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")
    return torch.cuda.memory_stats()["active_bytes.all.current"]


@pytest.mark.gpu
def test_offloaded_indices_leave_the_device(gpu):
    n, topk, count = 8192, 2048, 4
    gc.collect()
    before = active_bytes()
    tape = SelectionTape(offload=True)
    with tape.recording():
        for key in range(count):
            select_once(key, lambda: torch.zeros(n, topk, dtype=torch.int32, device="cuda"))
    assert active_bytes() == before
    assert all(entry.kept.host.is_pinned() for entry in tape._entries)
    with tape.replaying():
        for key in range(count):
            # The next one is there, no other.
            assert active_bytes() == before + 4 * n * topk
            select_once(key, pytest.fail)
        assert active_bytes() == before


@pytest.mark.gpu
@OFFLOAD
@EARLY_STOP
def test_a_recomputation_on_the_device_replays(gpu, early_stop, offload):
    selector = Selector()
    module = tower(3, selector, context_fn=checkpoint_contexts(offload)).cuda()
    inputs = [batch(seed).detach().cuda().requires_grad_() for seed in range(3)]
    with set_checkpoint_early_stop(early_stop):
        outs = [module(x) for x in inputs]
        for out in reversed(outs):
            out.square().sum().backward()
    assert selector.calls == 3 * 5
    assert_each_forward_kept_its_own(*modules(module.layer))
    assert_same_gradients(module, *inputs)
