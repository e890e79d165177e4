"""Attention over selected keys and its gradients are those of the oracle, whatever the shape."""

import pytest
import torch
from attended import (
    assert_attention,
    bf16,
    choose,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.sparse_attention import reference, sparse_attention
from inputs import DEVICE, INFINITY, normal

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


# The oracle itself.


def test_the_oracle_agrees_with_finite_differences():
    indices = torch.tensor([[0, 2, 4, -1], [-1, -1, -1, -1], [4, 1, -1, 0]], dtype=torch.int32)
    shapes = ((3, 4, 3), (5, 2, 3), (5, 2, 2), (4,))
    leaves = [normal(*shape, seed=seed).cpu().double().requires_grad_() for seed, shape in enumerate(shapes)]

    def attended(q, keys, values, sinks):
        found = reference.sparse_attention(q, keys, values, indices, 0.7, sinks)
        return found.out, found.lse[::2]

    assert torch.autograd.gradcheck(attended, leaves)


def test_the_oracle_is_the_formula():
    q, keys = bf16(2, 2, 3), bf16(5, 3, seed=1)
    sinks = torch.tensor([0.3, -1.0], device=DEVICE)
    indices = torch.tensor([[3, -1], [0, 4]], dtype=torch.int32, device=DEVICE)
    found = reference.sparse_attention(q, keys, None, indices, 0.5, sinks, 2)
    for t, chosen in ((0, [3]), (1, [0, 4])):
        for h in range(2):
            terms = [torch.exp(0.5 * (q[t, h].double() @ keys[s].double())) for s in chosen]
            total = sum(terms)
            out = sum(term * keys[s, :2].double() for term, s in zip(terms, chosen, strict=True))
            assert torch.allclose(found.lse[t, h], total.log(), rtol=0, atol=1e-12)
            assert torch.allclose(found.out[t, h], out / (total + sinks[h].double().exp()), rtol=0, atol=1e-12)


# Shapes.


def test_latent_attention_of_64_heads():
    assert_attention(
        bf16(3, 64, 576), bf16(90, 576, seed=1), choose(3, 70, length=90, counts=[70, 0, 33]), value_width=512
    )


def test_latent_attention_of_128_heads():
    q, keys, indices = bf16(2, 128, 576), bf16(90, 576, seed=1), choose(2, 70, length=90)
    assert_attention(q, keys, indices, value_width=512, deterministic=True)


def test_shared_keys_and_values_with_sinks():
    """Compressed entries and a window of keys in one list of indices, in one softmax."""
    entries, window = choose(3, 40, length=100), torch.arange(100, 140, device=DEVICE).int().repeat(3, 1)
    window[1, 7:] = -1
    indices = torch.cat([entries, window], dim=1)
    assert_attention(bf16(3, 64, 512), bf16(140, 512, seed=1), indices, sinks=normal(64, seed=2))


@pytest.mark.parametrize("per_group", [False, True])
@pytest.mark.parametrize("deterministic", [False, True])
def test_24_heads_in_two_groups(per_group, deterministic):
    q, keys, values = bf16(3, 24, 256), bf16(90, 2, 256, seed=1), bf16(90, 2, 256, seed=2)
    indices = choose(*((3, 2, 70) if per_group else (3, 70)), length=90, counts=[70, 0, 33, 70, 2, 5])
    assert_attention(q, keys, indices, values=values, deterministic=deterministic)


@pytest.mark.parametrize("heads", [1, 3, 16, 17, 65, 130])
def test_head_counts(heads):
    assert_attention(bf16(2, heads, 32), bf16(40, 32, seed=1), choose(2, 20, length=40), sinks=normal(heads, seed=2))


@pytest.mark.parametrize(("width", "value_width"), [(1, 1), (7, 3), (16, 16), (48, 32), (48, 48), (72, 64), (96, 40)])
def test_widths_of_keys_that_are_values(width, value_width):
    q, keys, indices = bf16(3, 4, width), bf16(40, width, seed=1), choose(3, 20, length=40)
    assert_attention(q, keys, indices, value_width=value_width)


@pytest.mark.parametrize(("width", "value_width"), [(16, 1), (24, 300), (192, 128), (320, 320)])
def test_widths_of_separate_values(width, value_width):
    q, keys, values = bf16(3, 4, width), bf16(40, 2, width, seed=1), bf16(40, 2, value_width, seed=2)
    assert_attention(q, keys, choose(3, 20, length=40), values=values)


@pytest.mark.parametrize("k", [1, 15, 31, 32, 33, 64, 65, 130])
def test_widths_of_indices_that_are_no_multiple_of_a_tile(k):
    assert_attention(bf16(3, 4, 32), bf16(150, 32, seed=1), choose(3, k, length=150))


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("k", [0, 5])
@pytest.mark.parametrize("length", [0, 9])
@pytest.mark.parametrize("deterministic", [False, True])
def test_nothing_selected_or_to_select(n, k, length, deterministic):
    leaves = [each.requires_grad_() for each in (bf16(n, 4, 32), bf16(length, 32), normal(4))]
    q, keys, sinks = leaves
    indices = torch.full((n, k), -1, dtype=torch.int32, device=DEVICE)
    found = sparse_attention(q, keys, indices, 0.3, sinks=sinks, probabilities=True, deterministic=deterministic)
    assert torch.equal(found.out, torch.zeros(n, 4, 32, device=DEVICE, dtype=torch.bfloat16))
    assert bool((found.lse == -INFINITY).all())
    assert torch.equal(found.probabilities, torch.zeros(n, k, device=DEVICE))
    found.out.sum().backward()
    for each in leaves:
        assert torch.equal(each.grad, torch.zeros_like(each))


def test_case_24_keys_with_a_large_row_stride_and_columns_apart():
    q, keys, indices = bf16(3, 4, 48), bf16(40, 48, seed=1), choose(3, 20, length=40)
    apart = torch.full((40, 1000), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    apart[:, 64:112] = keys
    crossed = torch.empty(48, 40, device=DEVICE, dtype=torch.bfloat16).T.copy_(keys)
    turned = q.transpose(0, 1).contiguous().transpose(0, 1)
    wanted = assert_attention(q, keys, indices, deterministic=True, value_width=32)
    for others in ((q, apart[:, 64:112]), (q, crossed), (turned, keys)):
        found = run(sparse_attention, *others, indices, 48**-0.5, deterministic=True, value_width=32)
        assert torch.equal(found[0].out, wanted[0].out)
        assert all(torch.equal(a, b) for a, b in zip(found[1], wanted[1], strict=True))


def test_groups_of_a_larger_tensor():
    both = bf16(40, 2, 2, 32, seed=1)
    q, indices = bf16(3, 4, 32), choose(3, 20, length=40)
    assert_attention(q, both[:, 0], indices, values=both[:, 1])


@settings(max_examples=15)
@given(
    n=st.integers(1, 4),
    groups=st.integers(1, 3),
    group_heads=st.integers(1, 18),
    # The slopes of few dimensions may cancel each other out, and rounding does not.
    width=st.integers(16, 80),
    value_width=st.integers(1, 80),
    length=st.integers(2, 40),
    k=st.integers(1, 70),
    separate=st.booleans(),
    per_group=st.booleans(),
    sinks=st.booleans(),
    deterministic=st.booleans(),
    data=st.data(),
)
def test_any_shape(
    n, groups, group_heads, width, value_width, length, k, separate, per_group, sinks, deterministic, data
):
    heads = groups * group_heads
    counts = data.draw(st.lists(st.integers(0, k), min_size=n, max_size=n))
    indices = choose(*((n, groups, k) if per_group else (n, k)), length=length, counts=counts)
    values = bf16(length, groups, value_width, seed=2) if separate else None
    assert_attention(
        bf16(n, heads, width),
        bf16(length, groups, width, seed=1),
        indices,
        deterministic=deterministic,
        cancelled=True,
        sinks=normal(heads, seed=3) if sinks else None,
        **({"values": values} if separate else {"value_width": min(width, value_width)}),
    )
