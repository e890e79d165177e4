"""Gradients keep every bit that they promise, whatever their size and the order of queries."""

import pytest
import torch
from hyscale_kernels.replay import reference, replay, replay_gradients
from hyscale_kernels.replay.gradients import in_ones, units_per_one
from hyscale_kernels.scoring.inputs import FP8, Scored
from inputs import DEVICE, INFINITY, exact, random
from rescored import CLOSE, choose, off, slopes, table_at

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


def test_small_whole_numbers_have_exact_sums():
    q, keys, weights = exact(5, 4, 32, 40)
    apart = torch.full((40, 999), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    apart[:, 5:37] = keys
    indices = choose(5, 40, 23)
    assert torch.equal(replay(q, apart[:, 5:37], weights, indices), table_at(indices, q, keys, weights))
    grads = torch.randint(-3, 4, (5, 23), generator=torch.Generator().manual_seed(1)).float().to(DEVICE)
    wanted = reference.gradients(grads, q, keys, weights, indices)
    for deterministic in (False, True):
        found = replay_gradients(grads, q, apart[:, 5:37], weights, indices, deterministic=deterministic)
        assert torch.equal(found.q.double(), wanted.q)
        assert torch.equal(found.weights.double(), wanted.weights)
        assert torch.allclose(found.keys.double(), wanted.keys, rtol=0, atol=1e-12)


def test_a_score_that_is_nan_is_told_and_others_are_not_touched():
    q, keys, weights = random(3, 4, 32, 20)
    keys[5, 3] = float("nan")
    indices = torch.tensor([[5, 6, 7], [1, 2, 3], [2, 3, 4]], dtype=torch.int32, device=DEVICE)
    scores = replay(q, keys, weights, indices)
    assert scores.isnan().tolist() == [[True, False, False], [False] * 3, [False] * 3]
    found = replay_gradients(torch.ones(3, 3, device=DEVICE), q, keys, weights, indices)
    assert bool(found.q[0].isnan().any())
    assert bool(found.q[1:].isfinite().all())
    assert bool(found.keys.isfinite().all())
    assert bool(found.weights.isfinite().all())


def test_products_of_zero_have_no_gradient():
    q, keys, weights = random(3, 4, 32, 20)
    indices = choose(3, 20, 9)
    found = replay_gradients(slopes(indices), torch.zeros_like(q), keys, weights, indices)
    assert not any(bool(each.any()) for each in found)


# Determinism.


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_the_order_of_queries_changes_no_bit(dtype):
    q, keys, weights = random(30, 6, 32, 40, dtype)
    indices = choose(30, 40, 20)
    grads = slopes(indices)
    first = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
    for seed in range(3):
        order = torch.randperm(30, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        q8 = q.view(torch.int8) if dtype == FP8 else q
        moved = q8[order].view(dtype)
        found = replay_gradients(grads[order], moved, keys, weights[order], indices[order], deterministic=True)
        assert torch.equal(found.keys, first.keys)
        assert torch.equal(found.q, first.q[order])
        assert torch.equal(found.weights, first.weights[order])


def test_what_a_fixed_point_loses_is_far_below_fp32():
    q, keys, weights = random(30, 4, 32, 40)
    indices = choose(30, 40, 20)
    grads = slopes(indices)
    fixed = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
    floating = replay_gradients(grads, q, keys, weights, indices)
    assert off(fixed.keys, floating.keys.double()) < 1e-6
    assert torch.equal(fixed.q, floating.q)
    assert torch.equal(fixed.weights, floating.weights)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_gradients_of_any_size_neither_overflow_nor_vanish(size):
    q, keys, weights = random(6, 4, 32, 10)
    indices = torch.full((6, 4), 3, dtype=torch.int32, device=DEVICE)
    grads = torch.full((6, 4), size, device=DEVICE)
    found = replay_gradients(grads, q, keys, weights.abs(), indices, deterministic=True)
    wanted = reference.gradients(grads, q, keys, weights.abs(), indices)
    assert off(found.keys, wanted.keys) <= CLOSE[q.dtype]


def test_no_gradient_at_all_has_a_unit_too():
    q, keys, weights = random(3, 4, 32, 10)
    indices = choose(3, 10, 4)
    found = replay_gradients(torch.zeros(3, 4, device=DEVICE), q, keys, weights, indices, deterministic=True)
    assert not any(bool(each.any()) for each in found)


def test_no_bound_makes_nan_of_the_gradients_of_keys():
    q, keys, weights = random(2, 4, 32, 10)
    indices = choose(2, 10, 4)
    grads = torch.full((2, 4), INFINITY, device=DEVICE)
    found = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
    assert bool(found.keys.isnan().all())


def test_the_unit_is_a_power_of_two_that_the_bound_cannot_overflow():
    q, keys, weights = random(5, 3, 32, 10)
    scored = Scored.of(q, keys, weights, torch.zeros(5, 2, dtype=torch.int32, device=DEVICE))
    indices = choose(5, 10, 4, [4, 3, 0, 4, 1])
    grads = slopes(indices)
    per_one = units_per_one(scored, indices, grads)
    bound = (weights.abs() * q.float().abs().amax(-1)).sum(-1) @ grads.nan_to_num().abs().sum(-1)
    assert 2**59.9 <= float(bound * per_one) < 2**61
    assert torch.frexp(per_one).mantissa.item() == 0.5
    sums = torch.tensor([[1, -(2**40)], [2**60, 0]], device=DEVICE)
    assert torch.equal(in_ones(sums, torch.full((1,), 2.0**10, device=DEVICE)).double(), sums / 2.0**10)
