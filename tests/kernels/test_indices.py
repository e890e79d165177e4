"""Indices are looked at once, and not at all where a selection made them."""

import pytest
import torch
from hyscale_kernels import indices as module
from hyscale_kernels.checkpoint import SelectionTape, select_once
from hyscale_kernels.hytopk import hytopk
from hyscale_kernels.indices import check_indices, length_of, made_indices
from hyscale_kernels.replay import replay
from hyscale_kernels.score_table import select
from hyscale_kernels.selection import SparseSelection, tokens_of
from hyscale_kernels.sparse_attention import sparse_attention
from inputs import DEVICE, normal


@pytest.fixture
def looks(monkeypatch):
    """How often the device is looked at."""
    seen = []
    aminmax = torch.aminmax
    monkeypatch.setattr(module.torch, "aminmax", lambda values: seen.append(1) or aminmax(values))
    return seen


def some():
    return torch.tensor([[0, 4, -1], [2, 3, 4]], dtype=torch.int32, device=DEVICE)


def test_what_a_selection_made_is_not_looked_at(looks):
    made = made_indices(some(), 5)
    check_indices(made, 5)
    check_indices(made, 9)
    assert not looks
    check_indices(some(), 5)
    assert len(looks) == 1


def test_it_is_looked_at_for_fewer_keys_and_after_a_change(looks):
    made = made_indices(some(), 5)
    with pytest.raises(ValueError, match="0 to 3"):
        check_indices(made, 4)
    made[1, 1] = 7
    with pytest.raises(ValueError, match="0 to 4"):
        check_indices(made, 5)
    assert len(looks) == 2


def test_a_view_of_it_is_another_tensor(looks):
    check_indices(made_indices(some(), 5)[:1], 5)
    assert len(looks) == 1


def test_inference_is_not_trusted(looks):
    with torch.inference_mode():
        made = made_indices(some(), 5)
        assert length_of(made) is None
        check_indices(made, 5)
    assert len(looks) == 1


def test_nothing_is_kept_of_indices_that_are_gone():
    before = len(module._made)
    made = made_indices(some(), 5)
    assert len(module._made) == before + 1
    del made
    assert len(module._made) == before


def test_tokens_of_known_blocks_are_known():
    tokens = tokens_of(made_indices(some(), 5), 4)
    assert length_of(tokens) == 20
    assert length_of(tokens_of(some(), 4)) is None


@pytest.mark.parametrize("offload", [False, True])
def test_a_replay_hands_out_what_is_known(offload):
    tape = SelectionTape(offload=offload)
    with tape.recording():
        select_once("layer", lambda: made_indices(some(), 5))
    with tape.replaying():
        assert length_of(select_once("layer", some)) == 5


@pytest.mark.slow
def test_selections_know_theirs():
    q, keys = normal(2, 4, 32).bfloat16(), normal(40, 32, seed=1).bfloat16()
    spans = torch.tensor([[0, 40], [0, 7]], device=DEVICE)
    for method in ("hytopk", "score_table"):
        assert length_of(SparseSelection(8, method=method)(q, keys, None, spans)) == 40
    assert length_of(hytopk(q, keys, None, spans, 8).indices) == 40
    assert length_of(select(q, keys, None, spans, 8)) == 40


@pytest.mark.slow
def test_operators_look_at_what_nobody_knows(looks):
    q, keys = normal(2, 4, 32).bfloat16(), normal(5, 32, seed=1).bfloat16()
    for indices, times in ((made_indices(some(), 5), 0), (some(), 2)):
        looks.clear()
        replay(q, keys, None, indices)
        sparse_attention(q, keys, indices, 0.2)
        assert len(looks) == times
