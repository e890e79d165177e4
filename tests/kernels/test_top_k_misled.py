"""Rows whose samples tell a threshold that cannot hold the selection, so that the whole row is searched again."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.top_k import api, top_k
from inputs import DEVICE, INFINITY, assert_exactly_selected, looked_at, normal, sampled, within

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

NAN = float("nan")


@pytest.fixture
def counts(monkeypatch):
    """Candidates of each row, as the calls of a test found them: -1 where the row is searched again."""
    seen = []

    def spy(scores, places, counts, *rest, select=api.select_candidates):
        seen.extend(counts.tolist())
        select(scores, places, counts, *rest)

    monkeypatch.setattr(api, "select_candidates", spy)
    return seen


def test_high_scores_that_no_sample_saw_overflow_and_are_found(counts):
    table = normal(2, 12000)
    table[0, ~looked_at(12000)] += 100
    assert_exactly_selected(top_k(table, 20), table, 20)
    assert counts[0] == -1
    assert counts[1] >= 20


@pytest.mark.parametrize("rest", [0.0, -5.0, -INFINITY, NAN])
def test_high_scores_that_only_samples_saw_leave_too_few_and_the_rest_fills_up(counts, rest):
    table = torch.full((1, 13000), rest, device=DEVICE)
    # More than the 1,935 that a threshold aims at, fewer than are selected.
    highest = sampled(0, 13000)[::2][:2040]
    table[0, highest] = normal(2040).abs() + 1
    chosen = top_k(table, 2048)
    assert counts == [-1]
    assert_exactly_selected(chosen, table, 2048)
    assert int((chosen < 0).sum()) == (0 if rest > -INFINITY else 8)


def test_ties_at_the_border_go_to_the_lower_positions_of_the_whole_row(counts):
    table = normal(1, 12000).abs().clamp(max=0.5)
    table[0, ~looked_at(12000)] = 7
    table[0, 11000:11010] = 8
    chosen = top_k(table, 600)
    assert counts == [-1]
    assert_exactly_selected(chosen, table, 600)


@pytest.mark.parametrize("offset", [100.0, -100.0, 0.0])
def test_every_bit_decides_when_a_row_is_searched_again(counts, offset):
    table = torch.full((1, 12000), offset - 3, device=DEVICE)
    unseen = ~looked_at(12000)
    table[0, unseen] = offset + normal(int(unseen.sum())).abs() * 2.0**-10 + 2.0**-20
    for topk in (1, 63, 650):
        assert_exactly_selected(top_k(table, topk), table, topk)
    assert counts == [-1] * 3


def test_zeros_of_both_signs_nan_and_infinities_when_a_row_is_searched_again(counts):
    table = torch.full((1, 12000), -1.0, device=DEVICE)
    unseen = (~looked_at(12000)).nonzero()[:, 0]
    values = torch.tensor([0.0, -0.0, NAN, INFINITY, -INFINITY, 2.0**-149, 3e38, 0.0], device=DEVICE)
    table[0, unseen] = values.repeat(len(unseen) // 8 + 1)[: len(unseen)]
    # 90 are above zero, so 600 end among zeros.
    table[0, unseen[240:]] = table[0, unseen[240:]].clamp(max=0.0)
    for topk in (5, 600):
        assert_exactly_selected(top_k(table, topk), table, topk)
    assert counts == [-1, -1]


def test_a_span_is_searched_again_within_its_borders(counts):
    spans = torch.tensor([[500, 12500], [0, 12000]], dtype=torch.int32, device=DEVICE)
    table = normal(2, 13000)
    for row, (begin, end) in enumerate(spans.tolist()):
        table[row, begin:end][~looked_at(13000, begin, end)[begin:end]] += 100
    table = torch.where(within(table, spans) == -INFINITY, INFINITY, table)
    chosen = top_k(table, 100, spans)
    assert counts == [-1, -1]
    assert_exactly_selected(chosen, within(table, spans), 100)


def test_the_lowest_selected_score_is_told_on_both_ways(counts):
    table = normal(3, 12000)
    table[0, ~looked_at(12000)] += 100
    table[2] = -INFINITY
    chosen = torch.empty(3, 20, dtype=torch.int32, device=DEVICE)
    lowest = torch.empty(3, device=DEVICE)
    spans = torch.tensor([[0, 12000]] * 3, dtype=torch.int32, device=DEVICE)
    api.select_rows(table, spans, 20, chosen, lowest)
    assert counts[0] == -1 < counts[1]
    assert torch.equal(lowest[:2], table[:2].gather(1, chosen[:2].long()).amin(1))
    assert lowest[2] == INFINITY


# Small samples and candidates, so that short rows take every way.

FAMILIES = {
    "normal": lambda draw, n: torch.randn(n, generator=draw),
    "few values": lambda draw, n: torch.randint(-2, 3, (n,), generator=draw).float(),
    "heavy tails": lambda draw, n: torch.randn(n, generator=draw) / torch.rand(n, generator=draw) ** 3,
    "clustered": lambda draw, n: torch.randn(n, generator=draw) + 9.0 * (torch.arange(n) // 50 == n // 100),
    "special": lambda draw, n: torch.tensor([NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.0, 3e38, 2.0**-149])[
        torch.randint(0, 9, (n,), generator=draw)
    ],
}


@st.composite
def tables(draw):
    n, width = draw(st.integers(1, 4)), draw(st.integers(1, 700))
    place = st.integers(0, width)
    spans = draw(st.lists(st.one_of(st.tuples(place, place), st.just((0, width))), min_size=n, max_size=n))
    names = draw(st.lists(st.sampled_from(sorted(FAMILIES)), min_size=n, max_size=n))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    table = torch.stack([FAMILIES[name](seed, width) for name in names]).to(DEVICE)
    spans = torch.tensor(spans, dtype=torch.int32, device=DEVICE)
    # High or low where samples look.
    shift = draw(st.sampled_from([0.0, 0.0, 50.0, -50.0]))
    for row, (begin, end) in zip(table, spans.tolist(), strict=True):
        if end > begin:
            row[sampled(begin, end, 64)] += shift
    return table, spans, draw(st.integers(1, 80))


def check(case):
    table, spans, topk = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "SAMPLES", 64)
        patch.setattr(api, "LEAST_CAPACITY", 96)
        patch.setattr(api, "CAPACITY", 2)
        patch.setattr(api, "AIM", 1)
        chosen = top_k(table, topk, spans)
    assert_exactly_selected(chosen, within(table, spans), topk)


@settings(max_examples=20)
@given(tables())
def test_any_table_and_span(case):
    check(case)


@pytest.mark.slow
@settings(max_examples=120)
@given(tables())
def test_many_tables_and_spans(case):
    check(case)
