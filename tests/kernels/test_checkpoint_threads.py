"""Forwards and backwards in several threads at once."""

import threading

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionTape, select_once
from taped import (
    ROWS,
    Checkpointed,
    Layer,
    Selector,
    assert_each_forward_kept_its_own,
    assert_same_gradients,
    batch,
    gradients,
    modules,
    recorded,
    replay,
    tower,
)


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
