"""Queries that share a list of keys in the backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.sparse_attention import api, query_pairs, sparse_attention
from hyscale_kernels.sparse_attention.attend import attend
from hyscale_kernels.sparse_attention.gradients import Returned, gradients
from hyscale_kernels.sparse_attention.inputs import Attention
from inputs import DEVICE, normal

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

# Relative to the norm: gradients are BF16, and so are the factors of products.
CLOSE = 5e-3


def rows(keys, k):
    """Indices ``[n, k]`` of ascending keys, -1 after them."""
    padded = [sorted(each) + [-1] * (k - len(each)) for each in keys]
    return torch.tensor(padded, dtype=torch.int32, device=DEVICE).view(len(keys), k)


def alike(n, k, length, seed=0):
    """Ascending keys, a few of which a query does not have from the one before."""
    draw = torch.Generator().manual_seed(seed)
    keys = set(torch.randperm(length, generator=draw)[:k].tolist())
    found = []
    for _ in range(n):
        found.append(keys)
        gone = set(list(keys)[: k // 8])
        new = [key for key in torch.randperm(length, generator=draw).tolist() if key not in keys]
        keys = keys - gone | set(new[: len(gone)])
    return rows(found, k)


def off(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


keys_of_a_query = st.sets(st.integers(0, 30), max_size=12)


@settings(max_examples=60)
@given(keys=st.lists(keys_of_a_query, min_size=1, max_size=9), most=st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_two_pairs_have_one_list_with_each_key_once(keys, most):
    indices = rows(keys, 12)
    pairs = query_pairs(indices, most)
    together = 0
    for first in range(0, len(keys), 4):
        own = keys[first : first + 4]
        union = sorted(set().union(*own))
        whole = len(own) == 4 and len(union) <= most * 12
        count = int(pairs.counts[first // 4, 0])
        assert count == (len(union) if whole else -1)
        if whole:
            assert pairs.keys[first // 4, 0, :count].tolist() == union
            for query, of_query in enumerate(own, first):
                places = {key: place for place, key in enumerate(sorted(of_query))}
                assert pairs.slots[query, 0, :count].tolist() == [places.get(key, -1) for key in union]
        together += 4 * whole
    assert float(pairs.share) == pytest.approx(together / len(keys))


def test_lists_of_groups_are_apart():
    indices = torch.stack([alike(8, 16, 60, seed=1), alike(8, 16, 60, seed=2)], dim=1)
    pairs = query_pairs(indices, 3.0)
    assert bool((pairs.counts > 0).all())
    for group in range(2):
        alone = query_pairs(indices[:, group], 3.0)
        assert torch.equal(pairs.counts[:, group], alone.counts[:, 0])
        for query in range(8):
            count = alone.counts[query // 4, 0]
            assert torch.equal(pairs.keys[query // 4, group, :count], alone.keys[query // 4, 0, :count])
            assert torch.equal(pairs.slots[query, group, :count], alone.slots[query, 0, :count])


@pytest.mark.parametrize("row", [[5, 3, 9, -1], [3, 3, 5, 9], [3, -1, 5, 9]])
@pytest.mark.parametrize("place", range(4))
def test_keys_in_any_other_order_stay_by_themselves(row, place):
    indices = torch.tensor([[3, 5, 9, -1]] * 4, dtype=torch.int32, device=DEVICE)
    assert query_pairs(indices).counts.tolist() == [[3]]
    indices[place] = torch.tensor(row)
    pairs = query_pairs(indices)
    assert pairs.counts.tolist() == [[-1]]
    assert float(pairs.share) == 0


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("k", [0, 1, 7])
def test_nothing_to_pair(n, k):
    pairs = query_pairs(torch.full((n, k), -1, dtype=torch.int32, device=DEVICE))
    assert pairs.counts.shape == ((n + 3) // 4, 1)
    assert float(pairs.share) <= 1


def test_what_cannot_be_paired_is_told():
    with pytest.raises(ValueError, match="int32"):
        query_pairs(torch.zeros(3, 4, device=DEVICE))
    with pytest.raises(ValueError, match="1 to 4"):
        query_pairs(torch.zeros(3, 4, dtype=torch.int32, device=DEVICE), 5.0)
    q, keys = normal(3, 4, 32).bfloat16(), normal(9, 32).bfloat16()
    indices = torch.zeros(3, 4, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="pairs must be"):
        sparse_attention(q, keys, indices, 0.2, pairs=query_pairs(indices[:2]))


def backward(indices, pairs, deterministic, heads=4, groups=1, values=None, sinks=None, left_bytes=2**20):
    """Gradients of random inputs with these indices."""
    n, length = len(indices), 80
    q, keys = normal(n, heads, 48, seed=1).bfloat16(), normal(length, groups, 48, seed=2).bfloat16()
    given = Attention.of(q, keys, values, indices, sinks, 0.2, 32 if values is None else values.shape[-1])
    out, lse, _ = attend(given, False)
    grads = Returned(normal(*out.shape, seed=3).bfloat16(), normal(*lse.shape, seed=4).masked_fill(lse.isinf(), 0.0))
    return gradients(given, Returned(out, lse), grads, deterministic, pairs, left_bytes=left_bytes)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("heads", [3, 20, 70])
def test_pairs_have_the_gradients_of_one_query_at_a_time(heads, deterministic):
    indices = alike(10, 40, 80)
    indices[6] = rows([set(range(40))], 40)[0]
    indices[7] = rows([set(range(40, 80))], 40)[0]
    pairs = query_pairs(indices, 1.9)
    assert (pairs.counts[:, 0] > 0).tolist() == [True, False, False]
    wanted = backward(indices, None, deterministic, heads)
    for found, like in zip(backward(indices, pairs, deterministic, heads), wanted, strict=True):
        assert (found is None) == (like is None)
        assert like is None or off(found, like) <= CLOSE


@pytest.mark.parametrize("per_group", [False, True])
def test_pairs_of_groups_with_values_and_sinks(per_group):
    indices = alike(8, 40, 80)
    if per_group:
        indices = torch.stack([indices, alike(8, 40, 80, seed=7)], dim=1)
        indices[1, 0] = rows([set(range(0, 80, 2))], 40)[0]
    pairs = query_pairs(indices, 1.5)
    assert 0 < float(pairs.share) <= 1
    assert per_group == (float(pairs.share) < 1)
    options = {"groups": 2, "values": normal(80, 2, 24, seed=5).bfloat16(), "sinks": normal(4, seed=6)}
    wanted = backward(indices, None, False, **options)
    found = backward(indices, pairs, False, **options)
    assert all(off(a, b) <= CLOSE for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("deterministic", [False, True])
def test_many_launches_are_as_one(deterministic):
    indices = alike(9, 40, 80)
    pairs = query_pairs(indices)
    once = backward(indices, pairs, deterministic)
    again = backward(indices, pairs, deterministic, left_bytes=1)
    assert torch.equal(again.q, once.q)
    assert off(again.keys, once.keys) <= CLOSE
    assert not deterministic or torch.equal(again.keys, once.keys)


def test_a_query_without_keys_beside_one_with():
    indices = alike(4, 12, 30)
    indices[1] = -1
    pairs = query_pairs(indices)
    assert float(pairs.share) == 1
    q, keys = normal(4, 4, 32).bfloat16(), normal(30, 32, seed=1).bfloat16()
    leaves = [each.requires_grad_() for each in (q, keys)]
    for each in (pairs, None):
        out = sparse_attention(*leaves, indices, 0.2, pairs=each).out
        grads = torch.autograd.grad(out, leaves, torch.ones_like(out))
        assert not bool(grads[0][1].any())
        assert all(bool(each.isfinite().all()) for each in grads)


@pytest.mark.parametrize(("heads", "ignored"), [(32, False), (33, True)])
def test_pairs_are_left_out_where_they_do_not_pay(heads, ignored, monkeypatch):
    used = []
    monkeypatch.setattr(api, "gradients", lambda *inputs: used.append(inputs[4]) or gradients(*inputs))
    indices = alike(4, 12, 30)
    q, keys = normal(4, heads, 16).bfloat16().requires_grad_(), normal(30, 16, seed=1).bfloat16()
    out = sparse_attention(q, keys, indices, 0.2, pairs=query_pairs(indices)).out
    out.backward(torch.ones_like(out))
    assert [each is None for each in used] == [ignored]
