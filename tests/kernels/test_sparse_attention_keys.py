"""Which keys are selected, and what they hold."""

import pytest
import torch
from attended import (
    CLOSE,
    CLOSE_LSE,
    assert_attention,
    bf16,
    choose,
    off,
    run,
)
from hyscale_kernels.sparse_attention import reference, sparse_attention
from inputs import DEVICE, INFINITY, normal

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


# What is selected.


@pytest.mark.parametrize("k", [40, 60])
def test_case_32_all_keys_equal_dense_attention(k):
    q, keys = bf16(6, 4, 48), bf16(40, 48, seed=1)
    found, grads = run(sparse_attention, q, keys, choose(6, k, length=40), 0.2, value_width=32)

    def dense(q, keys, indices, scale, values, sinks):
        logits = scale * torch.einsum("thd,sd->ths", q, keys)
        out = torch.einsum("ths,sd->thd", torch.softmax(logits, dim=-1), keys[:, :32])
        return reference.Attended(out, torch.logsumexp(logits, dim=-1), logits)

    wanted, wanted_grads = run(dense, q.double(), keys.double(), None, 0.2)
    assert off(found.out, wanted.out) <= CLOSE
    assert off(found.lse, wanted.lse) <= CLOSE_LSE
    assert all(off(a, b) <= CLOSE for a, b in zip(grads, wanted_grads, strict=True))


def test_case_14_padding_is_ignored_wherever_it_stands():
    q, keys = bf16(3, 4, 32), bf16(60, 32, seed=1)
    # What stands in for no key must not be read.
    keys[0] = INFINITY
    indices = torch.full((3, 70), -1, dtype=torch.int32, device=DEVICE)
    indices[0, [3, 40, 69]] = torch.tensor([9, 4, 59], dtype=torch.int32, device=DEVICE)
    indices[1, 68] = 7
    found, (dq, dkeys) = assert_attention(q, keys.nan_to_num(posinf=0.0), indices)
    same, (_, dkeys_infinite) = run(sparse_attention, q, keys, indices, 32**-0.5)
    assert torch.equal(same.out, found.out)
    assert torch.equal(dkeys_infinite, dkeys)
    assert not bool(found.out[2].any() | dq[2].any())
    assert bool((found.lse[2] == -INFINITY).all())
    alone = sparse_attention(q[1:2], keys, indices[1:2, 68:69], 32**-0.5)
    assert off(alone.out, found.out[1:2].double()) <= CLOSE


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_18_a_rank_whose_rows_are_all_padding(deterministic):
    q, keys = bf16(3, 4, 32), bf16(20, 32, seed=1)
    keys[:] = INFINITY
    indices = torch.full((3, 12), -1, dtype=torch.int32, device=DEVICE)
    found, grads = run(sparse_attention, q, keys, indices, 0.2, sinks=normal(4), deterministic=deterministic)
    assert not bool(found.out.any())
    assert not any(bool(each.any()) for each in grads)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_key_that_every_query_selects_and_one_selected_twice(deterministic):
    q, keys, indices = bf16(20, 4, 32), bf16(30, 32, seed=1), choose(20, 6, length=30)
    indices[:, 2] = 7
    indices[3] = 11
    assert_attention(q, keys, indices, deterministic=deterministic)


def test_keys_that_nobody_selects_have_no_gradient_and_may_be_anything():
    q, keys, indices = bf16(4, 4, 32), bf16(50, 32, seed=1), choose(4, 10, length=20)
    keys[20:] = float("nan")
    for deterministic in (False, True):
        found, (_, dkeys) = run(sparse_attention, q, keys, indices, 0.2, deterministic=deterministic)
        assert bool(found.out.isfinite().all())
        assert bool(dkeys.isfinite().all())
        assert not bool(dkeys[20:].any())


@pytest.mark.parametrize("deterministic", [False, True])
def test_parts_of_the_keys_put_together_are_attention_over_all(deterministic):
    q, keys, indices = bf16(4, 4, 32), bf16(60, 32, seed=1), choose(4, 40, length=60, counts=[40, 10, 0, 31])

    def whole(q, keys):
        return sparse_attention(q, keys, indices, 0.2, deterministic=deterministic).out

    def by_parts(q, keys):
        parts = [
            sparse_attention(q, keys, part, 0.2, deterministic=deterministic) for part in indices.split([10, 30], dim=1)
        ]
        logarithms = torch.stack([part.lse for part in parts])
        # The gradient of a logarithm of nothing is NaN.
        shares = torch.softmax(logarithms, dim=0).nan_to_num()
        return (shares[..., None] * torch.stack([part.out for part in parts])).sum(0).bfloat16()

    grads = []
    for attention in (whole, by_parts):
        leaves = [each.clone().requires_grad_() for each in (q, keys)]
        out = attention(*leaves)
        grads.append([out, *torch.autograd.grad(out, leaves, bf16(4, 4, 32, seed=3))])
    # Parts are rounded too, before they are added up.
    assert all(off(a, b.double()) <= 2 * CLOSE for a, b in zip(*grads, strict=True))


# Values.


def test_logits_of_any_size():
    q, keys, indices = bf16(4, 4, 32), bf16(50, 32, seed=1), choose(4, 40, length=50)
    for scale in (0.0, 1e-3, 3.0, -0.4):
        assert_attention(q, keys, indices, scale=scale, cancelled=True)
    # A single key is all that counts.
    found = sparse_attention(q, keys, indices, 1e4)
    assert bool(found.out.isfinite().all())


def test_sinks_from_none_at_all_to_nothing_else():
    q, keys, indices = bf16(3, 4, 32), bf16(30, 32, seed=1), choose(3, 20, length=30)
    sinks = torch.tensor([-INFINITY, -200.0, 3.0, 200.0], device=DEVICE)
    found = sparse_attention(q, keys, indices, 0.2, sinks=sinks, probabilities=True)
    without = sparse_attention(q, keys, indices, 0.2)
    assert torch.equal(found.out[:, :2], without.out[:, :2])
    assert torch.equal(found.lse, without.lse)
    assert not bool(found.out[:, 3].any())
    _, grads = run(sparse_attention, q, keys, indices, 0.2, sinks=sinks)
    assert all(bool(each.isfinite().all()) for each in grads)
    assert_attention(q, keys, indices, sinks=sinks.clamp(-50, 5))


def test_probabilities_are_the_heads_sums():
    q, keys, indices = bf16(3, 5, 32), bf16(90, 32, seed=1), choose(3, 70, length=90, counts=[70, 0, 9])
    sums = sparse_attention(q, keys, indices, 0.3, probabilities=True).probabilities
    assert not sums.requires_grad
    assert sums.sum(1).tolist() == pytest.approx([5, 0, 5], rel=CLOSE)
    assert sparse_attention(q, keys, indices, 0.3).probabilities is None


def test_a_key_that_is_nan_is_told_and_queries_without_it_are_not_touched():
    q, keys = bf16(2, 4, 32), bf16(20, 32, seed=1)
    keys[5, 3] = float("nan")
    indices = torch.tensor([[5, 6, 7], [1, 2, 3]], dtype=torch.int32, device=DEVICE)
    found = sparse_attention(q, keys, indices, 0.2)
    assert bool(found.out[0].isnan().all())
    assert bool(found.out[1].isfinite().all())
