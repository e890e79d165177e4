import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.score_table import score_table, select
from hyscale_kernels.scoring.inputs import FP8
from hyscale_kernels.scoring.reference import scores as oracle
from hyscale_kernels.spans import causal_spans, zigzag_positions
from hyscale_kernels.top_k import reference
from inputs import (
    DEVICE,
    INFINITY,
    assert_scores,
    assert_selected,
    exact,
    random,
    row,
    selected,
    table_of,
    whole,
)

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

# Shapes.


@pytest.mark.parametrize("heads", [1, 4, 6, 16, 32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_head_counts(heads, dtype):
    q, keys, weights = random(5, heads, 64, 77, dtype)
    spans = causal_spans(torch.tensor([0, 30, 63, 64, 76], device=DEVICE))
    assert_scores(score_table(q, keys, weights, spans), q, keys, weights, spans)


@pytest.mark.parametrize("heads", [1, 4, 6])
def test_without_head_weights(heads):
    q, keys, _ = random(5, heads, 64, 50)
    assert_scores(score_table(q, keys, None, whole(5, 50)), q, keys, None, whole(5, 50))


@pytest.mark.parametrize("dim", [1, 64, 96, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_dims(dim, dtype):
    q, keys, weights = random(4, 4, dim, 70, dtype)
    assert_scores(score_table(q, keys, weights, whole(4, 70)), q, keys, weights, whole(4, 70))


@pytest.mark.parametrize(("heads", "dim"), [(128, 128), (32, 512), (64, 256)])
def test_wide_heads_fit_the_default_tile(heads, dim):
    q, keys, weights = random(3, heads, dim, 40)
    assert_scores(score_table(q, keys, weights, whole(3, 40)), q, keys, weights, whole(3, 40))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 17])
@pytest.mark.parametrize("length", [1, 15, 16, 33])
def test_sizes_that_are_no_multiple_of_a_tile(n, length):
    q, keys, weights = exact(n, 4, 32, length)
    spans = whole(n, length)
    assert torch.equal(table_of((q, keys, weights, spans)).double(), oracle(q, keys, weights, spans))


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("length", [0, 20])
def test_nothing_to_select_from_or_for(n, length):
    q, keys, weights = exact(n, 4, 32, length)
    spans = torch.zeros(n, 2, dtype=torch.int64, device=DEVICE)
    assert score_table(q, keys, weights, spans).shape == (n, length)
    assert select(q, keys, weights, spans, 5).tolist() == [[-1] * 5] * n


def test_keys_with_a_large_row_stride_and_columns_apart():
    q, keys, weights = exact(5, 4, 64, 40)
    wanted = score_table(q, keys, weights, whole(5, 40))
    apart = torch.full((40, 1000), float("nan"), device=DEVICE, dtype=torch.bfloat16)
    apart[:, 64:128] = keys
    crossed = torch.empty(64, 40, device=DEVICE, dtype=torch.bfloat16).T.copy_(keys)
    assert not apart[:, 64:128].is_contiguous()
    assert torch.equal(score_table(q, apart[:, 64:128], weights, whole(5, 40)), wanted)
    assert torch.equal(score_table(q, crossed, weights, whole(5, 40)), wanted)
    assert torch.equal(score_table(q.transpose(0, 1).contiguous().transpose(0, 1), keys, weights, whole(5, 40)), wanted)


# Spans.


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_zigzag_ranks_equal_a_single_run_bit_for_bit(ranks, dtype):
    q, keys, weights = random(48, 4, 32, 48, dtype)
    spans = causal_spans(torch.arange(48, device=DEVICE))
    scores, chosen = score_table(q, keys, weights, spans), select(q, keys, weights, spans, 5)
    for rank in range(ranks):
        held = zigzag_positions(48, ranks, rank, DEVICE)
        local = (q[held], keys, weights[held], causal_spans(held))
        assert torch.equal(score_table(*local), scores[held])
        assert torch.equal(select(*local, 5), chosen[held])


def test_packed_segments_select_inside_their_own():
    starts = torch.tensor([0] * 40 + [40] * 37, device=DEVICE)
    spans = causal_spans(torch.arange(77, device=DEVICE), segment_starts=starts)
    q, keys, weights = exact(77, 4, 32, 77)
    assert_selected(select(q, keys, weights, spans, 9), oracle(q, keys, weights, spans), 9)
    assert torch.equal(table_of((q, keys, weights, spans)).double(), oracle(q, keys, weights, spans))


@pytest.mark.parametrize("ratio", [3, 4])
def test_compressed_entries(ratio):
    spans = causal_spans(torch.arange(70, device=DEVICE), ratio)
    q, keys, weights = exact(70, 4, 32, 70 // ratio)
    assert torch.equal(table_of((q, keys, weights, spans)).double(), oracle(q, keys, weights, spans))


def test_empty_rows_between_others():
    spans = torch.tensor([[0, 60], [5, 5], [50, 20], [60, 60], [33, 60], [0, 0], [40, 41]], device=DEVICE)
    q, keys, weights = exact(7, 4, 32, 60)
    table = table_of((q, keys, weights, spans))
    assert torch.equal(table.double(), oracle(q, keys, weights, spans))
    assert select(q, keys, weights, spans, 4)[[1, 2, 3, 5]].tolist() == [[-1] * 4] * 4


@pytest.mark.parametrize("at", [0, 17, 60])
def test_a_rank_whose_rows_are_all_empty(at):
    spans = torch.full((9, 2), at, device=DEVICE)
    q, keys, weights = exact(9, 4, 32, 60)
    assert bool((table_of((q, keys, weights, spans)) == -INFINITY).all())
    assert bool((table_of((q, keys, weights, spans), table=False) == -INFINITY).all())
    assert bool((select(q, keys, weights, spans, 3) == -1).all())


@pytest.mark.parametrize("block_rows", [1, 5, 8, 13, 40, 1000])
def test_blocks_of_rows_change_nothing(block_rows):
    q, keys, weights = random(40, 4, 32, 60)
    spans = causal_spans(torch.arange(20, 60, device=DEVICE))
    wanted = select(q, keys, weights, spans, 7)
    assert torch.equal(select(q, keys, weights, spans, 7, block_rows=block_rows), wanted)


@pytest.mark.parametrize("topk", [1, 2, 15, 63, 64, 65, 705])
def test_topk_one_odd_and_beyond_what_is_visible(topk):
    q, keys, weights = exact(9, 4, 32, 64)
    spans = causal_spans(torch.tensor([0, 1, 13, 14, 15, 61, 62, 63, 30], device=DEVICE))
    assert_selected(select(q, keys, weights, spans, topk), oracle(q, keys, weights, spans), topk)


def test_topk_beyond_the_keys_takes_all():
    q, keys, weights = random(3, 4, 32, 20)
    assert select(q, keys, weights, whole(3, 20), 24).tolist() == [[*range(20), -1, -1, -1, -1]] * 3


# Values.


@pytest.mark.parametrize("heads", [4, 6])
def test_nan_in_one_key_and_in_a_query(heads):
    q, keys, weights = exact(5, heads, 32, 40)
    keys[17, 3] = float("nan")
    q[2, 1, 5] = float("nan")
    table = table_of((q, keys, weights, whole(5, 40)))
    assert torch.equal(table.double(), oracle(q, keys, weights, whole(5, 40)))
    assert bool((table[:, 17] == -INFINITY).all())
    assert bool((table[2] == -INFINITY).all())
    chosen = select(q, keys, weights, whole(5, 40), 40)
    assert chosen[2].tolist() == [-1] * 40
    assert chosen[0].tolist() == [*range(17), *range(18, 40), -1]


@pytest.mark.parametrize("finite", [6, 7, 8])
def test_nan_that_leaves_one_less_than_topk_as_many_and_one_more(finite):
    q, keys, weights = random(1, 4, 32, 40)
    keys[finite:, 0] = float("nan")
    chosen = select(q, keys, weights, whole(1, 40), 7)[0]
    assert int((chosen >= 0).sum()) == min(finite, 7)
    assert int(chosen.max()) < finite


@pytest.mark.parametrize("heads", [4, 6])
def test_infinity_comes_first(heads):
    q, keys, weights = exact(3, heads, 32, 40)
    q, weights = q.abs() + 1, weights.abs() + 1
    keys[11, 3], keys[12, 3] = INFINITY, -INFINITY
    table = table_of((q, keys, weights, whole(3, 40)))
    assert torch.equal(table.double(), oracle(q, keys, weights, whole(3, 40)))
    assert bool((table[:, 11] == INFINITY).all())
    assert bool((table[:, 12] == 0).all())
    assert select(q, keys, weights, whole(3, 40), 1).tolist() == [[11]] * 3
    # Weighted by a negative number it is never selected.
    assert 11 not in select(q, keys, -weights, whole(3, 40), 40)[0].tolist()


def test_one_infinity_among_nothing():
    values = torch.ones(40)
    values[30] = INFINITY
    q, keys, scale = row(values)
    spans = torch.tensor([[29, 33]], device=DEVICE)
    assert select(q, keys, None, spans, 6, key_scale=scale).tolist() == [[29, 30, 31, 32, -1, -1]]
    assert select(q, keys, None, spans, 1, key_scale=scale).tolist() == [[30]]


def test_all_scores_negative():
    q, keys, weights = random(5, 4, 64, 60)
    weights = -weights.abs() - 0.1
    table = score_table(q, keys, weights, whole(5, 60))
    assert bool((table <= 0).all())
    assert_selected(select(q, keys, weights, whole(5, 60), 55), table, 55)


def test_negative_zero_is_zero():
    values = torch.tensor([3.0, 0.0, 2.0, 0.0, 0.0, 1.0])
    assert selected(values, 3).tolist() == [[0, 2, 5]]
    # relu gives +0 and a weight of -1 makes it -0, above what is negative.
    assert selected(values, 3, -1.0).tolist() == [[1, 3, 4]]
    assert_selected(selected(values, 5, -1.0), -values[None], 5)


def test_zeros_everywhere_fill_every_slot():
    q, keys, weights = exact(4, 4, 32, 60)
    spans = causal_spans(torch.tensor([3, 11, 12, 59], device=DEVICE))
    chosen = select(q, torch.zeros_like(keys), weights, spans, 12)
    assert_selected(
        chosen, torch.zeros(4, 60, device=DEVICE).where(oracle(q, keys, weights, spans).isfinite(), -INFINITY), 12
    )
    assert torch.equal(select(q, torch.zeros_like(keys), weights, spans, 12), chosen)


LOW_BITS = (torch.randperm(1024, generator=torch.Generator().manual_seed(0)).int() + 0x3F800000).view(torch.float32)
TIES = (torch.arange(1024) % 64 + 1).bfloat16().float() / 64
PLATEAU = torch.zeros(1200).index_fill(0, torch.arange(700, 800), 1.0)
BIG_TIE = torch.full((1200,), 2.0).index_fill(0, torch.arange(0, 1200, 24), 5.0)
DRAWN = torch.randn(1024, generator=torch.Generator().manual_seed(1)).abs()


@pytest.mark.parametrize("weight", [1.0, -1.0], ids=["positive", "negative"])
@pytest.mark.parametrize(
    ("values", "topk"),
    [
        pytest.param(DRAWN, 200, id="random"),
        pytest.param(LOW_BITS, 100, id="upper 22 bits shared"),
        pytest.param(1 + torch.arange(600) * 2.0**-23, 128, id="neighbours in FP32"),
        pytest.param(TIES, 16, id="periodic ties"),
        pytest.param(PLATEAU, 300, id="relu plateau"),
        pytest.param(BIG_TIE, 500, id="more ties than slots"),
        pytest.param(torch.arange(1, 1025).float(), 64, id="ascending"),
        pytest.param(torch.arange(1040, 0, -1).float(), 64, id="descending"),
        pytest.param(torch.linspace(1e5, 3e5, 700), 96, id="beyond FP16"),
        pytest.param(DRAWN.index_fill(0, torch.arange(5, 9), 0.5), 333, id="duplicates"),
    ],
)
def test_rows_that_broke_other_selections(values, topk, weight):
    chosen = selected(values, topk, weight)
    assert_selected(chosen, weight * values[None], topk)
    ordered = (weight * values).sort(descending=True).values
    if ordered[topk - 1] != ordered[topk]:
        assert torch.equal(chosen.cpu(), reference.top_k(weight * values[None], topk))


def test_descending_row_of_which_a_part_is_visible():
    q, keys, scale = row(torch.arange(1000, 0, -1).float())
    spans = torch.tensor([[0, 512]], device=DEVICE)
    for _ in range(3):
        assert select(q, keys, None, spans, 64, key_scale=scale).tolist() == [[*range(64)]]


def test_scales_of_quantised_inputs_from_2_to_the_minus_10_to_2_to_the_10():
    q, keys, weights = random(9, 4, 64, 70, FP8)
    draw = torch.Generator().manual_seed(2)
    key_scale = torch.exp2(torch.randint(-10, 11, (70,), generator=draw).float()).to(DEVICE)
    q_scale = torch.exp2(torch.randint(-10, 11, (9, 4), generator=draw).float()).to(DEVICE)
    spans = causal_spans(torch.arange(61, 70, device=DEVICE))
    scales = {"q_scale": q_scale, "key_scale": key_scale}
    table = score_table(q, keys, weights, spans, **scales)
    assert_scores(table, q, keys, weights, spans, **scales)
    assert_selected(select(q, keys, weights, spans, 11, **scales), table, 11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
@pytest.mark.parametrize("heads", [1, 6, 16])
def test_scores_alone_are_the_maxima_of_the_table(dtype, heads):
    q, keys, weights = random(9, heads, 64, 70, dtype)
    spans = causal_spans(torch.tensor([0, 0, 15, 16, 17, 50, 68, 69, 69], device=DEVICE))
    inputs = (q, keys, weights, spans)
    assert torch.equal(table_of(inputs, table=False), table_of(inputs).amax(1))


@pytest.mark.parametrize("width", [16, 30, 48])
def test_a_launch_over_the_first_keys(width):
    q, keys, weights = exact(5, 4, 32, 60)
    spans = causal_spans(torch.arange(5, 15, 2, device=DEVICE))
    assert torch.equal(table_of((q, keys, weights, spans), width).double(), oracle(q, keys[:width], weights, spans))


@st.composite
def cases(draw):
    n, length = draw(st.integers(1, 12)), draw(st.integers(1, 50))
    place = st.integers(0, length)
    spans = draw(st.lists(st.tuples(place, place), min_size=n, max_size=n))
    heads, dim = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.sampled_from([8, 32, 40]))
    return exact(n, heads, dim, length, draw(st.integers(0, 99))), spans, draw(st.integers(1, 60))


@settings(max_examples=40)
@given(cases())
def test_any_shape_and_span(case):
    (q, keys, weights), spans, topk = case
    spans = torch.tensor(spans, device=DEVICE)
    wanted = oracle(q, keys, weights, spans)
    assert torch.equal(table_of((q, keys, weights, spans)).double(), wanted)
    assert_selected(select(q, keys, weights, spans, topk), wanted, topk)
