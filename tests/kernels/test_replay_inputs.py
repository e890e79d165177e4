"""Types of gradients, inputs that are refused, and sizes of real layers."""

import pytest
import torch
from hyscale_kernels.replay import replay, replay_gradients
from hyscale_kernels.scoring.inputs import FP8
from inputs import DEVICE, random
from rescored import assert_bits, assert_gradients, choose, off, slopes, table_at

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


# Autograd.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_have_the_type_of_their_inputs(dtype):
    q, keys, weights = random(3, 6, 32, 20)
    weights = weights.to(dtype)
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    indices = choose(3, 20, 9)
    grads = slopes(indices)
    replay(*leaves, indices).backward(grads)
    found = replay_gradients(grads, *leaves, indices)
    for each, value in zip(leaves, found, strict=True):
        assert each.grad.dtype == each.dtype
        assert off(each.grad, value.to(each.dtype).double()) <= 1e-6


@pytest.mark.parametrize("which", range(3))
def test_only_what_requires_a_gradient_has_one(which):
    leaves = list(random(3, 4, 32, 20))
    leaves[which].requires_grad_()
    replay(*leaves, choose(3, 20, 9)).sum().backward()
    assert [each.grad is not None for each in leaves] == [at == which for at in range(3)]


@pytest.mark.parametrize("changed", ["weights", "indices"])
def test_an_input_changed_before_the_backward_is_noticed(changed):
    q, keys, weights = random(3, 4, 32, 20)
    indices = choose(3, 20, 9)
    scores = replay(q.requires_grad_(), keys, weights, indices)
    {"weights": weights, "indices": indices}[changed].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores.sum().backward()


# Wrong inputs.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"indices": torch.zeros(3, 5, dtype=torch.int64)},
            r"indices must be int32 \(3, k\), are torch.int64 \(3, 5\)",
        ),
        (
            {"indices": torch.zeros(2, 5, dtype=torch.int32)},
            r"indices must be int32 \(3, k\), are torch.int32 \(2, 5\)",
        ),
        ({"indices": torch.full((3, 5), 20, dtype=torch.int32)}, "indices must be -1 or a key, 0 to 19"),
        ({"indices": torch.full((3, 5), -2, dtype=torch.int32)}, "indices must be -1 or a key, 0 to 19"),
        ({"weights": torch.zeros(3, 5)}, r"weights must be \(3, 4\), is \(3, 5\)"),
        ({"keys": torch.zeros(20, 64).bfloat16()}, "q must be"),
        ({"key_scale": torch.zeros(20)}, "key_scale must be positive"),
    ],
)
def test_wrong_inputs_are_refused(changed, message):
    q, keys, weights = random(3, 4, 32, 20)
    inputs = {"q": q, "keys": keys, "weights": weights, "indices": choose(3, 20, 5)}
    inputs |= {name: value.to(DEVICE) for name, value in changed.items()}
    with pytest.raises(ValueError, match=message):
        replay(**inputs)


def test_gradients_that_fit_no_scores_are_refused():
    q, keys, weights = random(3, 4, 32, 20)
    with pytest.raises(ValueError, match=r"grad_scores must be floating point \(3, 5\), is torch.float32 \(3, 4\)"):
        replay_gradients(torch.zeros(3, 4), q, keys, weights, choose(3, 20, 5))


def test_fp8_that_requires_a_gradient_is_refused():
    q, keys, weights = random(3, 4, 32, 20, FP8)
    with pytest.raises(ValueError, match="q is FP8, which holds no gradients"):
        replay(q.requires_grad_(), keys, weights, choose(3, 20, 5))


# At the sizes of a real run.


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
@pytest.mark.parametrize("heads", [4, 32, 64])
def test_a_real_width(gpu, dtype, heads):
    q, keys, weights = random(64, heads, 128, 100_000, dtype)
    indices = choose(64, 100_000, 2048)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    for deterministic in (False, True):
        assert_gradients(q, keys, weights, indices, deterministic)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_twenty_launches_are_equal_bit_for_bit(gpu, dtype):
    q, keys, weights = random(1024, 32, 128, 5000, dtype)
    indices = choose(1024, 5000, 705)
    grads = slopes(indices)
    first = assert_gradients(q, keys, weights, indices, deterministic=True)
    floating = replay_gradients(grads, q, keys, weights, indices)
    for _ in range(20):
        found = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
        assert all(torch.equal(a, b) for a, b in zip(found, first, strict=True))
        again = replay_gradients(grads, q, keys, weights, indices)
        assert torch.equal(again.q, floating.q)
        assert torch.equal(again.weights, floating.weights)


@pytest.mark.gpu
def test_indices_beyond_32_bits(gpu):
    n, topk = 2**20 + 3, 2048
    q, keys, weights = random(n, 2, 32, 3000)
    indices = torch.arange(topk, device=DEVICE, dtype=torch.int32).expand(n, topk).contiguous()
    indices[-1] = torch.arange(3000 - topk, 3000, device=DEVICE)
    scores = replay(q, keys, weights, indices)
    assert torch.equal(scores[-2:], replay(q[-2:], keys, weights[-2:], indices[-2:]))
    grads = torch.zeros(n, topk, device=DEVICE)
    grads[-2:] = slopes(indices[-2:])
    found = replay_gradients(grads, q, keys, weights, indices)
    alone = replay_gradients(grads[-2:].clone(), q[-2:], keys, weights[-2:], indices[-2:])
    assert torch.equal(found.q[-2:], alone.q)
    assert torch.equal(found.weights[-2:], alone.weights)
    assert off(found.keys, alone.keys.double()) < 1e-6
