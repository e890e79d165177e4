"""What emptying a bitmap takes, and how often samples mislead, beside counts of drawn ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.layers.collected import AIM, CAPACITY, LEAST_CAPACITY, WORDS, emptied, fewer, row_units


@pytest.mark.parametrize("share", [0.004, 0.07, 0.5])
def test_rounds_are_those_of_the_fullest_word(share):
    drawn = np.random.default_rng(0).random((400, WORDS, 32)) < share
    rounds, _ = emptied(share)
    assert rounds == pytest.approx(drawn.sum(-1).max(-1).mean(), rel=0.05)


def test_all_marked_takes_a_round_a_bit_and_a_line_a_place():
    rounds, lines = emptied(np.array([1.0, 0.0]))
    assert rounds.tolist() == [32.0, 0.0]
    assert lines.tolist() == [32.0 * WORDS, 0.0]


@given(low=st.floats(1e-4, 0.5), factor=st.floats(1.0, 2.0), clustered=st.booleans())
def test_more_marks_take_more_rounds_and_lines(low, factor, clustered):
    (before, after), (fewer_lines, more_lines) = emptied(np.array([low, low * factor]), clustered)
    assert before <= after + 1e-9
    assert fewer_lines <= more_lines + 1e-9


def test_clustered_marks_take_more_rounds():
    assert emptied(0.02, clustered=True)[0] > 2 * emptied(0.02)[0]


def test_chances_are_those_of_poisson_numbers():
    drawn = np.random.default_rng(0).poisson(20.0, 100_000)
    assert fewer(16, 20.0) == pytest.approx((drawn < 16).mean(), abs=0.005)
    assert fewer(np.array([0, 1]), np.array([5.0, 0.0])).tolist() == [0.0, 1.0]


def test_rows_that_fit_their_candidates_are_neither_sampled_nor_missed():
    room = max(LEAST_CAPACITY, CAPACITY * 2048)
    short, long = (row_units(visible, 2048, 2**20) for visible in (room, room + 8192))
    assert short["missed"] == 0
    assert short["picks"] == room
    assert long["picks"] == 4096 + AIM * room // CAPACITY
    assert 0 < row_units(2**20, 2048, 2**20)["missed"] < 1e-3
