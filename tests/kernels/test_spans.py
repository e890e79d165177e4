import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hyscale_kernels.spans import causal_spans, zigzag_positions


def visible(position, ratio, start):
    """Entries of the segment whose last token is not behind the query, one by one."""
    return [e for e in range(start // ratio, position + 2) if ratio * (e + 1) - 1 <= position]


def entries(span):
    return list(range(*span.tolist()))


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=12))
def test_spans_hold_the_complete_entries_of_a_segment(ratio, queries):
    starts = [ratio * start for start, _ in queries]
    positions = [start + behind for start, (_, behind) in zip(starts, queries, strict=True)]
    spans = causal_spans(torch.tensor(positions, dtype=torch.int64), ratio, torch.tensor(starts, dtype=torch.int64))
    assert spans.dtype == torch.int32
    assert spans.shape == (len(queries), 2)
    assert [entries(span) for span in spans] == [
        visible(position, ratio, start) for position, start in zip(positions, starts, strict=True)
    ]


def test_a_query_sees_itself_and_what_is_before():
    assert causal_spans(torch.arange(4)).tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]


def test_an_incomplete_entry_is_invisible():
    assert causal_spans(torch.arange(5), ratio=4).tolist() == [[0, 0], [0, 0], [0, 0], [0, 1], [0, 1]]


def test_segments_of_40_and_37_keys_stay_apart():
    starts = torch.tensor([0] * 40 + [40] * 37)
    spans = causal_spans(torch.arange(77), segment_starts=starts)
    assert spans[39].tolist() == [0, 40]
    assert spans[40].tolist() == [40, 41]
    assert spans[76].tolist() == [40, 77]


def test_no_queries():
    assert causal_spans(torch.arange(0)).shape == (0, 2)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_zigzag_ranks_hold_every_position_once_and_equal_work(ranks):
    held = [zigzag_positions(48, ranks, rank) for rank in range(ranks)]
    assert torch.cat(held).sort().values.tolist() == list(range(48))
    assert len({int(positions.sum()) for positions in held}) == 1


def test_a_zigzag_rank_holds_a_chunk_and_its_mirror_image():
    assert zigzag_positions(8, 2, 0).tolist() == [0, 1, 6, 7]
    assert zigzag_positions(8, 2, 1).tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: causal_spans(torch.arange(3), ratio=0), "at least 1"),
        (lambda: causal_spans(torch.arange(3), segment_starts=torch.zeros(2)), r"shape \(2,\), positions \(3,\)"),
        (lambda: causal_spans(torch.arange(3), segment_starts=torch.tensor([0, 2, 0])), "after its query"),
        (lambda: causal_spans(torch.arange(9, 12), 4, torch.tensor([8, 8, 9])), "multiples of 4"),
        (lambda: zigzag_positions(8, 2, 2), "rank 2 of 2"),
        (lambda: zigzag_positions(8, 2, -1), "rank -1 of 2"),
        (lambda: zigzag_positions(10, 4, 0), "8 chunks"),
    ],
)
def test_wrong_inputs_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
