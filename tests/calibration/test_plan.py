"""Plans: independent points with stable ids, what they belong to, and how long they take."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hyscale_calibration import work
from hyscale_calibration.benches import registry
from hyscale_calibration.plan import LEVELS, SWEEPS, plan
from hyscale_calibration.point import HELD_OUT, Point, part_of
from hyscale_calibration.work import DESCRIBED, work_of

from hyscale_model import catalog
from hyscale_model.families import anatomy
from hyscale_model.scenario.convert import model_adapter

SECONDS = {"quick": 180.0, "full": 1500.0}
MODELS = ("glm-5.1", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro", "qwen3.8-flash-next")
DENSE_MODELS = ("qwen3-235b-a22b", "llama-3-70b")


@pytest.mark.parametrize("level", LEVELS)
def test_points_are_distinct_and_take_as_long_as_promised(level):
    points = plan(level)
    assert len({point.id for point in points}) == len(points)
    assert 0 < sum(point.estimate_s for point in points) < SECONDS[level]


def test_full_begins_with_quick():
    quick, full = ([point.id for point in plan(level)] for level in LEVELS)
    assert full[: len(quick)] == quick
    assert len(full) > 3 * len(quick)


def test_points_of_a_case_stand_together():
    cases = [point.case for point in plan("full")]
    changes = sum(before != after for before, after in pairwise(cases))
    assert changes == len(set(cases)) - 1


@pytest.mark.parametrize("name", registry.NAMES)
def test_one_operation_has_the_points_that_all_have_of_it(name):
    ids = [point.id for point in plan("full") if point.operation == name]
    assert [point.id for point in plan("full", [name])] == ids


def test_shapes_are_those_that_the_benchmarks_take():
    for sweep in SWEEPS:
        case = registry.load(sweep.operation).cases[0].shape
        for shape in sweep.shapes:
            assert set(shape) == set(case), sweep.operation
            assert all(isinstance(value, type(case[key])) or value == 0 for key, value in shape.items()) or (
                sweep.operation == "topk_torch"
            )


ON_MARKED = {"hytopk.filter", "hytopk.compact", "hytopk.rescore", "hytopk.select"}


def test_every_point_has_a_law_but_the_whole_of_hytopk_and_steps_that_find_nothing_marked():
    for point in plan("full"):
        work = work_of(point.row, point.dtype, point.shape)
        idle = point.row in ON_MARKED and point.shape["family"] == "plateau"
        assert (work is None) == (point.row == "hytopk" or idle), point.id
        if work is not None:
            assert work.hbm_bytes > 0
            assert min(work.units.values(), default=0) >= 0
            # Whole turns of the SMs never take less than work spread evenly.
            assert work.turns is None or work.turns(132) >= 1


def test_part_of_the_sms_is_never_fitted():
    parts = {point.part for point in plan("full") if point.sms}
    assert parts == {"transfer"}


def test_an_id_says_all_that_a_point_is():
    point = Point(operation="gemm", row="gemm", dtype="bf16", shape={"m": 1, "n": 2, "k": 3})
    assert point.id == "gemm/gemm/bf16/m=1,n=2,k=3"
    other = Point(operation="gemm", row="gemm", dtype="bf16", shape={"m": 1, "n": 2, "k": 3}, sms=80)
    assert other.id == f"{point.id}@80sms"


@given(st.text())
def test_the_part_depends_on_the_id_alone(identity):
    assert part_of(identity) == part_of(identity)
    assert part_of(identity) in ("fit", "held_out")


def test_every_unit_of_work_is_described():
    described = set(re.findall(r"(?:^    |; )(\w+)(?:  |: )", work.__doc__, re.MULTILINE))
    found = [each for point in plan("full") if (each := work_of(point.row, point.dtype, point.shape)) is not None]
    assert set().union(*(each.units for each in found)) == described


def test_about_as_many_are_held_out_as_stated():
    held = [part_of(point.id) == "held_out" for point in plan("full")]
    assert sum(held) / len(held) == pytest.approx(HELD_OUT, abs=0.06)


def built(name):
    entry = catalog.entry("models", name)
    assert entry.extends is None
    return anatomy(model_adapter().validate_python({"name": name, **entry.values}))


def test_products_are_those_of_catalogued_models():
    known = set()
    for body in map(built, (*MODELS, *DENSE_MODELS)):
        for attention in body.attentions:
            index = attention.index.projections if attention.index else ()
            known |= {(each.outputs, each.inputs) for each in (*attention.projections, *index)}
        for ffn in body.feed_forwards:
            width = ffn.intermediate if ffn.kind == "dense_ffn" else ffn.shared_intermediate
            known |= {((ffn.matrices - 1) * width, body.hidden), (body.hidden, width)}
    measured = {(shape["n"], shape["k"]) for sweep in SWEEPS if sweep.operation == "gemm" for shape in sweep.shapes}
    assert measured <= known


def test_grouped_products_are_those_of_catalogued_experts():
    known = set()
    for body in map(built, (*MODELS, "qwen3-235b-a22b")):
        for ffn in body.feed_forwards:
            if ffn.experts:
                known |= {((ffn.matrices - 1) * ffn.intermediate, body.hidden), (body.hidden, ffn.intermediate)}
    sweeps = [sweep for sweep in SWEEPS if sweep.operation == "grouped_gemm"]
    assert {(shape["n"], shape["k"]) for sweep in sweeps for shape in sweep.shapes} <= known


def test_every_row_with_a_law_is_in_a_plan():
    assert {point.row for point in plan("full")} - {"hytopk"} == set(DESCRIBED)
