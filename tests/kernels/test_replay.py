import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.replay import reference, replay, replay_gradients
from hyscale_kernels.replay.gradients import in_ones, units_per_one
from hyscale_kernels.score_table import score_table, select
from hyscale_kernels.scoring.inputs import FP8, Scored
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE, INFINITY, exact, random, whole

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

# Relative to the norm. A factor is rounded to BF16 on a GPU and not by the interpreter; weights only by FP32 sums. The
# sign of an FP8 product near 0 is that of a sum that a tensor core cut off.
CLOSE = {torch.bfloat16: 2**-8, FP8: 2**-6} if DEVICE == "cuda" else {torch.bfloat16: 1e-6, FP8: 1e-6}
CLOSE_WEIGHTS = {torch.bfloat16: 1e-5, FP8: 1e-3}


def choose(n, length, topk, counts=None, seed=0):
    """Ascending indices, the first ``counts`` of each row; all of them without."""
    draw = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(length, generator=draw)[:topk].sort().values for _ in range(n)]
    indices = torch.full((n, topk), -1, dtype=torch.int32)
    for t, row in enumerate(rows):
        count = min(topk, length) if counts is None else min(counts[t], length)
        indices[t, :count] = row[:count]
    return indices.to(DEVICE)


def slopes(indices, seed=0):
    """Normal gradients of scores, NaN where there is no key: nothing may read them."""
    draw = torch.Generator().manual_seed(seed + 100)
    return torch.randn(indices.shape, generator=draw).to(DEVICE).masked_fill(indices < 0, float("nan"))


def off(found, wanted):
    """Error relative to the norm."""
    error = (found.double() - wanted).norm()
    return float(error / wanted.norm()) if bool(wanted.any()) else float(error)


def assert_gradients(q, keys, weights, indices, deterministic=False, **scales):
    """Those of ``replay_gradients`` against float64 autograd."""
    grads = slopes(indices)
    found = replay_gradients(grads, q, keys, weights, indices, deterministic=deterministic, **scales)
    wanted = reference.gradients(grads.masked_fill(indices < 0, 0.0), q, keys, weights, indices, **scales)
    for value, like in zip(found, wanted, strict=True):
        assert value.shape == like.shape
        assert value.dtype == torch.float32
    assert off(found.weights, wanted.weights) <= CLOSE_WEIGHTS[q.dtype]
    assert off(found.q, wanted.q) <= CLOSE[q.dtype]
    assert off(found.keys, wanted.keys) <= CLOSE[q.dtype]
    return found


def table_at(indices, q, keys, weights, **scales):
    """Scores of a table at the indices, 0 where there is none."""
    table = score_table(q, keys, weights, whole(len(q), len(keys)), **scales)
    return table.gather(1, indices.clamp(min=0).long()).masked_fill(indices < 0, 0.0)


def assert_bits(found, wanted):
    """Equal, as far as the interpreter's products of FP32 do not depend on the size of a tile."""
    if DEVICE == "cuda":
        assert torch.equal(found, wanted)
    else:
        assert off(found, wanted.double()) <= 1e-6


# The oracle itself.


def test_the_oracle_agrees_with_finite_differences():
    draw = torch.Generator().manual_seed(3)
    indices = torch.tensor([[0, 2, 4, -1], [-1, -1, -1, -1], [4, 4, 1, 0]], dtype=torch.int32)
    shapes = ((3, 2, 4), (5, 4), (3, 2))
    leaves = [torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(lambda q, keys, weights: reference.replay(q, keys, weights, indices), leaves)


def test_the_oracle_is_the_formula():
    q, keys, weights = random(2, 3, 4, 5)
    indices = torch.tensor([[3, -1], [0, 4]], dtype=torch.int32, device=DEVICE)
    grads = torch.tensor([[2.0, 7.0], [-1.0, 0.5]], device=DEVICE)
    scores = reference.replay(q, keys, weights, indices)
    found = reference.gradients(grads, q, keys, weights, indices)
    dq, dkeys, dweights = (torch.zeros_like(each, dtype=torch.float64) for each in (q, keys, weights))
    for t, slot in ((0, 0), (1, 0), (1, 1)):
        s, slope, score = indices[t, slot], grads[t, slot].double(), 0.0
        for h in range(3):
            product = q[t, h].double() @ keys[s].double()
            score += weights[t, h].double() * product.clamp(min=0)
            dweights[t, h] += slope * product.clamp(min=0)
            if product > 0:
                dq[t, h] += slope * weights[t, h].double() * keys[s].double()
                dkeys[s] += slope * weights[t, h].double() * q[t, h].double()
        assert scores[t, slot].item() == pytest.approx(float(score), abs=1e-12)
    assert scores[0, 1] == 0
    for value, wanted in zip(found, (dq, dkeys, dweights), strict=True):
        assert torch.allclose(value, wanted, rtol=0, atol=1e-12)


# Shapes.


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 16, 24, 32, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_head_counts(heads, dtype):
    q, keys, weights = random(4, heads, 64, 50, dtype)
    indices = choose(4, 50, 21, [21, 0, 13, 1])
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize("heads", [4, 6, 16, 32, 64])
def test_case_20_head_counts_without_head_weights(heads):
    q, keys, _ = random(3, heads, 32, 40)
    indices = choose(3, 40, 17)
    assert_bits(replay(q, keys, None, indices), table_at(indices, q, keys, None))
    assert_gradients(q, keys, None, indices)
    q.requires_grad_()
    replay(q, keys, None, indices).sum().backward()
    assert bool(q.grad.any())


@pytest.mark.parametrize("dim", [1, 32, 48, 128, 512])
def test_dims(dim):
    q, keys, weights = random(3, 4, dim, 40)
    indices = choose(3, 40, 20)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize(
    ("heads", "dim", "dtype"), [(128, 128, torch.bfloat16), (32, 512, torch.bfloat16), (64, 512, FP8), (128, 256, FP8)]
)
def test_the_widest_heads(heads, dim, dtype):
    q, keys, weights = random(2, heads, dim, 30, dtype)
    indices = choose(2, 30, 20, [20, 7])
    for deterministic in (False, True):
        assert_gradients(q, keys, weights, indices, deterministic)


@pytest.mark.parametrize("topk", [1, 15, 16, 63, 64, 65, 130])
def test_widths_that_are_no_multiple_of_a_tile(topk):
    q, keys, weights = random(3, 4, 32, 150)
    indices = choose(3, 150, topk)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("topk", [0, 5])
@pytest.mark.parametrize("length", [0, 9])
@pytest.mark.parametrize("deterministic", [False, True])
def test_nothing_selected_or_to_select(n, topk, length, deterministic):
    q, keys, weights = random(n, 4, 32, length)
    indices = torch.full((n, topk), -1, dtype=torch.int32, device=DEVICE)
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    scores = replay(*leaves, indices, deterministic=deterministic)
    assert torch.equal(scores, torch.zeros(n, topk, device=DEVICE))
    scores.sum().backward()
    for each in leaves:
        assert torch.equal(each.grad, torch.zeros_like(each))


def test_case_24_keys_with_a_large_row_stride_and_columns_apart():
    q, keys, weights = random(5, 4, 64, 40)
    indices = choose(5, 40, 20)
    apart = torch.full((40, 1000), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    apart[:, 64:128] = keys
    crossed = torch.empty(64, 40, device=DEVICE, dtype=torch.bfloat16).T.copy_(keys)
    turned = q.transpose(0, 1).contiguous().transpose(0, 1)
    wanted = assert_gradients(q, keys, weights, indices, deterministic=True)
    for others in ((q, apart[:, 64:128]), (q, crossed), (turned, keys)):
        assert torch.equal(replay(*others, weights, indices), replay(q, keys, weights, indices))
        found = assert_gradients(*others, weights, indices, deterministic=True)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 5),
    heads=st.integers(1, 20),
    # Sums over keys of a single dimension may cancel each other out, and rounding does not.
    dim=st.integers(16, 40),
    length=st.integers(1, 40),
    topk=st.integers(1, 40),
    fp8=st.booleans(),
    deterministic=st.booleans(),
    data=st.data(),
)
def test_any_shape(n, heads, dim, length, topk, fp8, deterministic, data):
    q, keys, weights = random(n, heads, dim, length, FP8 if fp8 else torch.bfloat16)
    counts = data.draw(st.lists(st.integers(0, topk), min_size=n, max_size=n))
    indices = choose(n, length, topk, counts)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices, deterministic)


# What is selected.


@pytest.mark.parametrize("topk", [1, 7, 30])
def test_selected_scores_are_those_of_the_table_and_the_highest(topk):
    q, keys, weights = exact(6, 4, 32, 40)
    spans = causal_spans(torch.tensor([0, 3, 6, 20, 29, 39], device=DEVICE))
    indices = select(q, keys, weights, spans, topk)
    scores, table = replay(q, keys, weights, indices), score_table(q, keys, weights, spans)
    for row, chosen, all_of in zip(scores, indices, table, strict=True):
        count = int((chosen >= 0).sum())
        assert torch.equal(row[:count], all_of[chosen[:count].long()])
        assert torch.equal(row[:count].sort(descending=True).values, all_of.sort(descending=True).values[:count])


def test_case_14_lengths_around_topk_keep_the_width_and_padding_is_ignored():
    q, keys, weights = random(5, 4, 32, 60)
    indices = choose(5, 60, 40, [0, 1, 39, 40, 40])
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    scores = replay(*leaves, indices)
    assert scores.shape == (5, 40)
    assert not bool(scores[indices < 0].any())
    scores.backward(slopes(indices))
    assert not bool(q.grad[0].any() | weights.grad[0].any())
    assert all(bool(each.grad.isfinite().all()) for each in leaves)
    # Nor does what is padded change others.
    alone = replay_gradients(slopes(indices)[1:2, :1], q[1:2], keys, weights[1:2], indices[1:2, :1])
    assert off(alone.q[0], replay_gradients(slopes(indices), q, keys, weights, indices).q[1].double()) <= 1e-6


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_18_a_rank_whose_rows_are_all_padding(deterministic):
    q, keys, weights = random(6, 4, 32, 30)
    indices = torch.full((6, 12), -1, dtype=torch.int32, device=DEVICE)
    # The first key stands in for none.
    keys[0] = INFINITY
    assert not bool(replay(q, keys, weights, indices).any())
    found = replay_gradients(slopes(indices), q, keys, weights, indices, deterministic=deterministic)
    assert not any(bool(each.any()) for each in found)


def test_padding_between_others_and_in_front():
    q, keys, weights = random(3, 4, 32, 30)
    indices = torch.tensor([[-1, 4, -1, 9], [0, -1, -1, 29], [-1, -1, 3, -1]], dtype=torch.int32, device=DEVICE)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    assert_gradients(q, keys, weights, indices)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_key_that_every_query_selects_and_one_selected_twice(deterministic):
    q, keys, weights = random(40, 4, 32, 30)
    indices = choose(40, 30, 6)
    indices[:, 2] = 7
    indices[3] = 11
    assert_gradients(q, keys, weights, indices, deterministic)


def test_keys_that_nobody_selects_have_no_gradient():
    q, keys, weights = random(4, 4, 32, 50)
    indices = choose(4, 20, 10)
    assert not bool(assert_gradients(q, keys, weights, indices).keys[20:].any())


# Values.


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_30_scales_from_2_to_the_minus_10_to_2_to_the_10(deterministic):
    q, keys, weights = random(6, 4, 64, 50, FP8)
    draw = torch.Generator().manual_seed(2)
    key_scale = torch.exp2(torch.randint(-10, 11, (50,), generator=draw).float()).to(DEVICE)
    q_scale = torch.exp2(torch.randint(-10, 11, (6, 4), generator=draw).float()).to(DEVICE)
    scales = {"q_scale": q_scale, "key_scale": key_scale}
    indices = choose(6, 50, 30, [30, 0, 4, 30, 29, 1])
    assert_bits(replay(q, keys, weights, indices, **scales), table_at(indices, q, keys, weights, **scales))
    found = assert_gradients(q, keys, weights, indices, deterministic, **scales)
    wanted = reference.gradients(
        slopes(indices).masked_fill(indices < 0, 0.0), q, keys, weights, indices, q_scale, key_scale
    )
    # Query by query, for their scales differ.
    for t in (0, 2, 3, 4, 5):
        assert off(found.q[t], wanted.q[t]) <= CLOSE[FP8]


@pytest.mark.parametrize("heads", [4, 6])
def test_the_same_values_in_bf16_with_scales_have_the_gradients_of_what_is_stored(heads):
    q, keys, weights = random(4, heads, 32, 30)
    draw = torch.Generator().manual_seed(4)
    key_scale = (torch.rand(30, generator=draw) + 0.5).to(DEVICE)
    q_scale = (torch.rand(4, heads, generator=draw) + 0.5).to(DEVICE)
    indices = choose(4, 30, 11)
    grads = slopes(indices)
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    replay(*leaves, indices, q_scale=q_scale, key_scale=key_scale).backward(grads)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    scores = reference.replay(*exact, indices, q_scale, key_scale)
    scores.backward(grads.double())
    for found, wanted in zip(leaves, exact, strict=True):
        # The result itself is BF16.
        assert off(found.grad, wanted.grad) <= CLOSE[torch.bfloat16] + 2**-8


def test_weights_of_fp8_queries_have_gradients():
    q, keys, weights = random(4, 6, 32, 30, FP8)
    indices = choose(4, 30, 11)
    weights.requires_grad_()
    replay(q, keys, weights, indices).sum().backward()
    wanted = reference.gradients(torch.ones(4, 11), q.cpu(), keys.cpu(), weights.cpu(), indices.cpu())
    assert off(weights.grad.cpu(), wanted.weights) <= CLOSE_WEIGHTS[FP8]


def test_small_whole_numbers_have_exact_sums():
    q, keys, weights = exact(5, 4, 32, 40)
    apart = torch.full((40, 999), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    apart[:, 5:37] = keys
    indices = choose(5, 40, 23)
    assert torch.equal(replay(q, apart[:, 5:37], weights, indices), table_at(indices, q, keys, weights))
    grads = torch.randint(-3, 4, (5, 23), generator=torch.Generator().manual_seed(1)).float().to(DEVICE)
    wanted = reference.gradients(grads, q, keys, weights, indices)
    for deterministic in (False, True):
        found = replay_gradients(grads, q, apart[:, 5:37], weights, indices, deterministic=deterministic)
        assert torch.equal(found.q.double(), wanted.q)
        assert torch.equal(found.weights.double(), wanted.weights)
        assert torch.allclose(found.keys.double(), wanted.keys, rtol=0, atol=1e-12)


def test_a_score_that_is_nan_is_told_and_others_are_not_touched():
    q, keys, weights = random(3, 4, 32, 20)
    keys[5, 3] = float("nan")
    indices = torch.tensor([[5, 6, 7], [1, 2, 3], [2, 3, 4]], dtype=torch.int32, device=DEVICE)
    scores = replay(q, keys, weights, indices)
    assert scores.isnan().tolist() == [[True, False, False], [False] * 3, [False] * 3]
    found = replay_gradients(torch.ones(3, 3, device=DEVICE), q, keys, weights, indices)
    assert bool(found.q[0].isnan().any())
    assert bool(found.q[1:].isfinite().all())
    assert bool(found.keys.isfinite().all())
    assert bool(found.weights.isfinite().all())


def test_products_of_zero_have_no_gradient():
    q, keys, weights = random(3, 4, 32, 20)
    indices = choose(3, 20, 9)
    found = replay_gradients(slopes(indices), torch.zeros_like(q), keys, weights, indices)
    assert not any(bool(each.any()) for each in found)


# Determinism.


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_the_order_of_queries_changes_no_bit(dtype):
    q, keys, weights = random(30, 6, 32, 40, dtype)
    indices = choose(30, 40, 20)
    grads = slopes(indices)
    first = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
    for seed in range(3):
        order = torch.randperm(30, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        q8 = q.view(torch.int8) if dtype == FP8 else q
        moved = q8[order].view(dtype)
        found = replay_gradients(grads[order], moved, keys, weights[order], indices[order], deterministic=True)
        assert torch.equal(found.keys, first.keys)
        assert torch.equal(found.q, first.q[order])
        assert torch.equal(found.weights, first.weights[order])


def test_what_a_fixed_point_loses_is_far_below_fp32():
    q, keys, weights = random(30, 4, 32, 40)
    indices = choose(30, 40, 20)
    grads = slopes(indices)
    fixed = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
    floating = replay_gradients(grads, q, keys, weights, indices)
    assert off(fixed.keys, floating.keys.double()) < 1e-6
    assert torch.equal(fixed.q, floating.q)
    assert torch.equal(fixed.weights, floating.weights)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e18, 1e30])
def test_gradients_of_any_size_neither_overflow_nor_vanish(size):
    q, keys, weights = random(6, 4, 32, 10)
    indices = torch.full((6, 4), 3, dtype=torch.int32, device=DEVICE)
    grads = torch.full((6, 4), size, device=DEVICE)
    found = replay_gradients(grads, q, keys, weights.abs(), indices, deterministic=True)
    wanted = reference.gradients(grads, q, keys, weights.abs(), indices)
    assert off(found.keys, wanted.keys) <= CLOSE[q.dtype]


def test_no_gradient_at_all_has_a_unit_too():
    q, keys, weights = random(3, 4, 32, 10)
    indices = choose(3, 10, 4)
    found = replay_gradients(torch.zeros(3, 4, device=DEVICE), q, keys, weights, indices, deterministic=True)
    assert not any(bool(each.any()) for each in found)


def test_no_bound_makes_nan_of_the_gradients_of_keys():
    q, keys, weights = random(2, 4, 32, 10)
    indices = choose(2, 10, 4)
    grads = torch.full((2, 4), INFINITY, device=DEVICE)
    found = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
    assert bool(found.keys.isnan().all())


def test_the_unit_is_a_power_of_two_that_the_bound_cannot_overflow():
    q, keys, weights = random(5, 3, 32, 10)
    scored = Scored.of(q, keys, weights, torch.zeros(5, 2, dtype=torch.int32, device=DEVICE))
    indices = choose(5, 10, 4, [4, 3, 0, 4, 1])
    grads = slopes(indices)
    per_one = units_per_one(scored, indices, grads)
    bound = (weights.abs() * q.float().abs().amax(-1)).sum(-1) @ grads.nan_to_num().abs().sum(-1)
    assert 2**59.9 <= float(bound * per_one) < 2**61
    assert torch.frexp(per_one).mantissa.item() == 0.5
    sums = torch.tensor([[1, -(2**40)], [2**60, 0]], device=DEVICE)
    assert torch.equal(in_ones(sums, torch.full((1,), 2.0**10, device=DEVICE)).double(), sums / 2.0**10)


# Autograd.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_have_the_type_of_their_inputs(dtype):
    q, keys, weights = random(3, 6, 32, 20)
    weights = weights.to(dtype)
    leaves = [each.requires_grad_() for each in (q, keys, weights)]
    indices = choose(3, 20, 9)
    grads = slopes(indices)
    replay(*leaves, indices).backward(grads)
    found = replay_gradients(grads, *leaves, indices)
    for each, value in zip(leaves, found, strict=True):
        assert each.grad.dtype == each.dtype
        assert off(each.grad, value.to(each.dtype).double()) <= 1e-6


@pytest.mark.parametrize("which", range(3))
def test_only_what_requires_a_gradient_has_one(which):
    leaves = list(random(3, 4, 32, 20))
    leaves[which].requires_grad_()
    replay(*leaves, choose(3, 20, 9)).sum().backward()
    assert [each.grad is not None for each in leaves] == [at == which for at in range(3)]


@pytest.mark.parametrize("changed", ["weights", "indices"])
def test_an_input_changed_before_the_backward_is_noticed(changed):
    q, keys, weights = random(3, 4, 32, 20)
    indices = choose(3, 20, 9)
    scores = replay(q.requires_grad_(), keys, weights, indices)
    {"weights": weights, "indices": indices}[changed].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores.sum().backward()


# Wrong inputs.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"indices": torch.zeros(3, 5, dtype=torch.int64)},
            r"indices must be int32 \(3, k\), are torch.int64 \(3, 5\)",
        ),
        (
            {"indices": torch.zeros(2, 5, dtype=torch.int32)},
            r"indices must be int32 \(3, k\), are torch.int32 \(2, 5\)",
        ),
        ({"indices": torch.full((3, 5), 20, dtype=torch.int32)}, "indices must be -1 or a key, 0 to 19"),
        ({"indices": torch.full((3, 5), -2, dtype=torch.int32)}, "indices must be -1 or a key, 0 to 19"),
        ({"weights": torch.zeros(3, 5)}, r"weights must be \(3, 4\), is \(3, 5\)"),
        ({"keys": torch.zeros(20, 64).bfloat16()}, "q must be"),
        ({"key_scale": torch.zeros(20)}, "key_scale must be positive"),
    ],
)
def test_wrong_inputs_are_refused(changed, message):
    q, keys, weights = random(3, 4, 32, 20)
    inputs = {"q": q, "keys": keys, "weights": weights, "indices": choose(3, 20, 5)}
    inputs |= {name: value.to(DEVICE) for name, value in changed.items()}
    with pytest.raises(ValueError, match=message):
        replay(**inputs)


def test_gradients_that_fit_no_scores_are_refused():
    q, keys, weights = random(3, 4, 32, 20)
    with pytest.raises(ValueError, match=r"grad_scores must be floating point \(3, 5\), is torch.float32 \(3, 4\)"):
        replay_gradients(torch.zeros(3, 4), q, keys, weights, choose(3, 20, 5))


def test_fp8_that_requires_a_gradient_is_refused():
    q, keys, weights = random(3, 4, 32, 20, FP8)
    with pytest.raises(ValueError, match="q is FP8, which holds no gradients"):
        replay(q.requires_grad_(), keys, weights, choose(3, 20, 5))


# At the sizes of a real run.


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
@pytest.mark.parametrize("heads", [4, 32, 64])
def test_a_real_width(gpu, dtype, heads):
    q, keys, weights = random(64, heads, 128, 100_000, dtype)
    indices = choose(64, 100_000, 2048)
    assert_bits(replay(q, keys, weights, indices), table_at(indices, q, keys, weights))
    for deterministic in (False, True):
        assert_gradients(q, keys, weights, indices, deterministic)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_twenty_launches_are_equal_bit_for_bit(gpu, dtype):
    q, keys, weights = random(1024, 32, 128, 5000, dtype)
    indices = choose(1024, 5000, 705)
    grads = slopes(indices)
    first = assert_gradients(q, keys, weights, indices, deterministic=True)
    floating = replay_gradients(grads, q, keys, weights, indices)
    for _ in range(20):
        found = replay_gradients(grads, q, keys, weights, indices, deterministic=True)
        assert all(torch.equal(a, b) for a, b in zip(found, first, strict=True))
        again = replay_gradients(grads, q, keys, weights, indices)
        assert torch.equal(again.q, floating.q)
        assert torch.equal(again.weights, floating.weights)


@pytest.mark.gpu
def test_indices_beyond_32_bits(gpu):
    n, topk = 2**20 + 3, 2048
    q, keys, weights = random(n, 2, 32, 3000)
    indices = torch.arange(topk, device=DEVICE, dtype=torch.int32).expand(n, topk).contiguous()
    indices[-1] = torch.arange(3000 - topk, 3000, device=DEVICE)
    scores = replay(q, keys, weights, indices)
    assert torch.equal(scores[-2:], replay(q[-2:], keys, weights[-2:], indices[-2:]))
    grads = torch.zeros(n, topk, device=DEVICE)
    grads[-2:] = slopes(indices[-2:])
    found = replay_gradients(grads, q, keys, weights, indices)
    alone = replay_gradients(grads[-2:].clone(), q[-2:], keys, weights[-2:], indices[-2:])
    assert torch.equal(found.q[-2:], alone.q)
    assert torch.equal(found.weights[-2:], alone.weights)
    assert off(found.keys, alone.keys.double()) < 1e-6
