"""Where indices are between forward and recomputation, and how long."""

import contextlib
import functools
import gc
import weakref

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionTape, checkpoint_contexts, select_once
from taped import (
    EARLY_STOP,
    OFFLOAD,
    Layer,
    Selector,
    assert_each_forward_kept_its_own,
    assert_same_gradients,
    batch,
    modules,
    recorded,
    replay,
    tower,
)
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop


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
