"""What tests of sparse attention share: keys and selections, and attention compared with its oracle."""

import torch
from hyscale_kernels.sparse_attention import reference, sparse_attention
from inputs import DEVICE, INFINITY, normal

# Relative to the norm: results are BF16, and a GPU rounds the factors of products too.
CLOSE = 5e-3
# Of a number that is rounded to BF16.
ROUNDED = 2**-8
# So many roundings differ from each other; those of fewer numbers may all be at their largest.
MANY = 64
CLOSE_LSE = 1e-5
CLOSE_PROBABILITIES = 2**-8 if DEVICE == "cuda" else 1e-5


def bf16(*shape, seed=0):
    return normal(*shape, seed=seed).bfloat16()


def choose(*shape, length, counts=None, seed=0):
    """Distinct keys in any order, the last of each row replaced by -1 so that ``counts`` are left."""
    draw = torch.Generator().manual_seed(seed)
    *rows, k = shape
    number = torch.Size(rows).numel()
    indices = torch.full((number, k), -1, dtype=torch.int32)
    for row in range(number):
        count = min(k, length) if counts is None else min(counts[row % len(counts)], length)
        indices[row, :count] = torch.randperm(length, generator=draw)[:count].int()
    return indices.view(shape).to(DEVICE)


def off(found, wanted):
    """Error relative to the norm."""
    error = (found.detach().double() - wanted.detach()).norm()
    return float(error / wanted.detach().norm()) if bool(wanted.any()) else float(error)


def run(attention, q, keys, indices, scale, values=None, sinks=None, **options):
    """Result, and gradients of a loss of output and logarithms, of one of ``sparse_attention`` and its oracle."""
    leaves = [None if each is None else each.detach().clone().requires_grad_() for each in (q, keys, values, sinks)]
    q, keys, values, sinks = leaves
    found = attention(q, keys, indices, scale, values=values, sinks=sinks, **options)
    grad_out, grad_lse = bf16(*found.out.shape, seed=11), normal(*found.lse.shape, seed=12)
    some = found.lse > -INFINITY
    loss = (found.out * grad_out.to(found.out.dtype)).double().sum() + (found.lse[some] * grad_lse[some]).sum()
    given = [each for each in leaves if each is not None]
    return found, torch.autograd.grad(loss, given, materialize_grads=True, allow_unused=True)


def oracle(q, keys, indices, scale, values=None, sinks=None, value_width=None):
    return reference.sparse_attention(q, keys, values, indices, scale, sinks, value_width)


def magnitudes(q, keys, indices, scale, values=None, sinks=None, value_width=None):
    """Sum of the magnitudes of the terms of an output."""
    values = keys[..., :value_width] if values is None else values
    return reference.sparse_attention(q.double(), keys.double(), values.abs().double(), indices, scale, sinks).out


def assert_attention(q, keys, indices, scale=None, deterministic=False, cancelled=False, **options):
    """Everything that is returned, and each gradient, against float64.

    ``cancelled``: what a logit gives may be next to nothing, the difference of a value and the output. Rounding the
    output is then seen in the gradients of q and keys.
    """
    scale = q.shape[2] ** -0.5 if scale is None else scale
    found, grads = run(
        sparse_attention, q, keys, indices, scale, **options, probabilities=True, deterministic=deterministic
    )
    exact = {name: value.double() if torch.is_tensor(value) else value for name, value in options.items()}
    wanted, wanted_grads = run(oracle, q.double(), keys.double(), indices, scale, **exact)
    assert found.out.dtype == torch.bfloat16
    assert found.lse.dtype == found.probabilities.dtype == torch.float32
    assert found.out.shape == wanted.out.shape
    assert found.probabilities.shape == indices.shape
    assert torch.equal(found.lse == -INFINITY, wanted.lse == -INFINITY)
    some = wanted.lse > -INFINITY
    # Each probability is rounded before its product with a value, and their sum after.
    terms = magnitudes(q, keys, indices, scale, **exact)
    assert bool(((found.out - wanted.out).abs() <= 1.02 * ROUNDED * (terms + wanted.out.abs())).all())
    assert wanted.out.numel() < MANY or off(found.out, wanted.out) <= CLOSE
    assert off(found.lse[some], wanted.lse[some]) <= CLOSE_LSE
    assert off(found.probabilities, wanted.probabilities) <= CLOSE_PROBABILITIES
    assert not bool(found.probabilities[indices < 0].any())
    slack = 0.0
    if cancelled:
        longest = max(float(each.double().norm(dim=-1).max()) for each in (q, keys))
        slack = abs(scale) * float(wanted.out.detach().norm()) * longest
    for value, like in zip(grads, wanted_grads, strict=True):
        assert value.shape == like.shape
        # Factors and results are rounded.
        close = CLOSE if like.numel() >= MANY else 2 * ROUNDED
        assert (value - like).norm() <= close * (like.norm() + slack)
    return found, grads
