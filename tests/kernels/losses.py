"""What tests of the index loss share: indexers, attention, and losses compared with their oracle."""

import math

import torch
from hyscale_kernels.index_loss import dense_index_loss, reference, sparse_index_loss
from inputs import DEVICE

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
