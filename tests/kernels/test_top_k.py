"""Selection from tables of any values: NaN, infinities and zeros of both signs, ties, spans and lengths."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hyscale_kernels.top_k import reference, top_k
from inputs import (
    DEVICE,
    INFINITY,
    assert_exactly_selected,
    best_places,
    broken_elsewhere,
    normal,
    within,
)

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

NAN = float("nan")
LOWEST, LEAST = -3.4028234663852886e38, 2.0**-149
ROWS = broken_elsewhere()


def spans_of(*spans):
    return torch.tensor(spans, dtype=torch.int32, device=DEVICE)


# The reference.


@given(
    st.lists(
        st.one_of(st.floats(width=32), st.sampled_from([NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, LOWEST, LEAST])),
        max_size=40,
    ),
    st.integers(1, 45),
)
def test_the_reference_is_a_sort_by_score_and_position(values, topk):
    table = torch.tensor([values], dtype=torch.float32).reshape(1, len(values))
    assert reference.top_k(table, topk)[0].tolist() == best_places(values, topk)


# Values.


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_broke_other_selections_are_exact(name, sign):
    values, topk = ROWS[name]
    table = sign * values[None].to(DEVICE)
    assert_exactly_selected(top_k(table, topk), table, topk)


def test_a_plateau_is_filled_from_the_left_behind_its_winners():
    values, topk = ROWS["relu plateau"]
    assert top_k(values[None].to(DEVICE), topk)[0].tolist() == [*range(1948), *range(4000, 4100)]


def test_of_periodic_ties_only_the_highest_value_is_selected():
    values, topk = ROWS["periodic ties of BF16"]
    chosen = top_k(values[None].to(DEVICE), topk)[0].long().cpu()
    assert values[chosen].unique().tolist() == [0.984375]
    assert len(chosen.unique()) == topk


@pytest.mark.parametrize("width", [16384, 16448, 32768])
def test_of_monotonic_rows_the_last_or_the_first_columns_are_selected(width):
    ascending = torch.arange(width, device=DEVICE).float()
    chosen = top_k(torch.stack([ascending, -ascending]), 1024)
    assert chosen.tolist() == [[*range(width - 1024, width)], [*range(1024)]]


@pytest.mark.parametrize("spans", [None, spans_of((0, 4096))], ids=["-inf behind", "a span"])
def test_a_descending_row_gives_its_first_places_on_every_call(spans):
    table = torch.full((1, 6000), -INFINITY if spans is None else INFINITY, device=DEVICE)
    table[0, :4096] = torch.arange(4096, 0, -1)
    for _ in range(3):
        assert top_k(table, 512, spans)[0].tolist() == [*range(512)]


@pytest.mark.parametrize("width", [300, 5000])
def test_infinity_comes_first_and_minus_infinity_never(width):
    table = torch.full((2, width), -INFINITY, device=DEVICE)
    table[:, 100:140] = normal(2, 40)
    table[0, [7, 250]] = INFINITY
    assert top_k(table, 2).tolist()[0] == [7, 250]
    chosen = top_k(table, 60)
    assert chosen[0].tolist() == [7, *range(100, 140), 250] + [-1] * 18
    assert chosen[1].tolist() == [*range(100, 140)] + [-1] * 20
    assert top_k(torch.full_like(table, INFINITY), 60).tolist() == [[*range(60)]] * 2


@pytest.mark.parametrize("width", [300, 5000])
@pytest.mark.parametrize("nan", [NAN, -NAN])
def test_nan_is_never_selected_whatever_number_of_finite_scores_it_leaves(width, nan):
    table = torch.full((5, width), nan, device=DEVICE)
    for number, finite in enumerate([0, 63, 64, 65]):
        table[number, width - 3 * finite :: 3][:finite] = normal(finite, seed=number)
    table[4] = normal(width)
    table[4, int(table[4].argmax())] = nan
    chosen = top_k(table, 64)
    assert (chosen >= 0).sum(1).tolist() == [0, 63, 64, 64, 64]
    assert_exactly_selected(chosen, table, 64)


@pytest.mark.parametrize("width", [300, 5000])
def test_zeros_of_both_signs_are_equal(width):
    table = torch.zeros(2, width, device=DEVICE)
    table[0, ::2] = -0.0
    table[1, : width // 2] = -0.0
    table[:, 5::11] = -LEAST
    table[:, 0] = -1.0
    assert_exactly_selected(top_k(table, 50), table, 50)
    assert_exactly_selected(top_k(table, width - 2 if width < 2048 else 2048), table, min(width - 2, 2048))


def test_the_lowest_finite_score_is_selected():
    table = torch.full((2, 5000), -INFINITY, device=DEVICE)
    table[0, ::50] = LOWEST
    table[1, 1::2] = LOWEST
    chosen = top_k(table, 120)
    assert chosen[0].tolist() == [*range(0, 5000, 50)] + [-1] * 20
    assert chosen[1].tolist() == [*range(1, 240, 2)]


# Lengths and spans.


def test_lengths_around_topk_keep_the_width_and_pad():
    lengths = [0, 1, 2047, 2048, 2049]
    table = normal(5, 2060)
    spans = torch.tensor([[11, 11 + length] for length in lengths], dtype=torch.int32, device=DEVICE)
    chosen = top_k(table, 2048, spans)
    assert chosen.shape == (5, 2048)
    assert (chosen >= 0).sum(1).tolist() == [0, 1, 2047, 2048, 2048]
    assert_exactly_selected(chosen, within(table, spans), 2048)


@pytest.mark.parametrize("topk", [1, 63, 705, 2047])
def test_odd_topk(topk):
    table = normal(1, 13000, seed=topk)
    assert_exactly_selected(top_k(table, topk), table, topk)


@pytest.mark.parametrize("width", [1, 2, 31, 32, 33, 4096, 4097])
def test_widths_around_those_of_a_program(width):
    table = normal(2, width).round(decimals=2)
    for topk in (1, 40):
        assert_exactly_selected(top_k(table, topk), table, topk)


@pytest.mark.parametrize("poison", [INFINITY, NAN])
def test_nothing_outside_a_span_is_read(poison):
    spans = spans_of((0, 4500), (499, 5000), (37, 38), (2048, 4096), (5000, 5000), (70, 20), (0, 0), (1, 4998))
    table = normal(8, 5000)
    wanted = within(table, spans)
    table = torch.where(wanted == -INFINITY, poison, table)
    assert_exactly_selected(top_k(table, 40, spans), wanted, 40)


def test_spans_of_any_integer_type_and_stride():
    table = normal(4, 50)
    spans = spans_of((0, 5), (10, 15), (20, 25), (30, 35))
    wanted = within(table, spans)
    for given_spans in (spans.long(), spans.T.contiguous().T, spans.repeat(1, 3)[:, 2:4], spans.to(torch.uint8)):
        assert_exactly_selected(top_k(table, 3, given_spans), wanted, 3)


def test_neighbouring_rows_change_nothing():
    table = torch.cat([normal(3, 5000), torch.zeros(1, 5000, device=DEVICE)])
    alone = torch.cat([top_k(row[None], 64) for row in table])
    for order in ([3, 2, 1, 0], [1, 1, 3]):
        assert torch.equal(top_k(table[order], 64), alone[order])


def test_a_column_block_of_a_wider_table_and_rows_that_are_one():
    wide = normal(3, 5000)
    part = wide[:, 300:700]
    assert_exactly_selected(top_k(part, 20), part, 20)
    same = wide[:1].expand(3, 5000)
    assert_exactly_selected(top_k(same, 20), same, 20)


@pytest.mark.parametrize(("n", "width"), [(0, 0), (0, 40), (3, 0)])
def test_nothing_to_select_from_or_for(n, width):
    assert top_k(torch.empty(n, width, device=DEVICE), 3).tolist() == [[-1] * 3] * n


def test_offsets_beyond_32_bits():
    # Pages that nobody touches take no memory.
    try:
        memory = torch.empty(2**31 + 5000, device=DEVICE)
    except RuntimeError:
        pytest.skip("needs 8.6 GB of address space")
    table = memory.as_strided((3, 5000), (2**30, 1))
    table.copy_(normal(3, 5000))
    assert_exactly_selected(top_k(table, 20), table, 20)


@pytest.mark.parametrize(
    ("table", "topk", "spans", "message"),
    [
        (torch.zeros(3, 8), 0, None, "1 to 2048"),
        (torch.zeros(3, 8), 2049, None, "1 to 2048"),
        (torch.zeros(8), 2, None, "float32"),
        (torch.zeros(3, 8).double(), 2, None, "float32"),
        (torch.zeros(3, 8).bfloat16(), 2, None, "float32"),
        (torch.zeros(8, 3).T, 2, None, "contiguous rows"),
        (torch.zeros(3, 8), 2, [[0, 8]] * 2, r"spans must be \(3, 2\)"),
        (torch.zeros(3, 8), 2, [[0, 9]] * 3, "within 0 and 8"),
        (torch.zeros(3, 8), 2, [[-1, 8]] * 3, "within 0 and 8"),
        (torch.zeros(3, 8), 2, [[0.0, 8.0]] * 3, "integer"),
    ],
)
def test_wrong_inputs_are_refused(table, topk, spans, message):
    with pytest.raises(ValueError, match=message):
        top_k(table.to(DEVICE), topk, None if spans is None else torch.tensor(spans, device=DEVICE))
