import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.prediction import Origin
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.profile import Rate


def test_the_same_name_and_seed_give_the_same_numbers():
    first, again = Draws(32, 7), Draws(32, 7)
    assert np.array_equal(first.uniform("a"), again.uniform("a"))
    assert not np.array_equal(first.uniform("a"), Draws(32, 8).uniform("a"))


def test_another_unknown_leaves_the_others_as_they_were():
    alone, together = Draws(32, 1234), Draws(32, 1234)
    together.uniform("another")
    assert np.array_equal(alone.uniform("a"), together.uniform("a"))


def test_unknowns_are_drawn_independently():
    draws = Draws(512, 3)
    values = np.concatenate([draws.uniform(name) for name in ("a", "b", "c", "factor.launch_s")])[:, 1:]
    correlation = np.corrcoef(values) - np.eye(4)
    assert np.abs(correlation).max() < 0.2


@pytest.mark.parametrize("count", [1, 2, 16, 63])
def test_every_stratum_holds_one_draw(count):
    values = Draws(count, 5).uniform("x")
    assert values.shape == (1, count + 1)
    assert values[0, 0] == 0.5
    assert sorted(np.floor(values[0, 1:] * count).astype(int)) == list(range(count))


def test_without_draws_there_is_only_the_nominal_value():
    assert Draws(0).uniform("x").tolist() == [[0.5]]


def test_some_columns_are_those_of_the_whole():
    whole, part = Draws(16, 2), Draws(16, 2, columns=(0, 3, 9))
    assert part.width == 3
    assert np.array_equal(part.uniform("x"), whole.uniform("x")[:, [0, 3, 9]])


@given(weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=5), seed=st.integers(0, 100))
def test_choices_come_in_proportion_to_their_weights(weights, seed):
    names = tuple(f"choice {index}" for index in range(len(weights)))
    chosen = Draws(200, seed).choose("x", names, tuple(weights), "nominal")
    assert chosen[0, 0] == "nominal"
    for name, weight in zip(names, weights, strict=True):
        assert np.sum(chosen[0, 1:] == name) == pytest.approx(200 * weight / sum(weights), abs=2)


@given(
    ends=st.lists(st.floats(1e-6, 1e15), min_size=3, max_size=3).map(sorted),
    uniform=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=20),
)
def test_a_rate_stays_in_its_range_and_has_its_value_as_the_median(ends, uniform):
    low, value, high = ends
    rate = Rate(value, low, high, Origin("assumed", "a test"))
    drawn = rate.sample(np.array(sorted(uniform)))
    assert np.all(drawn >= low * (1 - 1e-9))
    assert np.all(drawn <= high * (1 + 1e-9))
    assert np.all(np.diff(drawn) >= -1e-9 * drawn[1:])
    assert rate.sample(np.array(0.5)) == pytest.approx(value)
    assert rate.sample(np.array(1e-12)) == pytest.approx(low)
    assert rate.sample(np.array(1 - 1e-12)) == pytest.approx(high)
