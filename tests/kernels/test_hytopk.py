"""The contract of a selection through queries, keys and weights: shapes, spans, values, refusals."""

from dataclasses import replace

import pytest
import torch
from hyscale_kernels.hytopk import Plan, hytopk
from hyscale_kernels.score_table import score_table
from hyscale_kernels.scoring.inputs import FP8
from hyscale_kernels.scoring.reference import scores as oracle
from hyscale_kernels.spans import causal_spans, zigzag_positions
from inputs import (
    DEVICE,
    INFINITY,
    SMALL_PLAN,
    assert_equal_selections,
    assert_selection,
    broken_elsewhere,
    exact,
    queries_of,
    whole,
)

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

NAN = float("nan")
ROWS = broken_elsewhere()
# Candidates of most queries fit, whatever is visible of 600 keys.
ROOMY = replace(SMALL_PLAN, capacity=200, hopeless=60)


def check(q, keys, weights, spans, topk, plan=SMALL_PLAN, **scales):
    """The selection of inputs with exact scores, checked against those of the oracle."""
    table = oracle(q, keys, weights, spans, **scales)
    found = hytopk(q, keys, weights, spans, topk, plan=plan, **scales)
    assert_selection(found, table, topk)
    return found


# Shapes.


@pytest.mark.parametrize(
    ("heads", "dtype"),
    [(heads, torch.bfloat16) for heads in (1, 2, 4, 6, 16, 32, 64)] + [(heads, FP8) for heads in (1, 4, 32)],
)
def test_head_counts(heads, dtype):
    q, keys, weights = exact(2, heads, 32, 600)
    found = check(q.to(dtype), keys.to(dtype), weights, whole(2, 600), 20, ROOMY)
    # A head weight of 0 makes a plateau of a single head.
    assert heads == 1 or not found.recovered.all()


@pytest.mark.parametrize("heads", [1, 4])
def test_without_head_weights(heads):
    q, keys, _ = exact(2, heads, 32, 600)
    check(q, keys, None, whole(2, 600), 20)


def test_weights_that_are_all_negative():
    q, keys, weights = exact(3, 4, 32, 600)
    weights = -weights.abs() - 1
    assert bool((score_table(q, keys, weights, whole(3, 600)) <= 0).all())
    check(q, keys, weights, whole(3, 600), 20)


@pytest.mark.parametrize("dim", [8, 96])
def test_widths_that_are_filled_up(dim):
    q, keys, weights = exact(2, 4, dim, 600)
    check(q, keys, weights, whole(2, 600), 20)


@pytest.mark.parametrize("topk", [1, 63, 705, 2047])
def test_odd_topk_and_topk_beyond_the_visible_keys(topk):
    q, keys, weights = exact(2, 2, 32, 1000)
    spans = causal_spans(torch.tensor([999, 703], device=DEVICE))
    check(q, keys, weights, spans, topk, replace(SMALL_PLAN, capacity=800))


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 511, 512, 513, 1025])
def test_lengths_around_the_capacity_and_groups_of_keys(length):
    q, keys, weights = exact(2, 2, 32, length)
    spans = torch.tensor([[0, length], [length // 2, length]], device=DEVICE)
    found = check(q, keys, weights, spans, 20)
    assert bool(found.margin.isinf().all()) or length > SMALL_PLAN.capacity


def test_lengths_around_topk_keep_the_width_and_pad():
    q, keys, weights = exact(5, 1, 32, 2100)
    # The last two have more keys than fit the candidates.
    lengths = torch.tensor([0, 1, 2047, 2048, 2049], device=DEVICE)
    spans = torch.stack([torch.full_like(lengths, 40), 40 + lengths], dim=1)
    found = check(q, keys, weights, spans, 2048, replace(SMALL_PLAN, capacity=2047))
    assert (found.indices >= 0).sum(1).tolist() == [0, 1, 2047, 2048, 2048]


def test_fewer_keys_than_a_stride():
    q, keys, weights = exact(2, 2, 32, 300)
    found = check(q, keys, weights, whole(2, 300), 20, replace(SMALL_PLAN, stride=512))
    assert found.recovered.tolist() == [True, True]


def test_no_queries():
    q, keys, weights = exact(0, 2, 32, 600)
    for plan in (None, SMALL_PLAN):
        found = hytopk(q, keys, weights, whole(1, 600)[:0], 20, plan=plan)
        assert found.indices.shape == (0, 20)
        assert found.candidates.shape == found.margin.shape == found.recovered.shape == (0,)


def test_keys_with_a_large_row_stride_and_columns_apart():
    q, keys, weights = exact(2, 2, 32, 600)
    found = check(q, keys, weights, whole(2, 600), 20)
    apart = torch.full((600, 1000), NAN, device=DEVICE, dtype=torch.bfloat16)
    apart[:, 64:96] = keys
    crossed = torch.empty(32, 600, device=DEVICE, dtype=torch.bfloat16).T.copy_(keys)
    for strided in (apart[:, 64:96], crossed):
        assert not strided.is_contiguous()
        other = hytopk(q, strided, weights, whole(2, 600), 20, plan=SMALL_PLAN)
        assert_equal_selections(other, found)


def test_keys_beyond_32_bits_of_offset():
    q, keys, weights = exact(2, 4, 32, 600)
    found = check(q.to(FP8), keys.to(FP8), weights, whole(2, 600), 20, ROOMY)
    assert not found.recovered.all()
    # Pages that nobody touches take no memory.
    try:
        memory = torch.empty(599 * 2**22 + 32, device=DEVICE, dtype=torch.uint8)
    except RuntimeError:
        pytest.skip("needs 2.5 GB of address space")
    apart = memory.view(FP8).as_strided((600, 32), (2**22, 1))
    apart.copy_(keys)
    other = hytopk(q.to(FP8), apart, weights, whole(2, 600), 20, plan=ROOMY)
    assert_equal_selections(other, found)


# Spans.


def test_zigzag_ranks_equal_a_single_run():
    length, topk = 400, 12
    q, keys, weights = exact(length, 2, 32, length)
    # Every 50th position stands for all: one in each chunk of four ranks.
    some = torch.arange(49, length, 50, device=DEVICE)
    single = check(q[some], keys, weights[some], causal_spans(some), topk)
    for ranks in (2, 4):
        for rank in range(ranks):
            held = zigzag_positions(length, ranks, rank, DEVICE)
            held = held[held % 50 == 49]
            assert len(held) == 8 // ranks
            found = hytopk(q[held], keys, weights[held], causal_spans(held), topk, plan=SMALL_PLAN)
            assert_equal_selections(found, single, held // 50)


def test_a_rank_whose_rows_are_all_empty():
    q, keys, weights = exact(3, 2, 32, 600)
    for at in (0, 17, 600):
        spans = torch.full((3, 2), at, device=DEVICE)
        found = hytopk(q, keys, weights, spans, 20, plan=SMALL_PLAN)
        assert bool((found.indices == -1).all())
        assert found.candidates.tolist() == [0] * 3
        assert not found.recovered.any()


def test_packed_segments_select_inside_their_own():
    starts = torch.tensor([0] * 2 + [250] * 2 + [287] * 3, device=DEVICE)
    positions = torch.tensor([100, 249, 250, 286, 287, 400, 599], device=DEVICE)
    q, keys, weights = exact(7, 2, 32, 600)
    found = check(q, keys, weights, causal_spans(positions, segment_starts=starts), 20)
    some = found.indices >= 0
    assert bool((found.indices >= starts[:, None])[some].all())
    assert bool((found.indices <= positions[:, None])[some].all())


def test_compressed_entries():
    positions = torch.tensor([2, 3, 1000, 2398, 2399], device=DEVICE)
    q, keys, weights = exact(5, 2, 32, 600)
    check(q, keys, weights, causal_spans(positions, ratio=4), 20)


@pytest.mark.parametrize("border", [512, pytest.param(1024, marks=pytest.mark.slow)])
def test_spans_around_borders_of_groups_and_words(border):
    near = [border - 32, border - 1, border, border + 1]
    spans = [(0, end) for end in near] + [(begin, border + 500) for begin in near]
    q, keys, weights = exact(8, 1, 32, border + 500)
    check(q, keys, weights, torch.tensor(spans, device=DEVICE), 20)


# Values.


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_broke_other_selections_are_exact(name):
    values, topk = ROWS[name]
    values, topk = values[-1400:], min(topk, 150)
    plan = Plan(stride=16, rank=18, capacity=700, hopeless=60, lanes=16)
    found = hytopk(**queries_of(values, [1.0, -1.0]), topk=topk, plan=plan)
    assert_selection(found, torch.stack([values, -values]), topk)


def test_nan_in_keys_and_queries_is_never_selected():
    q, keys, weights = exact(4, 4, 32, 600)
    keys[::3, 3] = NAN
    q[1, 2, 5] = NAN
    weights[2, 1] = NAN
    found = check(q, keys, weights, whole(4, 600), 30)
    assert bool((found.indices[[0, 3]] % 3 > 0).all())
    assert bool((found.indices[[1, 2]] == -1).all())


@pytest.mark.parametrize("finite", [19, 20, 21])
def test_nan_that_leaves_one_less_than_topk_as_many_and_one_more(finite):
    q, keys, weights = exact(2, 2, 32, 600)
    keys[finite:, 0] = NAN
    found = check(q, keys, weights, whole(2, 600), 20)
    assert (found.indices >= 0).sum(1).tolist() == [min(finite, 20)] * 2


def test_infinity_comes_first_and_minus_infinity_never():
    q, keys, weights = exact(2, 2, 32, 600)
    q, weights = q.abs() + 1, weights.abs() + 1
    weights[1] *= -1
    keys[[11, 300], 3], keys[12, 3] = INFINITY, -INFINITY
    found = check(q, keys, weights, whole(2, 600), 20)
    assert {11, 300} <= {*found.indices[0].tolist()}
    assert not {11, 300} & {*found.indices[1].tolist()}
    assert check(q[:1], keys, weights[:1], whole(1, 600), 2).indices.tolist() == [[11, 300]]


def test_zeros_everywhere_fill_every_slot_from_the_left():
    q, keys, weights = exact(3, 2, 32, 600)
    spans = torch.tensor([[0, 600], [7, 400], [590, 600]], device=DEVICE)
    found = check(q, torch.zeros_like(keys), weights, spans, 20)
    assert found.indices.tolist() == [[*range(20)], [*range(7, 27)], [*range(590, 600), *[-1] * 10]]


def test_scales_of_quantised_inputs_from_2_to_the_minus_10_to_2_to_the_10():
    q, keys, weights = exact(4, 4, 32, 600)
    draw = torch.Generator().manual_seed(2)
    key_scale = torch.exp2(torch.randint(-10, 11, (600,), generator=draw).float()).to(DEVICE)
    q_scale = torch.exp2(torch.randint(-10, 11, (4, 1), generator=draw).float()).expand(4, 4).to(DEVICE)
    # Powers of two: the oracle's scores are whole numbers of at most 11 bits, shifted.
    check(q.to(FP8), keys.to(FP8), weights, whole(4, 600), 30, q_scale=q_scale, key_scale=key_scale)


def test_topk_beyond_the_keys_is_every_key():
    q, keys, weights = exact(2, 2, 32, 300)
    for plan in (None, SMALL_PLAN):
        found = hytopk(q, keys, weights, whole(2, 300), 320, plan=plan)
        assert found.indices.tolist() == [[*range(300), *[-1] * 20]] * 2


# Gradients.


def test_a_selection_in_inference_mode_leaves_nothing_that_training_stumbles_over():
    q, keys, weights = exact(2, 2, 32, 617)
    with torch.inference_mode():
        found = hytopk(q, keys, weights, whole(2, 617), 20, plan=SMALL_PLAN)
    other = hytopk(q.requires_grad_(), keys.requires_grad_(), weights, whole(2, 617), 20, plan=SMALL_PLAN)
    assert_equal_selections(other, found)
    assert not other.margin.requires_grad


# What is refused.


def wrong(**changed):
    q, keys, weights = exact(3, 4, 32, 300)
    given = {"q": q, "keys": keys, "weights": weights, "spans": whole(3, 300), "topk": 2, "plan": SMALL_PLAN}
    return given | {name: change(given.get(name)) for name, change in changed.items()}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"topk": lambda _: 0}, "1 to 2048"),
        ({"topk": lambda _: 2049}, "1 to 2048"),
        ({"q": lambda q: q[0]}, r"q must be \[n, heads, dim\]"),
        ({"q": lambda q: q[0, 0, 0]}, r"q must be \[n, heads, dim\]"),
        ({"keys": lambda keys: keys[0, 0]}, r"keys \[L, dim\]"),
        ({"q": lambda q: q.float()}, "both be bfloat16 or float8_e4m3fn"),
        ({"keys": lambda keys: keys.to(FP8)}, "both be bfloat16 or float8_e4m3fn"),
        ({"weights": lambda weights: weights[:, :2]}, r"weights must be \(3, 4\), is \(3, 2\)"),
        ({"spans": lambda spans: spans[:2]}, r"spans must be \(3, 2\)"),
        ({"spans": lambda spans: spans.float()}, "integer"),
        ({"spans": lambda spans: spans + 1}, "within 0 and 300"),
        ({"spans": lambda spans: spans - 1}, "within 0 and 300"),
        ({"key_scale": lambda _: torch.zeros(300, device=DEVICE)}, "key_scale must be positive"),
        ({"keys": lambda keys: keys[:1].expand(2**21 + 1, 32)}, "at most 2097152 keys"),
    ],
)
def test_wrong_inputs_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        hytopk(**wrong(**changed))
