"""At the sizes of a training step, where a few queries are compared with float64."""

import pytest
import torch
from hyscale_calibration.benches.inputs import selections
from hyscale_kernels.sparse_attention import query_pairs, reference, sparse_attention

pytestmark = [pytest.mark.slow, pytest.mark.gpu]

CLOSE = 5e-3
N, LENGTH, TOPK = 8192, 1_048_576, 2048


def spread(n, k, length):
    """Ascending distinct keys over the whole length, shared with some queries and not with others."""
    draw = torch.Generator("cuda").manual_seed(1)
    places = torch.randint(length // k, (n, k), generator=draw, device="cuda")
    return (torch.arange(k, device="cuda") * (length // k) + places).int()


def random(*shape, seed):
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda", dtype=torch.bfloat16)


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


def assert_rows(rows, found, grads, q, keys, values, indices, sinks, grad_out, **options):
    """Outputs, probabilities and gradients of these queries, whose keys nobody else selected."""
    exact = [None if each is None else each.detach().double().requires_grad_() for each in (q[rows], sinks)]
    chosen = indices[rows].flatten().long()
    few = [None if each is None else each.detach()[chosen].double().requires_grad_() for each in (keys, values)]
    places = torch.arange(len(chosen), device="cuda", dtype=torch.int32).view(len(rows), -1)
    wanted = reference.sparse_attention(exact[0], few[0], few[1], places, q.shape[2] ** -0.5, exact[1], **options)
    leaves = [each for each in (exact[0], *few) if each is not None]
    wanted_grads = torch.autograd.grad(wanted.out, leaves, grad_out[rows].double())
    assert off(found.out[rows], wanted.out) <= CLOSE
    assert off(found.lse[rows], wanted.lse) <= CLOSE
    assert off(found.probabilities[rows], wanted.probabilities) <= CLOSE
    assert off(grads[0][rows], wanted_grads[0]) <= CLOSE
    for gradient, like in zip(grads[1:], wanted_grads[1:], strict=False):
        assert off(gradient[chosen], like) <= CLOSE


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    ("heads", "groups", "width", "value_width", "separate", "with_sinks"),
    [
        (64, 1, 576, 512, False, False),
        (128, 1, 576, 512, False, False),
        (64, 1, 512, 512, False, True),
        (24, 2, 256, 256, True, False),
    ],
)
def test_a_step_of_8192_queries_over_a_million_keys(
    gpu, heads, groups, width, value_width, separate, with_sinks, deterministic
):
    # The last keys are of a few queries alone.
    rows = torch.tensor([0, 4095, N - 1], device="cuda")
    own = len(rows) * TOPK
    indices = spread(N, TOPK, LENGTH - own)
    indices[rows] = torch.arange(LENGTH - own, LENGTH, device="cuda", dtype=torch.int32).view(len(rows), TOPK)
    indices[1, ::3] = -1
    q, keys = random(N, heads, width, seed=2), random(LENGTH, groups, width, seed=3)
    values = random(LENGTH, groups, value_width, seed=4) if separate else None
    sinks = torch.randn(heads, device="cuda") if with_sinks else None
    grad_out = random(N, heads, value_width, seed=5)
    leaves = [each.requires_grad_() for each in (q, keys, values) if each is not None]
    options = {} if separate else {"value_width": value_width}
    found = sparse_attention(
        q,
        keys,
        indices,
        width**-0.5,
        values=values,
        sinks=sinks,
        probabilities=True,
        deterministic=deterministic,
        **options,
    )
    grads = torch.autograd.grad(found.out, leaves, grad_out)
    assert all(bool(each.isfinite().all()) for each in (*grads, found.out))
    assert_rows(rows, found, grads, q, keys, values, indices, sinks, grad_out, **options)


@pytest.mark.parametrize("impl", ["gluon", "triton"])
def test_pairs_of_neighbours_have_the_gradients_of_one_query_at_a_time(gpu, impl):
    if impl == "gluon" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("Gluon needs a Hopper GPU")
    indices = selections(N, LENGTH, TOPK, 0.9, "cuda")
    indices[5:7, TOPK // 2 :] = -1
    indices[100, :] = -1
    pairs = query_pairs(indices)
    assert float(pairs.share) > 0.9
    leaves = [random(N, 64, 576, seed=2).requires_grad_(), random(LENGTH, 576, seed=3).requires_grad_()]
    grad_out = random(N, 64, 512, seed=5)

    def backward(**options):
        found = sparse_attention(*leaves, indices, 576**-0.5, value_width=512, impl=impl, **options)
        return torch.autograd.grad(found.out, leaves, grad_out)

    wanted = backward()
    for found in (backward(pairs=pairs), backward(deterministic=True)):
        assert all(off(a, b.double()) <= CLOSE for a, b in zip(found, wanted, strict=True))
    once, twice = (backward(pairs=pairs, deterministic=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))
    assert all(off(a, b.double()) <= CLOSE for a, b in zip(once, wanted, strict=True))


def test_case_21_keys_beyond_2_to_the_31_elements(gpu):
    length = 2**31 // 576 + 1000
    keys = random(length, 576, seed=1).requires_grad_()
    q = random(2, 64, 576, seed=2).requires_grad_()
    indices = torch.arange(length - 100, length, device="cuda", dtype=torch.int32).view(2, 50)
    found = sparse_attention(q, keys, indices, 576**-0.5, value_width=512, probabilities=True)
    grad_out = random(2, 64, 512, seed=3)
    grads = torch.autograd.grad(found.out, (q, keys), grad_out)
    assert_rows(torch.arange(2, device="cuda"), found, grads, q, keys, None, indices, None, grad_out, value_width=512)


def test_case_23_more_queries_than_a_second_axis_of_programs(gpu):
    n = 70_000
    q, keys = random(n, 16, 32, seed=1).requires_grad_(), random(4096, 32, seed=2).requires_grad_()
    indices = spread(n, 16, 4096)
    found = sparse_attention(q, keys, indices, 0.2, deterministic=True)
    (dq,) = torch.autograd.grad(found.out, (q,), torch.ones_like(found.out))
    for row in (0, 65_535, 65_536, n - 1):
        wanted = reference.sparse_attention(q[row : row + 1].detach(), keys.detach(), None, indices[row : row + 1], 0.2)
        assert off(found.out[row : row + 1], wanted.out) <= CLOSE
        assert bool(dq[row].any())
