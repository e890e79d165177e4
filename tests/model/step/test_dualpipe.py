"""DualPipe: micro-batches from both ends of the pipeline, forwards beside backwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.step.orders import dual_order, most_in_flight, pair_counts
from hyscale_model.step.pairs import COMPUTATION, EXCHANGE, beside
from hyscale_model.step.schedule import dual_seconds, finish_times, schedule, step_seconds
from hyscale_model.timeline import timeline

DUAL = ("layout.schedule=dualpipe", "layout.vpp=1", "workload.global_batch_size=8")
PLAIN = ("layout.schedule=1f1b", "layout.vpp=1", "workload.global_batch_size=8")


def even(pp, micro_batches, f, b, w, both):
    stages = np.ones((pp, 1))
    return dual_seconds(f * stages, b * stages, w * stages, both * stages, micro_batches)[0]


def busy(rank, pp, micro_batches, f, b, both):
    return micro_batches * (f + b) - sum(pair_counts(rank, pp, micro_batches)) * (f + b - both)


@pytest.mark.parametrize("pp", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("more", [0, 2, 12, 100])
@pytest.mark.parametrize("both", [3.0, 2.5])
def test_the_bubble_is_the_published_one(pp, more, both):
    """(PP / 2 - 1)(F&B + B - 3W), table of deepseek-ai/DualPipe; a rank at the ends may wait for less."""
    f, b, w, micro_batches = 1.0, 2.0, 1.0, 2 * pp + more
    taken = even(pp, micro_batches, f, b, w, both)
    bubbles = [taken - busy(rank, pp, micro_batches, f, b, both) for rank in range(pp)]
    assert max(bubbles) == pytest.approx((pp / 2 - 1) * (both + b - 3 * w))
    assert bubbles == pytest.approx(bubbles[::-1])


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_zero_bubble_waits_as_its_table_says(pp):
    """(PP - 1)(F + B - 2W), the line above it, with B the whole backward."""
    stages = np.ones((pp, 1))
    taken = step_seconds(stages, 2 * stages, pp, 1, 4 * pp, weights=stages)[0]
    assert taken - 4 * pp * 3 == pytest.approx((pp - 1) * (1 + 2 - 2))


@given(pp=st.integers(1, 8), more=st.integers(0, 8))
def test_every_rank_holds_one_more_than_the_ranks(pp, more):
    """PP + 1 activations a device, of one stage each."""
    pp, more = 2 * pp, 2 * more
    assert {most_in_flight(dual_order(rank, pp, 2 * pp + more)) for rank in range(pp)} == {pp + 1}


@given(pp=st.integers(1, 6), more=st.integers(0, 6), rank=st.integers(0, 11))
def test_every_pass_runs_once_in_order(pp, more, rank):
    pp, micro_batches = 2 * pp, 4 * pp + 2 * more
    rank %= pp
    done = {(kind, chunk): [] for kind in "FBW" for chunk in (0, 1)}
    pairs, owed = 0, set()
    for kind, chunk, micro_batch, *other in dual_order(rank, pp, micro_batches):
        if kind == "P":
            pairs += 1
            done["F", chunk].append(micro_batch)
            done["B", 1 - chunk].append(other[0])
        elif kind == "W":
            owed.remove((chunk, micro_batch))
        else:
            done["F" if kind == "F" else "B", chunk].append(micro_batch)
            owed |= {(chunk, micro_batch)} if kind == "I" else set()
    assert not owed
    assert pairs == sum(pair_counts(rank, pp, micro_batches))
    for chunk in (0, 1):
        assert done["F", chunk] == done["B", chunk] == list(range(micro_batches // 2))


@given(pp=st.integers(1, 4), seed=st.integers(0, 99))
def test_nothing_starts_before_what_it_needs(pp, seed):
    pp = 2 * pp
    generator = np.random.default_rng(seed)
    forward, backward = generator.uniform(1, 2, (2, pp, 1))
    weights = 0.4 * backward
    pairs = np.maximum(0.8 * (forward + backward[::-1]), np.maximum(forward, backward[::-1]))
    durations = np.concatenate([forward, backward, weights, backward - weights, pairs])
    plan = schedule(pp, 1, 2 * pp + 2, "dualpipe")
    ends = finish_times(durations, plan)[1:, 0]
    starts = ends - durations[plan.durations, 0]
    at = {}
    for (rank, item), start, end in zip(plan.passes, starts, ends, strict=True):
        kind, chunk, micro_batch = item[:3]
        events = [(kind if kind != "I" else "B", chunk, micro_batch)]
        if kind == "P":
            events = [("F", chunk, micro_batch), ("B", 1 - chunk, item[3])]
        for name, which, number in events:
            at[name, rank if which == 0 else pp - 1 - rank, which, number] = (start, end)
    for (name, place, chunk, number), (start, _) in at.items():
        if name == "F" and place:
            assert start >= at["F", place - 1, chunk, number][1] - 1e-9
        if name == "B":
            needed = ("B", place + 1) if place + 1 < pp else ("F", place)
            assert start >= at[(*needed, chunk, number)][1] - 1e-9


chains = st.lists(st.floats(0, 5), min_size=1, max_size=9).map(lambda each: each if len(each) % 2 else each[:-1])


@given(ahead=chains, back=chains, contention=st.floats(0, 0.3))
def test_a_pair_takes_no_less_than_its_floors_and_no_more_than_its_parts(ahead, back, contention):
    ahead, back = ([(place % 2, np.array([each])) for place, each in enumerate(chain)] for chain in (ahead, back))
    seconds, hidden = (float(each[0]) for each in beside(ahead, back, np.array([contention])))
    total = {
        kind: sum(float(part[0]) for chain in (ahead, back) for each, part in chain if each == kind) for kind in (0, 1)
    }
    alone = [sum(float(part[0]) for _, part in chain) for chain in (ahead, back)]
    assert max(total[COMPUTATION], total[EXCHANGE], *alone) <= seconds + 1e-9
    assert seconds <= sum(alone) + 1e-9
    assert hidden <= total[EXCHANGE] + 1e-9
    assert seconds == pytest.approx(sum(alone) - (1 - contention) * hidden)


def test_exchange_hides_behind_the_other_chain_where_there_is_enough_of_it():
    layer = [(0, np.array([1.0])), (1, np.array([1.0]))]
    seconds, hidden = beside([*layer, (0, np.array([1.0]))], [*layer, (0, np.array([1.0]))], np.array([0.0]))
    # Computation of one, then in turns: only the first and the last stretch have nothing beside them.
    assert seconds[0] == pytest.approx(4)
    assert hidden[0] == pytest.approx(2)


def test_both_copies_of_a_stage_are_held(predicted):
    dual, plain = (predicted(*each)["systems"]["hyscale"]["memory"] for each in (DUAL, PLAIN))
    for kind in ("parameters", "gradients"):
        held = [stage["at_peak_bytes"][kind] for stage in plain["stages"]]
        for rank, stage in enumerate(dual["stages"]):
            assert stage["at_peak_bytes"][kind] == pytest.approx(held[rank] + held[-1 - rank])
    # ZeRO spreads the state of a stage over twice as many ranks.
    state = [stage["at_peak_bytes"]["optimizer"] for stage in plain["stages"]]
    for rank, stage in enumerate(dual["stages"]):
        assert stage["at_peak_bytes"]["optimizer"] == pytest.approx((state[rank] + state[-1 - rank]) / 2)


def test_activations_are_those_of_pp_plus_one_stages(predicted):
    dual, plain = (predicted(*each)["systems"]["megatron"]["memory"]["stages"] for each in (DUAL, PLAIN))
    # Rank 0 of 1F1B holds pp micro-batches of its stage; under DualPipe pp + 1 halves of two stages.
    both = plain[0]["stored_activations_bytes"] / 4 + plain[3]["stored_activations_bytes"]
    assert dual[0]["stored_activations_bytes"] == pytest.approx(2.5 * both)


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
def test_token_exchange_is_hidden_and_the_terms_still_sum(predicted, system):
    dual, plain = (predicted(*each)["systems"][system] for each in (DUAL, PLAIN))
    assert sum(dual["time_s"].values()) == pytest.approx(dual["step_time_s"]["nominal"])
    assert dual["hidden_communication_s"]["ep"] > 0
    exposed = dual["time_s"]["ep_communication_exposed"]
    assert 0 < exposed < plain["time_s"]["ep_communication_exposed"]
    assert dual["time_s"]["pp_bubble"] < plain["time_s"]["pp_bubble"]
    assert dual["step_time_s"]["nominal"] < plain["step_time_s"]["nominal"]


def test_intervals_hold_with_draws_and_points(predicted):
    found = predicted(*DUAL, draws=8)["systems"]["hyscale"]["step_time_s"]
    assert found["p10"] <= found["p50"] <= found["p90"]
    assert predicted(*DUAL)["systems"]["hyscale"]["step_time_s"]["nominal"] == pytest.approx(found["nominal"])


def test_the_timeline_ends_with_the_step_and_shows_pairs(resolve, predicted):
    found = timeline(resolve(*DUAL), "hyscale")
    assert found.shown == found.micro_batches == 8
    assert {each.kind for each in found.passes} == {"F", "B", "I", "W", "P"}
    step = predicted(*DUAL)["systems"]["hyscale"]
    rest = step["time_s"]["optimizer"] + step["time_s"]["dp_communication_exposed"]
    assert max(each.end_s for each in found.passes) + rest <= step["step_time_s"]["nominal"] + 1e-6


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (("layout.schedule=dualpipe", "layout.vpp=1"), "workload.global_batch_size"),
        ((*DUAL, "layout.vpp=2"), "layout.schedule"),
        ((*DUAL, "layout.pp=1", "layout.cp=256", "layout.ep=256"), "layout.schedule"),
        ((*DUAL, "layout.overlap_moe_expert_parallel_comm=true"), "layout.overlap_moe_expert_parallel_comm"),
    ],
)
def test_what_cannot_run_is_refused(resolve, overrides, field):
    with pytest.raises(InputError) as error:
        resolve(*overrides)
    assert error.value.field == field


def test_an_odd_pipeline_cannot_be_paired(resolve):
    overrides = ("layout.schedule=dualpipe", "layout.pp=3", "cluster.gpus_per_node=6", "layout.cp=2", "layout.ep=2")
    with pytest.raises(InputError, match="even pp"):
        resolve(*overrides, small=True)
