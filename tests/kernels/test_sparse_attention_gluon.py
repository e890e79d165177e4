"""Kernels in Gluon: emulated where there is no Hopper GPU, and beside their twins where there is one."""

import random

import pytest
import torch
from hyscale_kernels.sparse_attention import hopper, query_pairs, reference, sparse_attention
from hyscale_kernels.sparse_attention.gluon import backward as gluon_backward
from hyscale_kernels.sparse_attention.gluon import forward as gluon_forward
from hyscale_kernels.sparse_attention.gluon import keys as gluon_keys
from hyscale_kernels.sparse_attention.inputs import Attention
from inputs import DEVICE, INFINITY, normal

CLOSE = 5e-3
CLOSE_LSE = 1e-5
# Sums of probabilities that are rounded to BF16.
CLOSE_PROBABILITIES = 2**-8


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


def need_hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("Gluon needs a Hopper GPU")


@pytest.fixture
def run_here(monkeypatch):
    """Gluon runs here."""
    if DEVICE == "cuda":
        need_hopper()
        return
    from emulated import Emulated

    monkeypatch.setattr(hopper, "no_gluon", lambda given: "")
    monkeypatch.setattr(hopper, "_no_gluon_at_all", lambda given: "")
    monkeypatch.setattr(gluon_forward, "forward_kernel", Emulated(gluon_forward.forward_kernel))
    monkeypatch.setattr(gluon_backward, "queries_kernel", Emulated(gluon_backward.queries_kernel))
    monkeypatch.setattr(gluon_keys, "keys_kernel", Emulated(gluon_keys.keys_kernel))


def latent(n, heads, k, length, seed=0):
    """Inputs of absorbed MLA: neighbours alike, queries with few keys and with none."""
    draw = torch.Generator().manual_seed(seed)
    q, keys = normal(n, heads, 576, seed=1).bfloat16(), normal(length, 576, seed=2).bfloat16()
    indices = torch.full((n, k), -1, dtype=torch.int32)
    keys_of_all = torch.randperm(length, generator=draw)
    for row in range(n):
        count = (k, k, 0, k // 3)[row % 4]
        new = torch.randperm(length, generator=draw)[: count // 4]
        few = torch.cat([keys_of_all[: count - len(new)], new]).unique()
        indices[row, : len(few)] = few.int()
    return q, keys, indices.to(DEVICE)


def run(attention, q, keys, grad_out):
    leaves = [each.detach().clone().requires_grad_() for each in (q, keys)]
    found = attention(*leaves)
    loss = (found.out * grad_out.to(found.out.dtype)).double().sum()
    some = found.lse > -INFINITY
    return found, torch.autograd.grad(loss + found.lse[some].sum(), leaves)


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("n", "heads", "k"), [(5, 64, 70), (7, 128, 33), (2, 64, 1), (2, 64, 129)])
def test_gluon_agrees_with_float64(run_here, n, heads, k, deterministic, paired):
    q, keys, indices = latent(n, heads, k, 200)
    grad_out = normal(n, heads, 512, seed=3).bfloat16()
    pairs = query_pairs(indices) if paired else None
    # Some together and some by themselves.
    assert pairs is None or n < 4 or 0 < float(pairs.share) < 1

    def kernels(q, keys):
        return sparse_attention(
            q,
            keys,
            indices,
            576**-0.5,
            value_width=512,
            probabilities=True,
            deterministic=deterministic,
            pairs=pairs,
            impl="gluon",
        )

    found, grads = run(kernels, q, keys, grad_out)
    wanted, wanted_grads = run(
        lambda q, keys: reference.sparse_attention(q, keys, None, indices, 576**-0.5, None, 512),
        q.double(),
        keys.double(),
        grad_out,
    )
    some = wanted.lse > -INFINITY
    assert torch.equal(found.lse > -INFINITY, some)
    assert not bool(found.out[~some].any())
    assert off(found.out, wanted.out) <= CLOSE
    assert off(found.lse[some], wanted.lse[some]) <= CLOSE_LSE
    assert off(found.probabilities, wanted.probabilities) <= CLOSE_PROBABILITIES
    assert all(off(a, b) <= CLOSE for a, b in zip(grads, wanted_grads, strict=True))


@pytest.mark.slow
def test_the_order_in_which_groups_get_on_changes_no_bit(run_here):
    q, keys, indices = latent(4, 64, 130, 200)
    grad_out = normal(4, 64, 512, seed=3).bfloat16()
    results = []
    for seed in range(3):
        random.seed(seed)
        results.append(
            run(
                lambda q, keys: sparse_attention(
                    q, keys, indices, 0.05, value_width=512, deterministic=True, impl="gluon"
                ),
                q,
                keys,
                grad_out,
            )
        )
    for found, grads in results[1:]:
        assert torch.equal(found.out, results[0][0].out)
        assert torch.equal(found.lse, results[0][0].lse)
        assert all(torch.equal(a, b) for a, b in zip(grads, results[0][1], strict=True))


@pytest.mark.parametrize(
    ("heads", "width", "value_width", "stride", "sinks", "reason"),
    [
        (64, 512, 512, 512, False, "576 columns"),
        (64, 576, 576, 576, False, "576 columns"),
        (48, 576, 512, 576, False, "multiple of 64 heads"),
        (64, 576, 512, 576, True, "no sinks"),
        (64, 576, 512, 600, False, "multiples of 16"),
    ],
)
def test_where_gluon_cannot_run_it_says_why(monkeypatch, heads, width, value_width, stride, sinks, reason):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    keys = torch.zeros(20, stride, dtype=torch.bfloat16, device=DEVICE)[:, :width]
    given = Attention.of(
        torch.zeros(1, heads, width, dtype=torch.bfloat16, device=DEVICE),
        keys,
        None,
        torch.zeros(1, 1, dtype=torch.int32, device=DEVICE),
        torch.zeros(heads, device=DEVICE) if sinks else None,
        1.0,
        value_width,
    )
    if DEVICE == "cpu":
        assert hopper.no_gluon(given) == "it needs a Hopper GPU"
    else:
        assert reason in hopper.no_gluon(given)
    with pytest.raises(ValueError, match="impl gluon cannot run"):
        hopper.use_gluon("gluon", given)
    assert not hopper.use_gluon(None, given)
    assert not hopper.use_gluon("triton", given)


def test_another_name_is_told():
    q, keys = normal(1, 1, 16).bfloat16(), normal(3, 16).bfloat16()
    indices = torch.zeros(1, 1, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="triton, gluon or None"):
        sparse_attention(q, keys, indices, 1.0, impl="cuda")


@pytest.mark.gpu
@pytest.mark.slow
def test_gluon_and_its_twin_give_the_same_within_rounding(gpu):
    need_hopper()
    q, keys, indices = latent(512, 64, 2048, 65_536)
    grad_out = normal(512, 64, 512, seed=3).bfloat16()
    results = [
        run(
            lambda q, keys, impl=impl: sparse_attention(
                q, keys, indices, 576**-0.5, value_width=512, probabilities=True, impl=impl
            ),
            q,
            keys,
            grad_out,
        )
        for impl in ("gluon", "triton")
    ]
    (found, grads), (twin, twin_grads) = results
    some = twin.lse > -INFINITY
    assert off(found.out, twin.out.double()) <= CLOSE
    assert off(found.lse[some], twin.lse[some].double()) <= CLOSE_LSE
    assert off(found.probabilities, twin.probabilities.double()) <= CLOSE_PROBABILITIES
    assert all(off(a, b.double()) <= CLOSE for a, b in zip(grads, twin_grads, strict=True))
