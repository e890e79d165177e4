"""Means over positions against sums over them: entries seen, entries selected, keys attended to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.families.anatomy import Core
from hyscale_model.layers.core import WARP_GROUP_ROWS, padded_rows
from hyscale_model.layers.sizes import Sizes, mean_attended, mean_selected, mean_visible

LENGTHS = (1024, 4096, 8192, 65536, 1048576)
RATIOS = (1, 4, 128)


def sizes_of(*documents):
    """One rank that holds documents, each with its share of the tokens."""
    longest = max(length for length, _ in documents)
    return Sizes(
        world=1,
        dp=1,
        micro_batches=1,
        tokens=longest,
        queries=longest,
        held_tokens=longest,
        documents=documents,
        fp8_index=0.0,
    )


def core_of(form, ratio=1, topk=0, entry_tokens=1, window=0):
    return Core(
        form=form,
        heads=1,
        groups=1,
        key_width=1,
        value_width=1,
        gathered_values=1,
        topk=topk,
        ratio=ratio,
        entry_tokens=entry_tokens,
        window=window,
    )


def entries_at(length, ratio):
    """Complete entries at each position 1..length."""
    return np.arange(1, length + 1) // ratio


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_mean_visible_is_the_average_over_positions(length, ratio):
    average = entries_at(length, ratio).mean()
    assert mean_visible(length, ratio) == pytest.approx(average, rel=1e-12)
    assert sizes_of((length, 1.0)).visible(ratio) == pytest.approx(average, rel=1e-12)


@given(length=st.integers(1, 40000), ratio=st.sampled_from((1, 4, 128)), topk=st.sampled_from((1, 512, 2048)))
def test_means_of_any_length_are_averages_over_positions(length, ratio, topk):
    entries = entries_at(length, ratio)
    assert mean_visible(length, ratio) == pytest.approx(entries.mean(), rel=1e-12)
    assert mean_selected(length, topk, ratio) == pytest.approx(np.minimum(entries, topk).mean(), rel=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("topk", [1, 512, 1024, 2048])
def test_mean_selected_is_the_average_over_positions(length, ratio, topk):
    average = np.minimum(entries_at(length, ratio), topk).mean()
    assert sizes_of((length, 1.0)).selected(topk, ratio) == pytest.approx(average, rel=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("window", [1, 3, 128])
def test_a_window_is_full_but_for_the_first_tokens(length, window):
    average = np.minimum(np.arange(1, length + 1), window).mean()
    found = mean_attended(sizes_of((length, 1.0)), core_of("sparse", window=window))
    assert found == pytest.approx(average, rel=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("window", [0, 128])
def test_dense_cores_meet_every_visible_entry_and_the_window(length, ratio, window):
    """Ratio 1 is ordinary causal attention, 128 with a window is HCA."""
    average = (entries_at(length, ratio) + np.minimum(np.arange(1, length + 1), window)).mean()
    found = mean_attended(sizes_of((length, 1.0)), core_of("dense", ratio, window=window))
    assert found == pytest.approx(average, rel=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("ratio", "topk", "window"), [(1, 2048, 0), (4, 512, 128), (4, 1024, 128)])
def test_sparse_cores_meet_the_selected_entries_and_the_window(length, ratio, topk, window):
    """DSA, and CSA of V4-Flash and V4-Pro."""
    met = np.minimum(entries_at(length, ratio), topk) + np.minimum(np.arange(1, length + 1), window)
    found = mean_attended(sizes_of((length, 1.0)), core_of("sparse", ratio, topk, window=window))
    assert found == pytest.approx(met.mean(), rel=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
def test_qsa_meets_all_tokens_of_its_blocks_and_the_unfinished_one(length):
    """512 blocks of 4 tokens, and 0 to 3 tokens of the block at the end; the engine takes all three."""
    positions = np.arange(1, length + 1)
    blocks = 4 * np.minimum(positions // 4, 512)
    core = core_of("sparse", 4, 512, entry_tokens=4, window=3)
    found = mean_attended(sizes_of((length, 1.0)), core)
    assert (blocks + positions % 4).mean() <= found <= (blocks + 3).mean()


def test_a_linear_recurrence_attends_to_no_keys():
    assert mean_attended(sizes_of((65536, 1.0)), core_of("linear")) == 0


@given(
    lengths=st.lists(st.integers(1, 512).map(lambda n: 128 * n), min_size=1, max_size=5),
    shares=st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
    ratio=st.sampled_from(RATIOS),
)
def test_means_over_documents_are_weighted_by_tokens(lengths, shares, ratio):
    shares = np.array(shares[: len(lengths)]) / sum(shares[: len(lengths)])
    mixed = sizes_of(*zip(lengths, shares.tolist(), strict=True))
    alone = [sizes_of((length, 1.0)) for length in lengths]
    for core in (core_of("dense", ratio, window=128), core_of("sparse", ratio, 512, window=128)):
        parts = [mean_attended(each, core) for each in alone]
        assert mean_attended(mixed, core) == pytest.approx(float(np.dot(parts, shares)), rel=1e-9)
    assert mixed.longest() == max(lengths)


# Rows of tensor-core tiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "padded"),
    [
        (64, 64),
        (128, 128),
        # One warp tile of 16 rows at 0.6 of the rate; then two, and three beat 64 rows no longer.
        (1, 16 / 0.6),
        (12, 16 / 0.6),
        (16, 16 / 0.6),
        (24, 32 / 0.6),
        (32, 32 / 0.6),
        (33, 64),
        (48, 64),
        # 96 rows: two groups of 64 against six tiles, 160.
        (96, 128),
    ],
)
def test_rows_are_padded_to_the_cheaper_of_two_tiles(rows, padded):
    assert padded_rows(rows) == pytest.approx(padded, rel=1e-12)


@given(rows=st.integers(1, 4096))
def test_padding_is_monotone_and_never_takes_rows_away(rows):
    assert rows <= padded_rows(rows) <= padded_rows(rows + 1)
    assert padded_rows(rows) <= -(-rows // WARP_GROUP_ROWS) * WARP_GROUP_ROWS
    # Two queries never cost more than each alone.
    assert padded_rows(2 * rows) <= 2 * padded_rows(rows)
