"""The loss over selected keys and its gradients are those of the oracle."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.index_loss import dense_index_loss, reference, sparse_index_loss
from hyscale_kernels.index_loss.sparse import divergences as sparse_divergences
from hyscale_kernels.replay import replay
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE
from losses import (
    assert_sparse,
    attention,
    choose,
    draw,
    indexer,
    leaves_of,
)

# The oracles themselves.


def test_the_sparse_oracle_agrees_with_finite_differences():
    indices = torch.tensor([[0, 2, 4, -1], [-1, -1, -1, -1], [4, 3, 1, 0]], dtype=torch.int32)
    teacher = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    leaves = [
        torch.randn(shape, generator=torch.Generator().manual_seed(at), dtype=torch.float64).requires_grad_()
        for at, shape in enumerate(((3, 2, 4), (5, 4), (3, 2)))
    ]
    assert torch.autograd.gradcheck(
        lambda q, keys, weights: reference.sparse_index_loss(q, keys, weights, indices, teacher, scale=0.7), leaves
    )


def test_the_dense_oracle_agrees_with_finite_differences():
    spans = torch.tensor([[0, 5], [3, 3], [1, 4]])
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(3, 4, 6, generator=generator), torch.randn(5, 2, 6, generator=generator)
    leaves = [
        torch.randn(shape, generator=torch.Generator().manual_seed(at), dtype=torch.float64).requires_grad_()
        for at, shape in enumerate(((3, 2, 4), (5, 4), (3, 2)))
    ]
    assert torch.autograd.gradcheck(
        lambda q, keys, weights: reference.dense_index_loss(q, keys, weights, spans, *heads, 0.4, scale=0.7), leaves
    )


def test_the_divergence_is_the_formula():
    shares = torch.tensor([0.5, 0.0, 0.25, 0.25], dtype=torch.float64)
    student = torch.tensor([0.25, 0.25, 0.25, 0.25], dtype=torch.float64)
    wanted = 0.5 * math.log(2)
    assert reference.divergence(shares, student.log()).item() == pytest.approx(wanted, abs=1e-15)
    scores, indices = torch.zeros(1, 4, device=DEVICE), torch.arange(4, dtype=torch.int32, device=DEVICE)[None]
    # Shares are divided by their sum; padding is ignored, whatever it holds.
    losses, grads = sparse_divergences(scores, indices, 3 * shares[None].to(DEVICE), 1.0)
    assert losses.item() == pytest.approx(wanted, abs=1e-6)
    assert torch.allclose(grads.cpu(), (student - shares).float()[None], atol=1e-6)


def test_dense_attention_of_groups_is_that_of_repeated_keys():
    inputs = indexer(3, 2, 32, 9)
    spans = causal_spans(torch.tensor([2, 5, 8]))
    heads, by_group = attention(3, 4, 16, 9, groups=2)
    repeated = by_group.repeat_interleave(2, dim=1)
    grouped = reference.dense_index_loss(*(each.cpu() for each in inputs), spans, heads.cpu(), by_group.cpu(), 0.3)
    wanted = reference.dense_index_loss(*(each.cpu() for each in inputs), spans, heads.cpu(), repeated.cpu(), 0.3)
    assert torch.equal(grouped, wanted)


# Sparse.


@pytest.mark.parametrize("heads", [2, 3, 4, 16, 32, 64])
def test_case_20_head_counts(heads):
    indices = choose(5, 60, 20, [20, 0, 13, 1, 20])
    assert_sparse(indexer(5, heads, 64, 60), indices, draw((5, 20), 5, torch.rand))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("scale", [1.0, 0.125])
def test_sparse_reductions(reduction, scale):
    indices = choose(6, 40, 17, [17, 3, 0, 17, 17, 9])
    assert_sparse(indexer(6, 4, 32, 40), indices, draw((6, 17), 5, torch.rand), reduction, scale=scale)


def test_case_14_empty_rows_and_one_key_have_no_loss_and_no_gradient():
    indices = choose(4, 40, 12, [0, 1, 11, 12])
    loss, (q, keys, weights) = assert_sparse(indexer(4, 4, 32, 40), indices, draw((4, 12), 5, torch.rand))
    assert loss[:2].tolist() == [0, 0]
    assert not bool(q.grad[0].any() | weights.grad[0].any())
    assert bool(q.grad[2].any())
    assert bool(keys.grad.isfinite().all())


def test_case_18_all_rows_padding():
    indices = torch.full((3, 5), -1, dtype=torch.int32, device=DEVICE)
    leaves, _ = leaves_of(indexer(3, 4, 32, 20))
    loss = sparse_index_loss(*leaves, indices, torch.full((3, 5), float("nan"), device=DEVICE))
    assert loss.item() == 0
    loss.backward()
    assert not any(bool(each.grad.any()) for each in leaves)


def test_what_the_teacher_holds_at_padding_is_ignored():
    inputs, indices = indexer(3, 4, 32, 20), choose(3, 20, 8, [8, 5, 0])
    teacher = draw((3, 8), 5, torch.rand)
    wanted = sparse_index_loss(*inputs, indices, teacher, reduction="none")
    for value in (7.0, -1.0, float("nan"), float("inf")):
        found = sparse_index_loss(*inputs, indices, teacher.masked_fill(indices < 0, value), reduction="none")
        assert torch.equal(found, wanted)


def test_teachers_with_zeros_and_nothing_else():
    indices = choose(3, 20, 8)
    teacher = draw((3, 8), 5, torch.rand)
    teacher[0, 2:] = 0
    teacher[1] = 0
    loss, (q, _, _) = assert_sparse(indexer(3, 4, 32, 20), indices, teacher)
    assert loss[1] == 0
    assert not bool(q.grad[1].any())


def test_the_sum_of_a_teacher_does_not_matter():
    inputs, indices = indexer(3, 4, 32, 20), choose(3, 20, 8)
    teacher = draw((3, 8), 5, torch.rand)
    wanted = sparse_index_loss(*inputs, indices, teacher, reduction="none")
    assert torch.allclose(sparse_index_loss(*inputs, indices, 64 * teacher, reduction="none"), wanted, atol=1e-6)


def test_a_teacher_equal_to_the_softmax_has_no_loss_and_the_gradient_vanishes():
    inputs, indices = indexer(3, 4, 32, 20), choose(3, 20, 8)
    leaves, _ = leaves_of(inputs)
    teacher = torch.softmax(replay(*inputs, indices), dim=-1)
    loss = sparse_index_loss(*leaves, indices, teacher)
    assert abs(loss.item()) < 1e-6
    loss.backward()
    assert all(float(each.grad.abs().max()) < 1e-5 for each in leaves)


@pytest.mark.parametrize("seed", range(3))
def test_a_divergence_is_not_negative(seed):
    losses = sparse_index_loss(
        *indexer(6, 4, 32, 40, seed), choose(6, 40, 17, seed=seed), draw((6, 17), seed, torch.rand), reduction="none"
    )
    assert bool((losses > 0).all())


@pytest.mark.parametrize("stage", ["sparse", "dense"])
def test_case_29_a_coefficient_of_0_gives_gradients_of_0(stage):
    leaves, _ = leaves_of(indexer(4, 4, 32, 20))
    if stage == "sparse":
        loss = sparse_index_loss(*leaves, choose(4, 20, 8), draw((4, 8), 5, torch.rand))
    else:
        spans = causal_spans(torch.tensor([3, 9, 15, 19], device=DEVICE))
        loss = dense_index_loss(*leaves, spans, *attention(4, 2, 16, 20), 0.3)
    (0.0 * loss).backward()
    for each in leaves:
        assert torch.equal(each.grad, torch.zeros_like(each))


def test_rows_taken_in_parts_change_nothing(monkeypatch):
    scores, indices, teacher = draw((9, 7)), choose(9, 20, 7, [7, 7, 0, 3, 7, 7, 1, 2, 7]), draw((9, 7), 3, torch.rand)
    wanted = sparse_divergences(scores, indices, teacher, 0.5)
    monkeypatch.setattr("hyscale_kernels.index_loss.sparse.MOST_AT_ONCE", 2)
    for found, like in zip(sparse_divergences(scores, indices, teacher, 0.5), wanted, strict=True):
        assert torch.allclose(found, like, rtol=0, atol=1e-6)


def test_deterministic_gradients_do_not_depend_on_the_order_of_queries():
    (q, keys, weights), indices = indexer(20, 4, 32, 30), choose(20, 30, 12)
    teacher = draw((20, 12), 5, torch.rand)
    found = []
    for order in (torch.arange(20), torch.randperm(20, generator=torch.Generator().manual_seed(1))):
        order = order.to(DEVICE)
        leaf = keys.detach().clone().requires_grad_()
        sparse_index_loss(
            q[order], leaf, weights[order], indices[order], teacher[order], reduction="sum", deterministic=True
        ).backward()
        found.append(leaf.grad)
    assert torch.equal(*found)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    n=st.integers(0, 5),
    heads=st.integers(1, 9),
    length=st.integers(1, 30),
    topk=st.integers(1, 30),
    reduction=st.sampled_from(["sum", "none"]),
    deterministic=st.booleans(),
    data=st.data(),
)
def test_any_sparse_shape(n, heads, length, topk, reduction, deterministic, data):
    counts = data.draw(st.lists(st.integers(0, topk), min_size=n, max_size=n))
    indices = choose(n, length, topk, counts)
    teacher = draw((n, topk), 5, torch.rand)
    assert_sparse(indexer(n, heads, 32, length), indices, teacher, reduction, deterministic)
