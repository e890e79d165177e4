import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.sparse_attention import query_pairs, reference, sparse_attention
from hyscale_kernels.sparse_attention.attend import attend
from hyscale_kernels.sparse_attention.gradients import Returned, gradients
from hyscale_kernels.sparse_attention.inputs import Attention
from hyscale_kernels.sparse_attention.tiles import FORWARD
from inputs import DEVICE, INFINITY, normal

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

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


@settings(max_examples=15, deadline=None)
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


# What is selected.


@pytest.mark.parametrize("k", [40, 60])
def test_case_32_all_keys_equal_dense_attention(k):
    q, keys = bf16(6, 4, 48), bf16(40, 48, seed=1)
    found, grads = run(sparse_attention, q, keys, choose(6, k, length=40), 0.2, value_width=32)

    def dense(q, keys, indices, scale, values, sinks):
        logits = scale * torch.einsum("thd,sd->ths", q, keys)
        out = torch.einsum("ths,sd->thd", torch.softmax(logits, dim=-1), keys[:, :32])
        return reference.Attended(out, torch.logsumexp(logits, dim=-1), logits)

    wanted, wanted_grads = run(dense, q.double(), keys.double(), None, 0.2)
    assert off(found.out, wanted.out) <= CLOSE
    assert off(found.lse, wanted.lse) <= CLOSE_LSE
    assert all(off(a, b) <= CLOSE for a, b in zip(grads, wanted_grads, strict=True))


def test_case_14_padding_is_ignored_wherever_it_stands():
    q, keys = bf16(3, 4, 32), bf16(60, 32, seed=1)
    # What stands in for no key must not be read.
    keys[0] = INFINITY
    indices = torch.full((3, 70), -1, dtype=torch.int32, device=DEVICE)
    indices[0, [3, 40, 69]] = torch.tensor([9, 4, 59], dtype=torch.int32, device=DEVICE)
    indices[1, 68] = 7
    found, (dq, dkeys) = assert_attention(q, keys.nan_to_num(posinf=0.0), indices)
    same, (_, dkeys_infinite) = run(sparse_attention, q, keys, indices, 32**-0.5)
    assert torch.equal(same.out, found.out)
    assert torch.equal(dkeys_infinite, dkeys)
    assert not bool(found.out[2].any() | dq[2].any())
    assert bool((found.lse[2] == -INFINITY).all())
    alone = sparse_attention(q[1:2], keys, indices[1:2, 68:69], 32**-0.5)
    assert off(alone.out, found.out[1:2].double()) <= CLOSE


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_18_a_rank_whose_rows_are_all_padding(deterministic):
    q, keys = bf16(3, 4, 32), bf16(20, 32, seed=1)
    keys[:] = INFINITY
    indices = torch.full((3, 12), -1, dtype=torch.int32, device=DEVICE)
    found, grads = run(sparse_attention, q, keys, indices, 0.2, sinks=normal(4), deterministic=deterministic)
    assert not bool(found.out.any())
    assert not any(bool(each.any()) for each in grads)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_key_that_every_query_selects_and_one_selected_twice(deterministic):
    q, keys, indices = bf16(20, 4, 32), bf16(30, 32, seed=1), choose(20, 6, length=30)
    indices[:, 2] = 7
    indices[3] = 11
    assert_attention(q, keys, indices, deterministic=deterministic)


def test_keys_that_nobody_selects_have_no_gradient_and_may_be_anything():
    q, keys, indices = bf16(4, 4, 32), bf16(50, 32, seed=1), choose(4, 10, length=20)
    keys[20:] = float("nan")
    for deterministic in (False, True):
        found, (_, dkeys) = run(sparse_attention, q, keys, indices, 0.2, deterministic=deterministic)
        assert bool(found.out.isfinite().all())
        assert bool(dkeys.isfinite().all())
        assert not bool(dkeys[20:].any())


@pytest.mark.parametrize("deterministic", [False, True])
def test_parts_of_the_keys_put_together_are_attention_over_all(deterministic):
    q, keys, indices = bf16(4, 4, 32), bf16(60, 32, seed=1), choose(4, 40, length=60, counts=[40, 10, 0, 31])

    def whole(q, keys):
        return sparse_attention(q, keys, indices, 0.2, deterministic=deterministic).out

    def by_parts(q, keys):
        parts = [
            sparse_attention(q, keys, part, 0.2, deterministic=deterministic) for part in indices.split([10, 30], dim=1)
        ]
        logarithms = torch.stack([part.lse for part in parts])
        # The gradient of a logarithm of nothing is NaN.
        shares = torch.softmax(logarithms, dim=0).nan_to_num()
        return (shares[..., None] * torch.stack([part.out for part in parts])).sum(0).bfloat16()

    grads = []
    for attention in (whole, by_parts):
        leaves = [each.clone().requires_grad_() for each in (q, keys)]
        out = attention(*leaves)
        grads.append([out, *torch.autograd.grad(out, leaves, bf16(4, 4, 32, seed=3))])
    # Parts are rounded too, before they are added up.
    assert all(off(a, b.double()) <= 2 * CLOSE for a, b in zip(*grads, strict=True))


# Values.


def test_logits_of_any_size():
    q, keys, indices = bf16(4, 4, 32), bf16(50, 32, seed=1), choose(4, 40, length=50)
    for scale in (0.0, 1e-3, 3.0, -0.4):
        assert_attention(q, keys, indices, scale=scale, cancelled=True)
    # A single key is all that counts.
    found = sparse_attention(q, keys, indices, 1e4)
    assert bool(found.out.isfinite().all())


def test_sinks_from_none_at_all_to_nothing_else():
    q, keys, indices = bf16(3, 4, 32), bf16(30, 32, seed=1), choose(3, 20, length=30)
    sinks = torch.tensor([-INFINITY, -200.0, 3.0, 200.0], device=DEVICE)
    found = sparse_attention(q, keys, indices, 0.2, sinks=sinks, probabilities=True)
    without = sparse_attention(q, keys, indices, 0.2)
    assert torch.equal(found.out[:, :2], without.out[:, :2])
    assert torch.equal(found.lse, without.lse)
    assert not bool(found.out[:, 3].any())
    _, grads = run(sparse_attention, q, keys, indices, 0.2, sinks=sinks)
    assert all(bool(each.isfinite().all()) for each in grads)
    assert_attention(q, keys, indices, sinks=sinks.clamp(-50, 5))


def test_probabilities_are_the_heads_sums():
    q, keys, indices = bf16(3, 5, 32), bf16(90, 32, seed=1), choose(3, 70, length=90, counts=[70, 0, 9])
    sums = sparse_attention(q, keys, indices, 0.3, probabilities=True).probabilities
    assert not sums.requires_grad
    assert sums.sum(1).tolist() == pytest.approx([5, 0, 5], rel=CLOSE)
    assert sparse_attention(q, keys, indices, 0.3).probabilities is None


def test_a_key_that_is_nan_is_told_and_queries_without_it_are_not_touched():
    q, keys = bf16(2, 4, 32), bf16(20, 32, seed=1)
    keys[5, 3] = float("nan")
    indices = torch.tensor([[5, 6, 7], [1, 2, 3]], dtype=torch.int32, device=DEVICE)
    found = sparse_attention(q, keys, indices, 0.2)
    assert bool(found.out[0].isnan().all())
    assert bool(found.out[1].isfinite().all())


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
    q, keys, values, sinks = bf16(12, 4, 48), bf16(30, 2, 48, seed=1), bf16(30, 2, 24, seed=2), normal(4)
    indices = choose(12, 20, length=30)
    grad_out = bf16(12, 4, 24, seed=3)

    def backward(order):
        leaves = [each.clone().requires_grad_() for each in (q[order], keys, values, sinks)]
        given = sparse_attention(
            *leaves[:2], indices[order], 0.2, values=leaves[2], sinks=leaves[3], deterministic=True
        )
        given.out.backward(grad_out[order])
        return [each.grad for each in leaves]

    first = backward(torch.arange(12, device=DEVICE))
    for seed in range(3):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
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
