"""Launches, an operator of PyTorch, inputs that are refused, gradients of any size."""

import pytest
import torch
from attended import CLOSE, CLOSE_PROBABILITIES, bf16, choose, off, run
from hyscale_kernels.sparse_attention import query_pairs, sparse_attention
from hyscale_kernels.sparse_attention.attend import attend
from hyscale_kernels.sparse_attention.gradients import Returned, gradients
from hyscale_kernels.sparse_attention.inputs import Attention
from hyscale_kernels.sparse_attention.tiles import FORWARD
from inputs import DEVICE, INFINITY, normal

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


# Launches.


@pytest.mark.parametrize("deterministic", [False, True])
def test_many_launches_are_as_one(deterministic):
    q, keys, indices = bf16(5, 6, 48), bf16(60, 48, seed=1), choose(5, 40, length=60)
    given = Attention.of(q, keys, None, indices, normal(6), 0.2, 32)
    once, twice = attend(given, True), attend(given, True, left_bytes=1)
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))
    found, grads = Returned(*once[:2]), Returned(bf16(5, 6, 32, seed=4), normal(5, 6, seed=5))
    once = gradients(given, found, grads, deterministic)
    # Each query by itself or some together, and what they leave kept or computed twice.
    for left_bytes, kept in ((1, 0), (1, 2), (2 * 2 * 16 * 128 * 4, 1)):
        again = gradients(given, found, grads, deterministic, left_bytes=left_bytes, kept_launches=kept)
        assert all(off(a, b.double()) <= 1e-2 for a, b in zip(again, once, strict=True) if a is not None)
        assert torch.equal(again.q, once.q)
        assert not deterministic or torch.equal(again.keys, once.keys)


def test_tiles_of_heads_add_up():
    q, keys, indices = bf16(2, 40, 32), bf16(60, 2, 32, seed=1), choose(2, 2, 40, length=60)
    given = Attention.of(q, keys, None, indices, None, 0.2, 32)
    whole = attend(given, True)
    parts = attend(given, True, tile=type(FORWARD)(heads=16, keys=16, warps=4, stages=2))
    assert off(parts[0], whole[0].double()) <= CLOSE
    assert off(parts[2], whole[2].double()) <= CLOSE_PROBABILITIES


def test_the_order_of_queries_changes_no_bit():
    n = 8
    q, keys, values, sinks = bf16(n, 4, 48), bf16(30, 2, 48, seed=1), bf16(30, 2, 24, seed=2), normal(4)
    indices = choose(n, 20, length=30)
    grad_out = bf16(n, 4, 24, seed=3)

    def backward(order):
        leaves = [each.clone().requires_grad_() for each in (q[order], keys, values, sinks)]
        given = sparse_attention(
            *leaves[:2], indices[order], 0.2, values=leaves[2], sinks=leaves[3], deterministic=True
        )
        given.out.backward(grad_out[order])
        return [each.grad for each in leaves]

    first = backward(torch.arange(n, device=DEVICE))
    for seed in range(2):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        dq, *others = backward(order)
        assert torch.equal(dq, first[0][order])
        assert all(torch.equal(a, b) for a, b in zip(others, first[1:], strict=True))


def test_case_25_repeated_launches_change_no_bit():
    q, keys, indices = bf16(6, 4, 48), bf16(30, 48, seed=1), choose(6, 20, length=30)
    first = run(sparse_attention, q, keys, indices, 0.2, deterministic=True, value_width=32)
    for _ in range(5):
        again = run(sparse_attention, q, keys, indices, 0.2, deterministic=True, value_width=32)
        assert torch.equal(again[0].out, first[0].out)
        assert torch.equal(again[0].lse, first[0].lse)
        assert all(torch.equal(a, b) for a, b in zip(again[1], first[1], strict=True))


@pytest.mark.parametrize("size", [1e-30, 1e-15, 1.0, 1e15, 1e30])
def test_gradients_of_any_size_neither_overflow_nor_vanish(size):
    q, keys = bf16(6, 4, 32), bf16(10, 32, seed=1)
    indices = torch.tensor([[3, 4]] * 6, dtype=torch.int32, device=DEVICE)
    found = {}
    for deterministic in (False, True):
        leaf = keys.clone().requires_grad_()
        out = sparse_attention(q, leaf, indices, 0.2, deterministic=deterministic).out
        out.backward(torch.full_like(out, size))
        found[deterministic] = leaf.grad
    assert off(found[True] / size, found[False].double() / size) <= CLOSE
    assert bool(found[True][3:5].any())


# Operator.


@pytest.mark.parametrize("sinks", [False, True])
def test_it_is_an_operator_of_pytorch(sinks):
    q, keys, values = (each.requires_grad_() for each in (bf16(2, 4, 16), bf16(20, 2, 16), bf16(20, 2, 32)))
    logits = normal(4).requires_grad_() if sinks else None
    arguments = (q, keys, values, choose(2, 9, length=20, counts=[9, 5]), logits, 0.3, 32, True, True, [], None)
    torch.library.opcheck(torch.ops.hyscale.sparse_attention, arguments)
    keys = keys.detach()[:, 0].requires_grad_()
    indices = torch.arange(9, dtype=torch.int32, device=DEVICE).repeat(2, 1)
    arguments = (q, keys, None, indices, logits, 0.3, 16, False, True, list(query_pairs(indices)), "triton")
    torch.library.opcheck(torch.ops.hyscale.sparse_attention, arguments)


def test_shapes_are_known_without_data():
    q, keys = torch.empty(3, 4, 48, device="meta", dtype=torch.bfloat16), torch.empty(20, 48, device="meta").bfloat16()
    indices = torch.empty(3, 9, device="meta", dtype=torch.int32)
    found = sparse_attention(q.requires_grad_(), keys, indices, 0.2, value_width=32, probabilities=True)
    assert [tuple(each.shape) for each in found] == [(3, 4, 32), (3, 4), (3, 9)]
    found.out.sum().backward()
    assert q.grad.shape == q.shape


def test_it_stands_in_a_compiled_graph():
    q, keys, indices = bf16(2, 4, 16), bf16(20, 16, seed=1), choose(2, 9, length=20)

    def attended(q, keys):
        return sparse_attention(2 * q, keys, indices, 0.3, deterministic=True).out.float() + 1

    leaves = [[each.clone().requires_grad_() for each in (q, keys)] for _ in range(2)]
    results = [attended(*leaves[0]), torch.compile(attended, fullgraph=True, backend="aot_eager")(*leaves[1])]
    assert torch.equal(*results)
    for each in results:
        each.sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(*leaves, strict=True))


def test_only_what_is_asked_for_has_a_gradient():
    q, keys, indices = bf16(2, 4, 16), bf16(20, 16, seed=1).requires_grad_(), choose(2, 9, length=20)
    sparse_attention(q, keys, indices, 0.3).lse.sum().backward()
    assert q.grad is None
    assert bool(keys.grad.any())


Q, KEYS, INDICES = bf16(2, 4, 16), bf16(20, 16), choose(2, 9, length=20)


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({"q": Q[0]}, r"q must be \(n, heads, width\)"),
        ({"keys": KEYS[:, :8]}, r"keys must be \(L, 16\) or \(L, groups, 16\)"),
        ({"keys": KEYS.view(1, 20, 16).repeat(20, 1, 1)[:, :3]}, "as many of the 4 heads"),
        ({"q": Q.float()}, "q must be bfloat16"),
        ({"keys": KEYS.half()}, "keys must be bfloat16"),
        ({"values": KEYS[:5]}, r"values must be \(20, value width\)"),
        ({"values": KEYS, "value_width": 16}, "not both"),
        ({"value_width": 17}, "value_width must be 1 to 16"),
        ({"indices": INDICES.long()}, r"indices must be int32 \(2, k\) or \(2, 1, k\)"),
        ({"indices": INDICES[:1]}, r"indices must be int32 \(2, k\)"),
        ({"indices": INDICES.clone().fill_(20)}, "indices must be -1 or a key, 0 to 19"),
        ({"indices": INDICES.clone().fill_(-2)}, "indices must be -1 or a key, 0 to 19"),
        ({"sinks": torch.zeros(3, device=DEVICE)}, r"sinks must be floating point \(4,\)"),
        ({"softmax_scale": float("nan")}, "softmax_scale must be finite"),
        ({"sinks": torch.zeros(4, device="meta")}, "all inputs must be on"),
    ],
)
def test_wrong_inputs_are_told_what_is_right(change, right):
    given = {"q": Q, "keys": KEYS, "indices": INDICES, "softmax_scale": 0.3} | change
    with pytest.raises(ValueError, match=right):
        sparse_attention(**given)


def test_deterministic_sums_of_terms_that_all_point_one_way_are_held():
    """Each of 70 queries gives the most that its bound allows to one key."""
    n, heads, width = 70, 16, 32
    q = torch.full((n, heads, width), 3.0, dtype=torch.bfloat16, device=DEVICE)
    keys, indices = bf16(4, width, seed=1), torch.zeros(n, 1, dtype=torch.int32, device=DEVICE)
    leaves = [each.requires_grad_() for each in (q, keys)]
    found = sparse_attention(*leaves, indices, 0.2, deterministic=True)
    grad_out = torch.full_like(found.out, 5.0)
    (dkeys,) = torch.autograd.grad(found.out, keys, grad_out)
    # Of one key the softmax is 1, whatever its logit.
    assert torch.equal(dkeys[0], torch.full_like(dkeys[0], 5.0 * n * heads))
    assert not bool(dkeys[1:].any())


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients_that_are_not_finite_are_told_where_they_belong(deterministic):
    q, keys = bf16(2, 4, 32), bf16(20, 32, seed=1).requires_grad_()
    indices = torch.tensor([[5, 6, 7], [1, 2, 3]], dtype=torch.int32, device=DEVICE)
    out = sparse_attention(q, keys, indices, 0.2, deterministic=deterministic).out
    grad_out = bf16(2, 4, 32, seed=2)
    (wanted,) = torch.autograd.grad(out, keys, grad_out, retain_graph=True)
    grad_out[0, 0, 0] = INFINITY
    (dkeys,) = torch.autograd.grad(out, keys, grad_out)
    assert not bool(dkeys[5:8].isfinite().all(1).any())
    assert torch.equal(dkeys[:5], wanted[:5])
    assert torch.equal(dkeys[8:], wanted[8:])
