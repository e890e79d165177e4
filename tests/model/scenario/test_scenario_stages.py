"""Splits of a pipeline: even by default, and on layers that compute an index where layers share one."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.scenario.stages import (
    begins_without_index,
    even_split,
    selecting_layers,
    sharing_split,
    virtual_stage_layers,
)

# GLM-5.2, as its configuration lists them.
GLM = (1, 2, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63, 67, 71, 75)


def test_the_layers_of_glm() -> None:
    assert selecting_layers(78, 4, 3) == GLM
    assert selecting_layers(6, 1, 0) == (1, 2, 3, 4, 5, 6)
    # The first layer has nothing to reuse.
    assert selecting_layers(9, 4, 0) == (1, 5, 9)


@pytest.mark.parametrize("stages", range(1, 22))
def test_splits_of_glm_begin_on_its_layers(stages: int) -> None:
    split = sharing_split(78, stages, GLM)
    assert len(split) == stages
    assert sum(split) == 78
    assert min(split) > 0
    assert begins_without_index(split, GLM) is None


@given(st.integers(1, 14), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_no_split_is_more_even(layers: int, freq: int, offset: int, stages: int) -> None:
    selecting = selecting_layers(layers, freq, offset)
    if len(selecting) < stages:
        with pytest.raises(ValueError, match="cannot each begin"):
            sharing_split(layers, stages, selecting)
        return
    best = min(
        (max(split), sum(size**2 for size in split))
        for inner in combinations(selecting[1:], stages - 1)
        for split in [[end - start for start, end in zip((1, *inner), (*inner, layers + 1), strict=True)]]
    )
    split = sharing_split(layers, stages, selecting)
    assert (max(split), sum(size**2 for size in split)) == best


def test_virtual_stages() -> None:
    assert virtual_stage_layers(78, 4, 2) == even_split(78, 8) == (9, 10, 10, 10, 10, 10, 10, 9)
    assert virtual_stage_layers(10, 2, 2, (3, 2, 3, 2)) == (3, 2, 3, 2)
    # Rank 0 holds virtual stages 0 and 2.
    assert virtual_stage_layers(10, 2, 2, (6, 4)) == (3, 2, 3, 2)
    assert virtual_stage_layers(78, 4, 2, None, GLM) == sharing_split(78, 8, GLM)
    assert virtual_stage_layers(78, 4, 2, None, tuple(range(1, 79))) == even_split(78, 8)


def test_the_first_stage_at_fault_is_found() -> None:
    assert begins_without_index((2, 3, 1), (1, 3, 4)) == (2, 6)
