"""Each way to a selection is taken where it must be: filtered, all compared, overflowed, too few, hopeless."""

from dataclasses import replace

import pytest
import torch
from hyscale_kernels.hytopk import Plan, hytopk
from hyscale_kernels.hytopk.stages import sample_places
from hyscale_kernels.score_table import score_table, select
from inputs import (
    DEVICE,
    INFINITY,
    SMALL_PLAN,
    assert_equal_selections,
    assert_selection,
    exact,
    normal,
    queries_of,
    shuffled,
    whole,
)

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

LENGTH, TOPK = 1500, 20
SAMPLED = torch.zeros(LENGTH, dtype=torch.bool)
SAMPLED[sample_places(LENGTH, SMALL_PLAN.stride, torch.device("cpu"))] = True


def magnitudes(seed=0):
    return normal(LENGTH, seed=seed).cpu().abs() + 1


def run(values, weights=(1.0,), topk=TOPK, plan=SMALL_PLAN):
    """The selection, checked, of queries whose scores are ``values`` times their weight."""
    found = hytopk(**queries_of(values, weights), topk=topk, plan=plan)
    assert_selection(found, values * torch.tensor(weights)[:, None], topk)
    return found


def reaching(values, places, rank):
    """Keys that reach the rank-th best sample, and keys above the next: between them is what a threshold lets pass."""
    best = values[places].sort(descending=True).values
    least = int((values >= best[rank - 1]).sum())
    return least, max(least, int((values > best[rank]).sum()))


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_candidates_are_the_keys_that_reach_the_sample_of_the_rank(weight):
    places = sample_places(LENGTH, SMALL_PLAN.stride, torch.device("cpu"))
    for seed in range(2):
        values = weight * magnitudes(seed).round(decimals=1)
        least, most = reaching(values, places, SMALL_PLAN.rank)
        found = run(values.abs(), [weight])
        assert TOPK <= least <= int(found.candidates[0]) <= most <= SMALL_PLAN.capacity
        assert not found.recovered.any()
        assert found.margin.isfinite().all()
        lowest = values[found.indices[0].long().cpu()].amin()
        threshold = values[places].sort(descending=True).values[SMALL_PLAN.rank - 1]
        # The threshold is this sample or a number between it and the next.
        assert found.margin[0] >= lowest - threshold


def test_samples_are_one_of_every_stride_and_periods_do_not_meet_them():
    for length, stride in [(1500, 8), (4099, 32), (7, 8)]:
        places = sample_places(length, stride, torch.device("cpu"))
        assert (places // stride).tolist() == [*range(length // stride)]
    offsets = sample_places(2**15, 32, torch.device("cpu")) % 32
    assert offsets.bincount(minlength=32).min() > 0
    assert (offsets[1:] - offsets[:-1]).unique().numel() > 1


def test_high_scores_that_no_sample_saw_overflow_and_are_recovered():
    values = torch.where(SAMPLED, magnitudes(), magnitudes() + 100)
    found = run(values)
    assert found.recovered.tolist() == [True]
    assert found.candidates[0] > SMALL_PLAN.capacity
    assert found.margin.tolist() == [INFINITY]


def test_high_scores_that_only_samples_saw_leave_too_few_and_are_recovered():
    values = torch.where(SAMPLED, magnitudes() + 100, magnitudes())
    found = run(values)
    assert found.recovered.tolist() == [True]
    assert found.candidates.tolist() == [SMALL_PLAN.rank]


def test_as_many_candidates_as_are_selected_suffice_and_one_less_does_not():
    values = torch.where(SAMPLED, magnitudes() + 100, magnitudes())
    rank = SMALL_PLAN.rank
    assert run(values, topk=rank).recovered.tolist() == [False]
    assert run(values, topk=rank + 1).recovered.tolist() == [True]


@pytest.mark.parametrize(("more", "recovered"), [(0, False), (1, True)])
def test_candidates_that_just_fit_are_kept(more, recovered):
    values = torch.full((LENGTH,), 2.0)
    seen, unseen = SAMPLED.nonzero()[:, 0], (~SAMPLED).nonzero()[:, 0]
    values[seen[: SMALL_PLAN.rank]] = 7.0
    values[unseen[: SMALL_PLAN.capacity - SMALL_PLAN.rank + more]] = 9.0
    found = run(values)
    assert found.candidates.tolist() == [SMALL_PLAN.capacity + more]
    assert found.recovered.tolist() == [recovered]


@pytest.mark.parametrize("weight", [1.0, -1.0, 0.0])
def test_a_plateau_of_samples_is_not_filtered(weight):
    found = run(torch.ones(LENGTH), [weight])
    assert found.recovered.tolist() == [True]
    assert found.candidates.tolist() == [0]
    assert found.indices.tolist() == [[*range(TOPK)]]


def test_a_relu_plateau_gives_its_winners_and_then_the_first_zeros():
    values = torch.zeros(LENGTH).index_fill(0, torch.arange(700, 707), 1.0)
    found = run(values, [1.0, -1.0])
    assert found.recovered.tolist() == [True, True]
    assert found.indices.tolist() == [[*range(13), *range(700, 707)], [*range(20)]]


def test_a_plateau_that_fits_is_filtered():
    values = torch.zeros(LENGTH)
    values[SAMPLED.nonzero()[:10, 0]] = 1.0
    values[(~SAMPLED).nonzero()[:60, 0]] = 1.0
    found = run(values)
    assert found.recovered.tolist() == [False]
    assert found.candidates.tolist() == [70]
    assert found.margin.tolist() == [0.0]


def test_fewer_finite_samples_than_the_rank_turn_nothing_away():
    values = torch.full((LENGTH,), float("nan"))
    some = (~SAMPLED).nonzero()[:60, 0]
    values[some] = magnitudes()[some]
    found = run(values)
    assert found.candidates.tolist() == [60]
    assert found.recovered.tolist() == [False]
    assert found.margin.tolist() == [INFINITY]
    # Too few to fill the selection, and yet certain.
    found = run(values, topk=61)
    assert found.recovered.tolist() == [False]
    values[some[0] + torch.arange(0, 1200, 5)] = 3.0
    assert run(values).recovered.tolist() == [True]


def test_hopeless_below_the_rank_is_not_taken_for_a_filter_that_turned_nothing_away():
    values = torch.full((LENGTH,), float("nan"))
    values[SAMPLED.nonzero()[:5, 0]] = 1.0
    values[(~SAMPLED).nonzero()[:60, 0]] = 2.0
    found = run(values, plan=replace(SMALL_PLAN, hopeless=5))
    assert found.recovered.tolist() == [True]
    assert found.candidates.tolist() == [0]


def test_where_all_visible_keys_fit_they_are_all_compared():
    q, keys, weights = exact(5, 2, 32, LENGTH)
    capacity = SMALL_PLAN.capacity
    spans = torch.tensor([[0, 0], [700, 703], [31, 31 + capacity], [3, 4 + capacity], [900, 200]], device=DEVICE)
    found = hytopk(q, keys, weights, spans, TOPK, plan=SMALL_PLAN)
    assert_selection(found, score_table(q, keys, weights, spans), TOPK)
    assert found.candidates[[0, 1, 2, 4]].tolist() == [0, 3, capacity, 0]
    assert found.margin[[0, 1, 2, 4]].tolist() == [INFINITY] * 4
    assert not found.recovered[[0, 1, 2, 4]].any()


def test_without_a_filter_every_visible_key_is_a_candidate():
    q, keys, weights = exact(3, 2, 32, 300)
    spans = torch.tensor([[0, 300], [5, 50], [40, 7]], device=DEVICE)
    found = hytopk(q, keys, weights, spans, TOPK)
    assert Plan.of(TOPK, 300).capacity >= 300
    assert_selection(found, score_table(q, keys, weights, spans), TOPK)
    assert found.candidates.tolist() == [300, 45, 0]
    assert found.margin.tolist() == [INFINITY] * 3
    assert not found.recovered.any()


def test_equal_infinities_are_no_margin_apart():
    values = magnitudes()
    values[::20] = INFINITY
    found = run(values)
    assert found.candidates.tolist() == [75]
    assert found.margin.tolist() == [0.0]
    assert found.recovered.tolist() == [False]
    values[::2] = INFINITY
    assert run(values).recovered.tolist() == [True]


def mixed():
    """Queries that take every way, side by side: by a key's dimension that each of them looks at."""
    keys = torch.zeros(LENGTH, 32)
    levels = shuffled(torch.arange(LENGTH) % 250 + 1).float()
    keys[:, 0] = levels
    keys[:, 1] = torch.where(SAMPLED, levels % 7, 200 - levels % 100)
    keys[:, 2] = torch.where(SAMPLED, 200 + levels % 50, levels % 7)
    keys[:, 3] = 1
    keys[:, 4] = levels // 40
    q = torch.zeros(10, 1, 32)
    for query, dim in enumerate([0, 1, 2, 3, 4, 0, 3, 0, 4, 1]):
        q[query, 0, dim] = 1
    spans = whole(10, LENGTH)
    spans[7] = torch.tensor([40, 90])
    spans[8] = torch.tensor([600, 600])
    spans[9] = torch.tensor([777, 1400])
    return q.bfloat16().to(DEVICE), keys.bfloat16().to(DEVICE), None, spans


@pytest.fixture(scope="module")
def side_by_side():
    return hytopk(*mixed(), TOPK, plan=SMALL_PLAN)


def test_queries_that_take_every_way_side_by_side_and_in_any_blocks(side_by_side):
    inputs, found = mixed(), side_by_side
    assert_selection(found, score_table(*inputs), TOPK)
    assert torch.equal(select(*inputs, TOPK, method="radix"), found.indices)
    assert found.recovered.tolist() == [False, True, True, True, False, False, True, False, False, True]
    assert found.candidates[2] < TOPK < SMALL_PLAN.capacity < found.candidates[1]
    # Blocks of four queries, candidates of three a chunk, one recovered at a time.
    each = max(LENGTH // 8, 4 * LENGTH // SMALL_PLAN.stride)
    blocks = replace(SMALL_PLAN, bitmap_bytes=4 * each, chunk_bytes=3 * 8 * SMALL_PLAN.capacity)
    assert blocks.rows(LENGTH) == 4
    assert_equal_selections(hytopk(*inputs, TOPK, plan=blocks), found)


def test_neighbours_change_nothing(side_by_side):
    (q, keys, _, spans), found = mixed(), side_by_side
    for order in ([9, 8, 6, 2, 0], [3]):
        other = hytopk(q[order], keys, None, spans[order], TOPK, plan=SMALL_PLAN)
        assert_equal_selections(other, found, order)
