from itertools import pairwise

import pytest

from hyscale_model.timeline import COMPUTE, timeline

ONE_STAGE = ("layout.pp=1", "layout.vpp=1", "layout.schedule=1f1b", "layout.cp=256", "layout.ep=256")
ZERO_BUBBLE = ("layout.vpp=1", "layout.schedule=zero_bubble")
OVERLAPPED = ("layout.overlap_p2p_comm=true",)
SHAPES = [ONE_STAGE, (), ("layout.vpp=3",), ZERO_BUBBLE, OVERLAPPED]


@pytest.fixture(scope="module", params=["megatron", "hyscale"])
def system(request):
    return request.param


@pytest.mark.parametrize("overrides", SHAPES, ids=str)
def test_the_timeline_ends_with_the_step(resolve, predicted, system, overrides):
    found = timeline(resolve(*overrides), system)
    assert found.shown == found.micro_batches
    assert found.step_s == pytest.approx(predicted(*overrides)["systems"][system]["step_time_s"]["nominal"])
    last = max(each.end_s for each in found.passes)
    terms = predicted(*overrides)["systems"][system]["time_s"]
    assert 0 < found.ending_s <= found.step_s - last + 1e-9
    assert found.ending_s >= terms["optimizer"] + terms["dp_communication_exposed"] - 1e-9


def test_a_rank_runs_one_pass_at_a_time(resolve, system):
    found = timeline(resolve(), system)
    for rank in {each.rank for each in found.passes}:
        mine = [each for each in found.passes if each.rank == rank]
        assert all(before.end_s <= after.start_s + 1e-9 for before, after in pairwise(mine))


def test_a_pass_waits_for_the_one_before_it(resolve, system):
    found = timeline(resolve(), system)
    ranks = max(each.rank for each in found.passes) + 1
    place = {(each.kind, each.chunk * ranks + each.rank, each.micro_batch): each for each in found.passes}
    last = len(found.stages) - 1
    for (kind, stage, micro_batch), each in place.items():
        if kind == "F" and stage:
            assert each.start_s >= place["F", stage - 1, micro_batch].end_s - 1e-9
        if kind == "B":
            before = place["B", stage + 1, micro_batch] if stage < last else place["F", stage, micro_batch]
            assert each.start_s >= before.end_s - 1e-9


def test_gaps_of_the_critical_rank_are_the_bubble(resolve, predicted, system):
    found = timeline(resolve(), system)
    entry = predicted()["systems"][system]
    mine = [each for each in found.passes if each.rank == entry["critical_stage"]]
    busy = sum(each.end_s - each.start_s for each in mine)
    assert found.step_s - found.ending_s - busy == pytest.approx(entry["time_s"]["pp_bubble"], rel=1e-6)


def test_the_tasks_of_a_stage_take_as_long_as_its_pass(resolve, system):
    found = timeline(resolve(*ONE_STAGE), system)
    (runs,) = found.stages
    for kind, phases in (("F", ("forward",)), ("B", ("recompute", "backward"))):
        took = sum(
            count * max((row.end_s for row in found.blocks[name] if row.phase == phase), default=0.0)
            for name, count in runs.items()
            for phase in phases
        )
        one = next(each for each in found.passes if each.kind == kind)
        # What runs beside a transfer is slowed by it, which no single task shows.
        assert took == pytest.approx(one.end_s - one.start_s, rel=0.02)


def test_tasks_of_a_stream_do_not_overlap(resolve, system):
    for rows in timeline(resolve(), system).blocks.values():
        for stream in {row.stream for row in rows}:
            for phase in ("forward", "recompute", "backward"):
                mine = [row for row in rows if (row.stream, row.phase) == (stream, phase)]
                assert all(a.end_s <= b.start_s + 1e-12 for a, b in pairwise(mine))
    assert COMPUTE in {row.stream for row in rows}


def test_very_many_micro_batches_are_cut_short(resolve):
    found = timeline(resolve("workload.global_batch_size=4096"), "hyscale")
    assert found.micro_batches == 4096
    assert found.shown < 64
    assert max(each.end_s for each in found.passes) < found.step_s
