"""Scores of selected keys and their gradients are those of the oracle."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.replay import reference, replay, replay_gradients
from hyscale_kernels.score_table import score_table, select
from hyscale_kernels.scoring.inputs import FP8
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE, INFINITY, exact, random
from rescored import CLOSE, CLOSE_WEIGHTS, assert_bits, assert_gradients, choose, off, slopes, table_at

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


# The oracle itself.


def test_the_oracle_agrees_with_finite_differences():
    draw = torch.Generator().manual_seed(3)
    indices = torch.tensor([[0, 2, 4, -1], [-1, -1, -1, -1], [4, 4, 1, 0]], dtype=torch.int32)
    shapes = ((3, 2, 4), (5, 4), (3, 2))
    leaves = [torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(lambda q, keys, weights: reference.replay(q, keys, weights, indices), leaves)


def test_the_oracle_is_the_formula():
    q, keys, weights = random(2, 3, 4, 5)
    indices = torch.tensor([[3, -1], [0, 4]], dtype=torch.int32, device=DEVICE)
    grads = torch.tensor([[2.0, 7.0], [-1.0, 0.5]], device=DEVICE)
    scores = reference.replay(q, keys, weights, indices)
    found = reference.gradients(grads, q, keys, weights, indices)
    dq, dkeys, dweights = (torch.zeros_like(each, dtype=torch.float64) for each in (q, keys, weights))
    for t, slot in ((0, 0), (1, 0), (1, 1)):
        s, slope, score = indices[t, slot], grads[t, slot].double(), 0.0
        for h in range(3):
            product = q[t, h].double() @ keys[s].double()
            score += weights[t, h].double() * product.clamp(min=0)
            dweights[t, h] += slope * product.clamp(min=0)
            if product > 0:
                dq[t, h] += slope * weights[t, h].double() * keys[s].double()
                dkeys[s] += slope * weights[t, h].double() * q[t, h].double()
        assert scores[t, slot].item() == pytest.approx(float(score), abs=1e-12)
    assert scores[0, 1] == 0
    for value, wanted in zip(found, (dq, dkeys, dweights), strict=True):
        assert torch.allclose(value, wanted, rtol=0, atol=1e-12)


# Shapes.


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 16, 24, 32, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_head_counts(heads, dtype):
    q, keys, weights = random(4, heads, 64, 50, dtype)
    indices = choose(4, 50, 21, [21, 0, 13, 1])
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize("heads", [4, 6, 16, 32, 64])
def test_case_20_head_counts_without_head_weights(heads):
    q, keys, _ = random(3, heads, 32, 40)
    indices = choose(3, 40, 17)
    assert_bits(replay(q, keys, None, indices), table_at(indices, q, keys, None))
    assert_gradients(q, keys, None, indices)
    q.requires_grad_()
    replay(q, keys, None, indices).sum().backward()
    assert bool(q.grad.any())


@pytest.mark.parametrize("dim", [1, 32, 48, 128, 512])
def test_dims(dim):
    q, keys, weights = random(3, 4, dim, 40)
    indices = choose(3, 40, 20)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize(
    ("heads", "dim", "dtype"), [(128, 128, torch.bfloat16), (32, 512, torch.bfloat16), (64, 512, FP8), (128, 256, FP8)]
)
def test_the_widest_heads(heads, dim, dtype):
    q, keys, weights = random(2, heads, dim, 30, dtype)
    indices = choose(2, 30, 20, [20, 7])
    for deterministic in (False, True):
        assert_gradients(q, keys, weights, indices, deterministic)


@pytest.mark.parametrize("topk", [1, 15, 16, 63, 64, 65, 130])
def test_widths_that_are_no_multiple_of_a_tile(topk):
    q, keys, weights = random(3, 4, 32, 150)
    indices = choose(3, 150, topk)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("topk", [0, 5])
@pytest.mark.parametrize("length", [0, 9])
@pytest.mark.parametrize("deterministic", [False, True])
def test_nothing_selected_or_to_select(n, topk, length, deterministic):
    q, keys, weights = random(n, 4, 32, length)
    indices = torch.full((n, topk), -1, dtype=torch.int32, device=DEVICE)
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    scores = replay(*leaves, indices, deterministic=deterministic)
    assert torch.equal(scores, torch.zeros(n, topk, device=DEVICE))
    scores.sum().backward()
    for each in leaves:
        assert torch.equal(each.grad, torch.zeros_like(each))


def test_case_24_keys_with_a_large_row_stride_and_columns_apart():
    q, keys, weights = random(5, 4, 64, 40)
    indices = choose(5, 40, 20)
    apart = torch.full((40, 1000), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    apart[:, 64:128] = keys
    crossed = torch.empty(64, 40, device=DEVICE, dtype=torch.bfloat16).T.copy_(keys)
    turned = q.transpose(0, 1).contiguous().transpose(0, 1)
    wanted = assert_gradients(q, keys, weights, indices, deterministic=True)
    for others in ((q, apart[:, 64:128]), (q, crossed), (turned, keys)):
        assert torch.equal(replay(*others, weights, indices), replay(q, keys, weights, indices))
        found = assert_gradients(*others, weights, indices, deterministic=True)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@settings(max_examples=25)
@given(
    n=st.integers(1, 5),
    heads=st.integers(1, 20),
    # Sums over keys of a single dimension may cancel each other out, and rounding does not.
    dim=st.integers(16, 40),
    length=st.integers(1, 40),
    topk=st.integers(1, 40),
    fp8=st.booleans(),
    deterministic=st.booleans(),
    data=st.data(),
)
def test_any_shape(n, heads, dim, length, topk, fp8, deterministic, data):
    q, keys, weights = random(n, heads, dim, length, FP8 if fp8 else torch.bfloat16)
    counts = data.draw(st.lists(st.integers(0, topk), min_size=n, max_size=n))
    indices = choose(n, length, topk, counts)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices, deterministic)


# What is selected.


@pytest.mark.parametrize("topk", [1, 7, 30])
def test_selected_scores_are_those_of_the_table_and_the_highest(topk):
    q, keys, weights = exact(6, 4, 32, 40)
    spans = causal_spans(torch.tensor([0, 3, 6, 20, 29, 39], device=DEVICE))
    indices = select(q, keys, weights, spans, topk)
    scores, table = replay(q, keys, weights, indices), score_table(q, keys, weights, spans)
    for row, chosen, all_of in zip(scores, indices, table, strict=True):
        count = int((chosen >= 0).sum())
        assert torch.equal(row[:count], all_of[chosen[:count].long()])
        assert torch.equal(row[:count].sort(descending=True).values, all_of.sort(descending=True).values[:count])


def test_case_14_lengths_around_topk_keep_the_width_and_padding_is_ignored():
    q, keys, weights = random(5, 4, 32, 60)
    indices = choose(5, 60, 40, [0, 1, 39, 40, 40])
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    scores = replay(*leaves, indices)
    assert scores.shape == (5, 40)
    assert not bool(scores[indices < 0].any())
    scores.backward(slopes(indices))
    assert not bool(q.grad[0].any() | weights.grad[0].any())
    assert all(bool(each.grad.isfinite().all()) for each in leaves)
    # Nor does what is padded change others.
    alone = replay_gradients(slopes(indices)[1:2, :1], q[1:2], keys, weights[1:2], indices[1:2, :1])
    assert off(alone.q[0], replay_gradients(slopes(indices), q, keys, weights, indices).q[1].double()) <= 1e-6


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_18_a_rank_whose_rows_are_all_padding(deterministic):
    q, keys, weights = random(6, 4, 32, 30)
    indices = torch.full((6, 12), -1, dtype=torch.int32, device=DEVICE)
    # The first key stands in for none.
    keys[0] = INFINITY
    assert not bool(replay(q, keys, weights, indices).any())
    found = replay_gradients(slopes(indices), q, keys, weights, indices, deterministic=deterministic)
    assert not any(bool(each.any()) for each in found)


def test_padding_between_others_and_in_front():
    q, keys, weights = random(3, 4, 32, 30)
    indices = torch.tensor([[-1, 4, -1, 9], [0, -1, -1, 29], [-1, -1, 3, -1]], dtype=torch.int32, device=DEVICE)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_key_that_every_query_selects_and_one_selected_twice(deterministic):
    q, keys, weights = random(40, 4, 32, 30)
    indices = choose(40, 30, 6)
    indices[:, 2] = 7
    indices[3] = 11
    assert_gradients(q, keys, weights, indices, deterministic)


def test_keys_that_nobody_selects_have_no_gradient():
    q, keys, weights = random(4, 4, 32, 50)
    indices = choose(4, 20, 10)
    assert not bool(assert_gradients(q, keys, weights, indices).keys[20:].any())


# Values.


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_30_scales_from_2_to_the_minus_10_to_2_to_the_10(deterministic):
    q, keys, weights = random(6, 4, 64, 50, FP8)
    draw = torch.Generator().manual_seed(2)
    key_scale = torch.exp2(torch.randint(-10, 11, (50,), generator=draw).float()).to(DEVICE)
    q_scale = torch.exp2(torch.randint(-10, 11, (6, 4), generator=draw).float()).to(DEVICE)
    scales = {"q_scale": q_scale, "key_scale": key_scale}
    indices = choose(6, 50, 30, [30, 0, 4, 30, 29, 1])
    assert_bits(replay(q, keys, weights, indices, **scales), table_at(indices, q, keys, weights, **scales))
    found = assert_gradients(q, keys, weights, indices, deterministic, **scales)
    wanted = reference.gradients(
        slopes(indices).masked_fill(indices < 0, 0.0), q, keys, weights, indices, q_scale, key_scale
    )
    # Query by query, for their scales differ.
    for t in (0, 2, 3, 4, 5):
        assert off(found.q[t], wanted.q[t]) <= CLOSE[FP8]


@pytest.mark.parametrize("heads", [4, 6])
def test_the_same_values_in_bf16_with_scales_have_the_gradients_of_what_is_stored(heads):
    q, keys, weights = random(4, heads, 32, 30)
    draw = torch.Generator().manual_seed(4)
    key_scale = (torch.rand(30, generator=draw) + 0.5).to(DEVICE)
    q_scale = (torch.rand(4, heads, generator=draw) + 0.5).to(DEVICE)
    indices = choose(4, 30, 11)
    grads = slopes(indices)
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    replay(*leaves, indices, q_scale=q_scale, key_scale=key_scale).backward(grads)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    scores = reference.replay(*exact, indices, q_scale, key_scale)
    scores.backward(grads.double())
    for found, wanted in zip(leaves, exact, strict=True):
        # The result itself is BF16.
        assert off(found.grad, wanted.grad) <= CLOSE[torch.bfloat16] + 2**-8


def test_weights_of_fp8_queries_have_gradients():
    q, keys, weights = random(4, 6, 32, 30, FP8)
    indices = choose(4, 30, 11)
    weights.requires_grad_()
    replay(q, keys, weights, indices).sum().backward()
    wanted = reference.gradients(torch.ones(4, 11), q.cpu(), keys.cpu(), weights.cpu(), indices.cpu())
    assert off(weights.grad.cpu(), wanted.weights) <= CLOSE_WEIGHTS[FP8]
