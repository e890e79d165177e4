import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.batch import assign, case_of
from hyscale_model.families import anatomy
from hyscale_model.layers.hytopk import HyTopKSizes, mean_samples
from hyscale_model.layers.selection import Selector, replay_scoring
from hyscale_model.layers.sizes import IndexSizes, Sizes, mean_selected

LENGTHS = (1, 2, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 65536, 524288, 524289, 700001, 1048576, 1500000)


def samples_of(context):
    """M = min(max(4096, L/128), 8192) evenly spaced keys, at most the keys there are."""
    return np.minimum(np.minimum(np.maximum(4096, context / 128), 8192), context)


@pytest.mark.parametrize("length", LENGTHS)
def test_mean_samples_is_the_average_over_causal_contexts(length):
    average = samples_of(np.arange(1, length + 1)).mean()
    # The model integrates where the average sums: half a key apart at most.
    assert mean_samples(length) == pytest.approx(average, abs=0.5)
    assert mean_samples(np.array([[length]]))[0, 0] == pytest.approx(mean_samples(length), rel=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("topk", [1, 512, 2048])
def test_mean_selected_is_the_average_over_causal_contexts(length, topk):
    average = np.minimum(np.arange(1, length + 1), topk).mean()
    assert mean_selected(length, topk) == pytest.approx(average, rel=1e-12)


def test_sizes_of_the_worked_example():
    sizes = HyTopKSizes.of(1048576, 2048)
    assert (sizes.samples, sizes.stride, sizes.rank, sizes.candidates) == (8192, 128, 48, 6144)


def test_sizes_of_a_compressed_context():
    sizes = HyTopKSizes.of(262144, 512)
    assert (sizes.samples, sizes.rank, sizes.candidates) == (4096, 24, 1536)


@given(length=st.integers(1, 4_000_000), topk=st.integers(1, 4096))
def test_sizes_follow_the_rule_of_the_paper(length, topk):
    sizes = HyTopKSizes.of(length, topk)
    samples = float(samples_of(length))
    rank = min(np.ceil(3 * topk * samples / length), samples)
    assert sizes.samples == pytest.approx(samples)
    # A rank that sits on a whole number may fall either way in floating point.
    assert abs(sizes.rank - rank) <= (1 if abs(3 * topk * samples / length - rank) < 1e-6 else 0)
    assert sizes.rank <= sizes.samples <= length
    assert sizes.candidates <= length
    # About the 3k-th best key: at least that many candidates are expected, where the context has them.
    assert sizes.candidates >= min(3 * topk, length) * (1 - 1e-9)
    array = HyTopKSizes.of(np.array([[length]]), topk)
    for name in ("samples", "stride", "rank", "candidates"):
        assert getattr(array, name) == pytest.approx(getattr(sizes, name), rel=1e-12)


def case(resolve, **changes):
    scenario = resolve(small=True).scenario
    scenario = assign(scenario, {key.replace("__", "."): value for key, value in changes.items()})
    return case_of(scenario, scenario.systems[0])


def rows_of(found):
    """Sizes of the indexer of a case."""
    return IndexSizes.of(found, Sizes.of(found), anatomy(found.model).attention("dsa").index)


def test_a_causal_query_sees_half_the_sequence_on_average(resolve):
    found = case(resolve, workload__sequence_length=4096)
    sizes, rows = Sizes.of(found), rows_of(found)
    assert sizes.visible(1) == rows.visible == np.arange(1, 4097).mean() == rows.scored
    assert rows.keys == rows.held_keys == 4096
    assert rows.selected == sizes.selected(2048, 1) == np.minimum(np.arange(1, 4097), 2048).mean()


def test_without_causal_skipping_every_key_is_scored(resolve):
    scenario = resolve("systems.*.causal_skip=false", small=True).scenario
    assert rows_of(case_of(scenario, scenario.systems[0])).scored == 65536


@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_contiguous_ranks_wait_for_the_last_one(resolve, cp):
    length = 4096
    found = rows_of(
        case(resolve, workload__sequence_length=length, layout__cp=cp, layout__cp_order="contiguous", cluster__nodes=2)
    )
    by_rank = np.arange(1, length + 1).reshape(cp, -1).mean(axis=1)
    assert found.slowest_over_mean == pytest.approx(by_rank.max() / by_rank.mean(), rel=1e-3)


@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_zigzag_ranks_see_the_same_number_of_keys(resolve, cp):
    length = 4096
    chunks = np.arange(1, length + 1).reshape(2 * cp, -1)
    by_rank = [np.concatenate([chunks[rank], chunks[-1 - rank]]).mean() for rank in range(cp)]
    assert max(by_rank) == min(by_rank)
    found = rows_of(case(resolve, workload__sequence_length=length, layout__cp=cp, cluster__nodes=2))
    assert found.slowest_over_mean == 1


def test_ranks_make_up_the_cluster_and_queries_the_sequence(resolve):
    scenario = resolve().scenario
    sizes = Sizes.of(case_of(scenario, scenario.systems[0]))
    assert sizes.world == 512
    assert sizes.dp * scenario.layout.tp * scenario.layout.pp * scenario.layout.cp == 512
    assert sizes.queries == 8192
    assert sizes.queries * scenario.layout.cp == sizes.longest() == sizes.held_tokens == 1048576
    assert sizes.micro_batches * sizes.dp == scenario.workload.global_batch_size


@pytest.mark.parametrize("length", [1024, 65536])
def test_replay_scores_the_kept_entries_and_no_others(resolve, length):
    replayed = case(resolve, workload__sequence_length=length)
    selector = Selector.of(replayed, anatomy(replayed.model).attention("dsa").index, Sizes.of(replayed))
    (work,) = replay_scoring(selector, lambda name: 0.9).values()
    kept = np.minimum(np.arange(1, length + 1), 2048).sum() / 4
    assert work.flops == pytest.approx(2 * kept * 32 * 128, rel=1e-12)
