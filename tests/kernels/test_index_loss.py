import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.index_loss import dense_index_loss, reference, sparse_index_loss
from hyscale_kernels.index_loss.dense import Dense, divergences, gradients
from hyscale_kernels.index_loss.sparse import divergences as sparse_divergences
from hyscale_kernels.replay import replay
from hyscale_kernels.scoring.inputs import FP8, Scored
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Losses are near 1. Gradients, differences of distributions, relative to the norm: of q and keys BF16, of weights FP32.
CLOSE = 1e-5
CLOSE_BF16 = 2**-8 if DEVICE == "cpu" else 2**-7
CLOSE_WEIGHTS = 1e-4


def draw(shape, seed=0, kind=torch.randn):
    return kind(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def indexer(n, heads, dim, length, seed=0, dtype=torch.bfloat16):
    """Normal queries, keys and head weights, whose scores are of the order of 1."""
    q, keys = draw((n, heads, dim), seed).to(dtype), draw((length, dim), seed + 1).to(dtype)
    return q, keys, draw((n, heads), seed + 2) / math.sqrt(heads * dim)


def attention(n, heads, width, length, groups=None, seed=0):
    """BF16 queries, and keys that heads share, or groups of them."""
    keys = draw((length, width) if groups is None else (length, groups, width), seed + 11)
    return draw((n, heads, width), seed + 10).bfloat16(), keys.bfloat16()


def choose(n, length, topk, counts=None, seed=0):
    """Ascending indices, the first ``counts`` of each row."""
    places = draw((n, length), seed, torch.rand).argsort(-1)[:, :topk].sort(-1).values
    places = torch.cat([places, places.new_full((n, topk - places.shape[1]), -1)], dim=1).to(torch.int32)
    if counts is None:
        return places
    return places.masked_fill(torch.arange(topk, device=DEVICE) >= torch.tensor(counts, device=DEVICE)[:, None], -1)


def off(found, wanted):
    """Error relative to the norm, unless what is wanted is next to nothing."""
    return float((found.detach().double() - wanted.detach()).norm() / wanted.detach().norm().clamp(min=1e-3))


def leaves_of(inputs):
    """The inputs with gradients, and float64 copies for the oracle."""
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    return leaves, [each.detach().double().requires_grad_() for each in leaves]


def assert_same(loss, leaves, wanted, exact):
    """Losses and gradients; each query's with a weight of its own."""
    assert loss.dtype == torch.float32
    assert torch.allclose(loss.double(), wanted, rtol=CLOSE, atol=CLOSE)
    slopes = torch.linspace(0.5, -2.0, loss.numel(), device=DEVICE).reshape(loss.shape)
    loss.backward(slopes)
    # Where there is nothing to learn from, the oracle is a constant.
    if wanted.requires_grad:
        wanted.backward(slopes.double())
    for each, like, close in zip(leaves, exact, (CLOSE_BF16, CLOSE_BF16, CLOSE_WEIGHTS), strict=True):
        assert each.grad.dtype == each.dtype
        assert off(each.grad, torch.zeros_like(like) if like.grad is None else like.grad) <= close


def assert_sparse(inputs, indices, teacher, reduction="none", deterministic=False, **scales):
    leaves, exact = leaves_of(inputs)
    loss = sparse_index_loss(*leaves, indices, teacher, reduction=reduction, deterministic=deterministic, **scales)
    assert_same(
        loss, leaves, reduced(reference.sparse_index_loss(*exact, indices, teacher, **scales), reduction), exact
    )
    return loss, leaves


def assert_dense(inputs, spans, heads, softmax_scale=0.2, reduction="none", block_elements=2**20, **scales):
    leaves, exact = leaves_of(inputs)
    loss = dense_index_loss(
        *leaves, spans, *heads, softmax_scale, reduction=reduction, block_elements=block_elements, **scales
    )
    wanted = reference.dense_index_loss(*exact, spans, *heads, softmax_scale, **scales)
    assert_same(loss, leaves, reduced(wanted, reduction), exact)
    return loss, leaves


def reduced(losses, reduction):
    return {"none": losses, "sum": losses.sum(), "mean": losses.mean()}[reduction]


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
    scores, indices = torch.zeros(1, 4), torch.arange(4, dtype=torch.int32)[None]
    # Shares are divided by their sum; padding is ignored, whatever it holds.
    losses, grads = sparse_divergences(scores, indices, 3 * shares[None], 1.0)
    assert losses.item() == pytest.approx(wanted, abs=1e-6)
    assert torch.allclose(grads, (student - shares).float()[None], atol=1e-6)


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


def test_chunks_of_rows_change_nothing(monkeypatch):
    scores, indices, teacher = draw((9, 7)), choose(9, 20, 7, [7, 7, 0, 3, 7, 7, 1, 2, 7]), draw((9, 7), 3, torch.rand)
    wanted = sparse_divergences(scores, indices, teacher, 0.5)
    monkeypatch.setattr("hyscale_kernels.index_loss.sparse.CHUNK", 15)
    for found, like in zip(sparse_divergences(scores, indices, teacher, 0.5), wanted, strict=True):
        assert torch.allclose(found, like, rtol=0, atol=1e-7)


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
@settings(max_examples=20, deadline=None)
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


# Dense.


@pytest.mark.parametrize("heads", [2, 3, 4, 16, 32, 64])
def test_case_20_dense_head_counts(heads):
    spans = causal_spans(torch.tensor([0, 7, 20, 39], device=DEVICE))
    assert_dense(indexer(4, heads, 32, 40), spans, attention(4, 6, 24, 40))


@pytest.mark.parametrize("groups", [None, 1, 2, 3, 6])
@pytest.mark.parametrize("block_elements", [1, 50, 300, 2**20])
def test_groups_and_blocks(groups, block_elements):
    spans = torch.tensor([[0, 30], [4, 4], [10, 17], [29, 30], [20, 5]], device=DEVICE)
    heads = attention(5, 6, 24, 30, groups)
    loss, (q, _, weights) = assert_dense(indexer(5, 3, 32, 30), spans, heads, block_elements=block_elements)
    assert loss[[1, 3, 4]].tolist() == [0, 0, 0]
    assert not bool(q.grad[[1, 4]].any())
    assert not bool(weights.grad[[1, 4]].any())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_dense_reductions(reduction):
    spans = causal_spans(torch.arange(5, 40, 7, device=DEVICE))
    assert_dense(indexer(5, 4, 32, 40), spans, attention(5, 4, 16, 40), reduction=reduction, scale=0.5)


def test_case_20_without_head_weights():
    q, keys, _ = indexer(4, 4, 32, 30)
    spans = causal_spans(torch.tensor([0, 9, 20, 29], device=DEVICE))
    heads = attention(4, 2, 16, 30)
    leaf, exact = q.clone().requires_grad_(), q.double().requires_grad_()
    dense_index_loss(leaf, keys, None, spans, *heads, 0.3, scale=0.02).backward()
    reference.dense_index_loss(exact, keys, None, spans, *heads, 0.3, scale=0.02).mean().backward()
    assert off(leaf.grad, exact.grad) <= CLOSE_BF16


def test_gradients_before_they_are_rounded_to_bf16():
    q, keys, weights = indexer(5, 4, 32, 40)
    spans = causal_spans(torch.arange(5, 40, 7, device=DEVICE))
    heads = attention(5, 4, 16, 40)
    dense = Dense(
        scored=Scored.of(q, keys, weights, spans),
        attention_q=heads[0],
        attention_k=heads[1][:, None],
        softmax_scale=0.2,
        scale=0.5,
        block_elements=100,
    )
    losses, *normalisers = divergences(dense)
    found = gradients(dense, torch.ones_like(losses), *normalisers)
    _, exact = leaves_of((q, keys, weights))
    reference.dense_index_loss(*exact, spans, *heads, 0.2, scale=0.5).sum().backward()
    for value, like in zip(found, exact, strict=True):
        assert off(value, like.grad) <= (CLOSE if DEVICE == "cpu" else 2**-8)


def test_everything_selected_the_sparse_loss_is_the_dense_one():
    inputs, (heads, shared) = indexer(4, 4, 32, 24), attention(4, 3, 16, 24)
    spans = causal_spans(torch.tensor([0, 5, 17, 23], device=DEVICE))
    places = torch.arange(24, device=DEVICE, dtype=torch.int32).expand(4, -1)
    indices = places.masked_fill(places >= spans[:, 1:], -1)
    logits = 0.3 * torch.einsum("nhc,sc->nhs", heads.float(), shared.float())
    teacher = torch.softmax(logits.masked_fill(indices[:, None] < 0, -torch.inf), dim=-1).sum(1)
    dense = dense_index_loss(*inputs, spans, heads, shared, 0.3, reduction="none")
    assert torch.allclose(sparse_index_loss(*inputs, indices, teacher, reduction="none"), dense, atol=CLOSE)


def test_large_logits_do_not_overflow():
    q, keys, weights = indexer(3, 4, 32, 30)
    spans = causal_spans(torch.tensor([9, 20, 29], device=DEVICE))
    heads, shared = attention(3, 4, 16, 30)
    found = dense_index_loss(q, keys, 1e4 * weights, spans, 30 * heads, shared, 10.0, block_elements=40)
    wanted = reference.dense_index_loss(q, keys, 1e4 * weights, spans, 30 * heads, shared, 10.0).mean()
    assert float(found) == pytest.approx(float(wanted), rel=1e-4)


class Sizes(TorchDispatchMode):
    """The largest tensor that any operation makes, views aside."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self.most = max(self.most, each.untyped_storage().nbytes() // max(each.element_size(), 1))
        return result


def test_no_tensor_is_as_large_as_queries_times_keys():
    n, length, block_elements = 256, 2000, 100_000
    leaves, _ = leaves_of(indexer(n, 4, 32, length))
    teacher = attention(n, 8, 16, length)
    spans = causal_spans(torch.arange(length - n, length, device=DEVICE))
    assert max(each.numel() for each in (*leaves, *teacher)) < block_elements < n * length
    with Sizes() as forward:
        loss = dense_index_loss(*leaves, spans, *teacher, 0.3, block_elements=block_elements)
    assert block_elements // 2 < forward.most <= block_elements
    with Sizes() as backward:
        loss.backward()
    assert backward.most <= block_elements
    # It would be noticed.
    with Sizes() as whole:
        dense_index_loss(*leaves, spans, *teacher, 0.3, block_elements=2**30)
    assert whole.most >= 8 * n * length


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(0, 5),
    heads=st.integers(1, 9),
    length=st.integers(1, 30),
    groups=st.integers(1, 3),
    each=st.integers(1, 3),
    block_elements=st.integers(1, 400),
    data=st.data(),
)
def test_any_dense_shape(n, heads, length, groups, each, block_elements, data):
    ends = st.tuples(st.integers(0, length), st.integers(0, length))
    spans = torch.tensor(data.draw(st.lists(ends, min_size=n, max_size=n)), dtype=torch.int32, device=DEVICE)
    assert_dense(
        indexer(n, heads, 32, length),
        spans.reshape(n, 2),
        attention(n, groups * each, 16, length, groups),
        block_elements=block_elements,
    )


# Both.


@pytest.mark.parametrize("stage", ["sparse", "dense"])
@pytest.mark.parametrize("n", [0, 3])
def test_nothing_to_learn_from(stage, n):
    leaves, _ = leaves_of(indexer(n, 4, 32, 0))
    if stage == "sparse":
        indices = torch.full((n, 5), -1, dtype=torch.int32, device=DEVICE)
        loss = sparse_index_loss(*leaves, indices, torch.ones(n, 5, device=DEVICE))
    else:
        spans = torch.zeros(n, 2, dtype=torch.int32, device=DEVICE)
        loss = dense_index_loss(*leaves, spans, *attention(n, 2, 16, 0), 0.3)
    assert loss.item() == 0
    loss.backward()
    for each in leaves:
        assert torch.equal(each.grad, torch.zeros_like(each))


@pytest.mark.parametrize("stage", ["sparse", "dense"])
def test_case_30_scales_from_2_to_the_minus_10_to_2_to_the_10(stage):
    q, keys, weights = indexer(6, 4, 64, 50, dtype=FP8)
    generator = torch.Generator().manual_seed(2)
    scales = {
        "key_scale": torch.exp2(torch.randint(-10, 11, (50,), generator=generator).float()).to(DEVICE),
        "q_scale": torch.exp2(torch.randint(-10, 11, (6, 4), generator=generator).float()).to(DEVICE),
        "scale": 2.0**-16,
    }
    leaf, exact = weights.requires_grad_(), weights.detach().double().requires_grad_()
    if stage == "sparse":
        others = (choose(6, 50, 30, [30, 0, 4, 30, 29, 1]), draw((6, 30), 5, torch.rand))
        loss, wanted = sparse_index_loss, reference.sparse_index_loss
    else:
        others = (causal_spans(torch.tensor([0, 9, 19, 29, 39, 49], device=DEVICE)), *attention(6, 2, 16, 50), 0.3)
        loss, wanted = dense_index_loss, reference.dense_index_loss
    found = loss(q, keys, leaf, *others, reduction="none", **scales)
    like = wanted(q, keys, exact, *others, **scales)
    # FP8 sums of the tensor core are less exact.
    close = 1e-5 if DEVICE == "cpu" else 1e-3
    assert off(found, like.detach()) <= close
    found.sum().backward()
    like.sum().backward()
    assert bool(exact.grad.any())
    assert off(leaf.grad, exact.grad) <= close


@pytest.mark.parametrize("stage", ["sparse", "dense"])
def test_scales_of_bf16_inputs(stage):
    inputs = indexer(5, 3, 32, 30)
    scales = {"key_scale": draw((30,), 7, torch.rand) + 0.5, "q_scale": draw((5, 3), 8, torch.rand) + 0.5}
    if stage == "sparse":
        assert_sparse(inputs, choose(5, 30, 11), draw((5, 11), 5, torch.rand), **scales)
    else:
        spans = causal_spans(torch.arange(5, 30, 5, device=DEVICE))
        assert_dense(inputs, spans, attention(5, 4, 16, 30), block_elements=200, **scales)


# Wrong inputs.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"teacher": torch.ones(3, 4)}, r"teacher must be floating point \(3, 5\), is torch.float32 \(3, 4\)"),
        ({"teacher": torch.ones(3, 5, dtype=torch.int64)}, "teacher must be floating point"),
        ({"teacher": -torch.ones(3, 5)}, "teacher must be finite and at least 0"),
        ({"teacher": torch.full((3, 5), float("nan"))}, "teacher must be finite and at least 0"),
        ({"indices": torch.full((3, 5), 20, dtype=torch.int32)}, "indices must be -1 or a key, 0 to 19"),
        ({"reduction": "all"}, "reduction must be one of mean, sum, none, is 'all'"),
        ({"scale": float("inf")}, "scale must be finite, is inf"),
    ],
)
def test_wrong_sparse_inputs_are_refused(changed, message):
    q, keys, weights = indexer(3, 4, 32, 20)
    inputs = {"q": q, "keys": keys, "weights": weights, "indices": choose(3, 20, 5), "teacher": torch.ones(3, 5)}
    inputs |= changed
    inputs = {name: each.to(DEVICE) if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}
    with pytest.raises(ValueError, match=message):
        sparse_index_loss(**inputs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"attention_q": torch.zeros(2, 4, 16)},
            r"attention_q must be \(3, heads, width\) and attention_k \(20, width\)",
        ),
        ({"attention_k": torch.zeros(19, 16)}, r"attention_k \(20, width\) or \(20, groups, width\), they are"),
        ({"attention_k": torch.zeros(20, 8)}, "equally wide"),
        ({"attention_k": torch.zeros(20, 3, 16)}, "every group of attention_k must have as many heads"),
        ({"attention_k": torch.zeros(20, 16).bfloat16()}, "must both be bfloat16, float16 or float32"),
        ({"spans": torch.full((3, 2), 21)}, "spans must lie within 0 and 20"),
        ({"softmax_scale": float("nan")}, "softmax_scale must be finite, is nan"),
        ({"block_elements": 0}, "block_elements must be at least 1, is 0"),
        ({"reduction": ""}, "reduction must be one of"),
        ({"q": torch.zeros(3, 4, 32).to(FP8).requires_grad_()}, "q is FP8, which holds no gradients"),
    ],
)
def test_wrong_dense_inputs_are_refused(changed, message):
    q, keys, weights = indexer(3, 4, 32, 20)
    inputs = {"q": q, "keys": keys, "weights": weights, "spans": torch.tensor([[0, 20]] * 3)}
    inputs |= {"attention_q": torch.zeros(3, 4, 16), "attention_k": torch.zeros(20, 16), "softmax_scale": 1.0}
    inputs |= changed
    inputs = {name: each.to(DEVICE) if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}
    with pytest.raises(ValueError, match=message):
        dense_index_loss(**inputs)


# At the sizes of a real run.


@pytest.mark.gpu
def test_a_real_sparse_width(gpu):
    indices = choose(256, 20000, 2048)
    assert_sparse(indexer(256, 32, 128, 20000), indices, draw((256, 2048), 5, torch.rand), deterministic=True)


@pytest.mark.gpu
def test_a_real_dense_width(gpu):
    spans = causal_spans(torch.arange(3000 - 64, 3000, device=DEVICE))
    heads = attention(64, 64, 576, 3000)
    assert_dense(indexer(64, 32, 128, 3000), spans, heads, 576**-0.5, block_elements=2**22)


@pytest.mark.gpu
def test_memory_of_a_dense_loss_is_bounded(gpu):
    n, length, heads = 512, 100_000, 64
    leaves, _ = leaves_of(indexer(n, 32, 128, length))
    teacher = attention(n, heads, 576, length)
    spans = torch.tensor([[0, length]], device=DEVICE).repeat(n, 1)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    dense_index_loss(*leaves, spans, *teacher, 576**-0.5, block_elements=2**24).backward()
    # Blocks, and gradients in FP32 and BF16.
    gradients_bytes = 6 * sum(each.numel() for each in leaves)
    assert torch.cuda.max_memory_allocated() - before < 4 * 3 * 2**24 + gradients_bytes + 2**26
