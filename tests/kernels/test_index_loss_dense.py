"""The loss over all keys, of which no table is ever held."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.index_loss import dense_index_loss, reference, sparse_index_loss
from hyscale_kernels.index_loss.dense import Dense, divergences, gradients
from hyscale_kernels.scoring.inputs import Scored
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE
from losses import CLOSE, CLOSE_BF16, assert_dense, attention, indexer, leaves_of, off
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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


@settings(max_examples=20)
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
