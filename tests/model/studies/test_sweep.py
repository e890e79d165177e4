"""A sweep is what single predictions would say, point by point, however it is cut and wherever it runs."""

import csv
import gc
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyscale_model import catalog
from hyscale_model.batch import assign
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario import Assumption, read_scenario
from hyscale_model.scenario.validate import check_layout
from hyscale_model.studies import sweep as sweeps
from hyscale_model.studies.axes import MOST_POINTS
from hyscale_model.studies.columns import DIGITS, column_names, evaluate_csv, evaluate_table
from hyscale_model.studies.points import Chunk
from hyscale_model.studies.pool import in_order
from hyscale_model.studies.sweep import Sweep

NAME = "glm-5.1-1m-512xh20"
TEXT = catalog.path("published", NAME).read_bytes()


def read(*overrides, systems=()):
    return read_scenario(NAME, text=TEXT, overrides=overrides, systems=systems)


def rows_of(sweep, **how):
    """Rows as dictionaries, in order."""
    found = []
    options = {"executor": None, "workers": 1} | how
    for _, columns in in_order(evaluate_table, sweep.chunks(), **options):
        found += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return found


SWEPT = (
    "sweep.workload.sequence_length=[131072, 200000, 1048576]",
    "sweep.layout.pp=[4, 8]",
    "sweep.cluster.gpu=[h20-96, h200, b200]",
    "zip.layout.cp=[64, 128]",
    "zip.training.moe_imbalance=[1.0, 1.1]",
)


@pytest.mark.slow
@pytest.mark.parametrize("draws", [0, 5])
def test_every_row_is_a_prediction_of_its_point_and_impossible_ones_say_why(draws):
    rows = rows_of(Sweep.of(read(*SWEPT), draws))
    assert len(rows) == 3 * 2 * 3 * 2 * 3
    paths = [each.partition(".")[2].partition("=")[0] for each in SWEPT]
    compared = 0
    for row in rows:
        settings_ = [f"{path}={row[path]}" for path in paths]
        if row["verdict"] == "invalid":
            assert row["step_time_s"] is None
            with pytest.raises(InputError) as refused:
                predict(read(*settings_), draws=draws)
            assert refused.value.problem in row["reason"]
            continue
        data = predict(read(*settings_), draws=draws).data
        one = data["systems"][row["system"]]
        assert row["reason"] == ""
        assert row["step_time_s"] == pytest.approx(one["step_time_s"]["nominal"], rel=1e-12)
        assert row["peak_bytes"] == pytest.approx(one["memory"]["peak_bytes"], rel=1e-12)
        assert row["verdict"] == one["memory"]["verdict"]
        assert row["selection_share_of_step"] == pytest.approx(one["selection_share_of_step"]["nominal"], rel=1e-12)
        if draws:
            assert row["step_time_s_p90"] == pytest.approx(one["step_time_s"]["p90"], rel=1e-12)
        if row["system"] == "hyscale":
            assert row["speedup"] == pytest.approx(data["speedup"]["hyscale/megatron"]["nominal"], rel=1e-12)
        compared += 1
    assert compared > 10


BEYOND = {
    "workload.sequence_length": [32768, 131072, 1048576],
    "workload.global_batch_size": [4, 16],
    "layout.cp": [16, 64, 128],
    "layout.ep": [16, 128],
    "layout.pp": [2, 4, 8],
    "training.index_precision": ["bf16", "fp8"],
    "cluster.gpu.hbm_bytes_per_s": [4.8e12, 1e11],
}


@settings(max_examples=12)
@given(data=st.data())
def test_what_is_extrapolated_is_what_a_prediction_of_the_point_says(data):
    paths = data.draw(st.lists(st.sampled_from(list(BEYOND)), min_size=1, max_size=4, unique=True))
    draws = data.draw(st.sampled_from([0, 3]))
    own = ("cluster.gpu=h200", "profile=h200-sxm")
    # With a reach of one as much as can be lies beyond; what the shipped profile measured may change.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyscale_model.rates.profile.REACH", data.draw(st.sampled_from([1.0, 4.0])))
        sweep = Sweep.of(read(*own, *(f"sweep.{path}={BEYOND[path]}" for path in paths)), draws)
        rows = [row for row in sweep.collect()["rows"] if row["verdict"] != "invalid"]
        for row in data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=4)) if rows else ():
            one = predict(read(*own, *(f"{path}={row[path]}" for path in paths)), draws=draws).data
            assert row["extrapolated"] == ";".join(one["systems"][row["system"]]["extrapolated"])


@pytest.mark.parametrize("reach", [1e-3, 1.0, 1e9])
def test_kernels_beyond_what_was_measured_are_named_term_by_term(monkeypatch, reach):
    monkeypatch.setattr("hyscale_model.rates.profile.REACH", reach)
    rows = rows_of(Sweep.of(read("cluster.gpu=h200", "profile=h200-sxm", SWEPT[0]), 0))
    marked = [set(row["extrapolated"].split(";")) - {""} for row in rows if row["verdict"] != "invalid"]
    assert all(row["extrapolated"] == "" for row in rows if row["verdict"] == "invalid")
    if reach == 1e9:
        assert not any(marked)
    else:
        assert all({"projections", "optimizer"} <= terms for terms in marked) or reach == 1.0
        # The longest sequence scores the most keys.
        assert "selection_forward" in marked[-1]


def test_nothing_is_extrapolated_where_all_is_transferred(monkeypatch):
    monkeypatch.setattr("hyscale_model.rates.profile.REACH", 1e-3)
    rows = rows_of(Sweep.of(read("cluster.gpu=h100", "profile=h200-sxm", SWEPT[0]), 0))
    assert {row["extrapolated"] for row in rows} == {""}


def test_what_a_chunk_holds_is_let_go_with_it():
    """Else memory grows until the collector of cycles runs, which counts objects and not bytes."""
    chunks = list(Sweep.of(read(*SWEPT[:2], "cluster.gpu=h200"), 0).chunks())
    evaluate_csv(chunks[0])
    gc.collect()
    gc.disable()
    try:
        evaluate_csv(chunks[1])
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(("size", "workers"), [(1, 2), (5, 4), (8, 3)])
def test_results_do_not_depend_on_chunks_or_on_who_computes_them(size, workers):
    sweep = Sweep.of(read(*SWEPT[:2]), 0)
    wanted = rows_of(sweep)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(workers) as pool:
        patch.setattr(sweeps, "CHUNK_VALUES", size)
        alone = rows_of(sweep)
        assert rows_of(sweep, executor=pool, workers=workers) == alone
    for row, other in zip(alone, wanted, strict=True):
        # Matrix products of other widths add up in another order.
        assert row == {
            key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for key, value in other.items()
        }


def test_processes_give_what_one_gives():
    sweep = Sweep.of(read(*SWEPT[:2]), 0)
    assert rows_of(sweep, workers=2) == rows_of(sweep)


def test_equal_work_has_an_equal_id_and_other_work_another():
    first, again = (list(Sweep.of(read(*SWEPT), 0).chunks()) for _ in range(2))
    assert [chunk.id for chunk in first] == [chunk.id for chunk in again]
    possible = [chunk.id for chunk in first if chunk.scenario is not None]
    assert len(set(possible)) == len(possible)
    assert replace(first[0], seed=1).id != first[0].id


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_a_point_is_invalid_exactly_where_a_rule_says_so(data):
    fields = {
        "workload.sequence_length": [4096, 131072, 1048576, 1000001],
        "workload.global_batch_size": [1, 4, 6, 64],
        "layout.cp": [1, 3, 64, 128],
        "layout.ep": [1, 64, 128, 200],
        "layout.vpp": [1, 2, 5],
        "layout.cp_order": ["zigzag", "contiguous"],
        "cluster.nodes": [1, 48, 64],
        "training.index_precision": ["bf16", "fp8"],
    }
    chosen = data.draw(st.lists(st.sampled_from(list(fields)), min_size=1, max_size=4, unique=True))
    scenario = read().scenario
    own = {"global_batch_size": data.draw(st.sampled_from([4, 8]))}
    scenario = replace(scenario, workload=replace(scenario.workload, **own))
    points = list(product(*(fields[path] for path in chosen)))
    values = {path: np.array([point[at] for point in points])[:, None] for at, path in enumerate(chosen)}
    names = tuple(system.name for system in scenario.systems)
    chunk = Chunk(scenario, names, tuple(chosen), {}, values, len(points), 0, 0)
    table = evaluate_table(chunk)
    for number, point in enumerate(points):
        case = assign(scenario, dict(zip(chosen, point, strict=True)))
        for at, system in enumerate(case.systems):
            try:
                check_layout(case, system)
                problem = ""
            except InputError as error:
                problem = str(error)
            assert table["reason"][number * len(names) + at] == problem


def test_systems_with_a_layout_of_their_own_are_judged_by_it():
    rows = rows_of(Sweep.of(read("sweep.layout.cp=[64, 96, 128]", "systems.hyscale.layout.cp=128"), 0))
    verdicts = {(row["layout.cp"], row["system"]): row["verdict"] for row in rows}
    assert verdicts[96, "megatron"] == "invalid"
    assert verdicts[96, "hyscale"] != "invalid"
    speedups = {(row["layout.cp"], row["system"]): row["speedup"] for row in rows}
    assert speedups[96, "hyscale"] is None
    assert speedups[128, "hyscale"] > 1


def test_a_switch_of_every_system_is_swept():
    rows = rows_of(Sweep.of(read("sweep.systems.*.dispatcher=[alltoall, deepep]"), 0))
    assert [row["systems.*.dispatcher"] for row in rows] == ["alltoall"] * 3 + ["deepep"] * 3
    assert all(one["step_time_s"] > other["step_time_s"] for one, other in zip(rows[:3], rows[3:], strict=True))


@pytest.mark.parametrize("overrides", [SWEPT[:2], ("sweep.layout.cp=[64, 96, 128]", "systems.hyscale.layout.cp=128")])
def test_csv_says_what_the_table_says(overrides):
    for chunk in Sweep.of(read(*overrides), 3).chunks():
        table = evaluate_table(chunk)
        rows = list(csv.reader(io.StringIO(evaluate_csv(chunk))))
        assert list(table) == column_names(chunk.paths, 3)
        for line, row in zip(rows, zip(*table.values(), strict=True), strict=True):
            for text, value in zip(line, row, strict=True):
                if isinstance(value, float):
                    assert float(text) == pytest.approx(value, rel=10.0 ** (1 - DIGITS))
                else:
                    assert text == ("" if value is None else str(value))


def test_names_with_commas_and_quotes_are_one_field_of_csv():
    sweep = Sweep.of(read("sweep.layout.cp=[96, 128]"), 0)
    chunk = replace(next(sweep.chunks()), systems=('my, "own"', "megatron-best", "hyscale"))
    names = [line[1] for line in csv.reader(io.StringIO(evaluate_csv(chunk)))]
    assert names[::3] == ['my, "own"'] * 2


def test_nothing_to_sweep_and_too_much_are_refused():
    with pytest.raises(InputError, match="nothing to sweep"):
        Sweep.of(read())
    many = list(range(1, 1001))
    overrides = [f"sweep.{path}={many}" for path in ("workload.sequence_length", "layout.cp", "layout.ep")]
    with pytest.raises(InputError, match=rf"1,000,000,000 points.*at most {MOST_POINTS:,}"):
        Sweep.of(read(*overrides))


def test_an_unknown_name_in_a_sweep_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"no gpu 'h20'.*h20-"):
        read("sweep.cluster.gpu=[h20, h200]")


def test_a_chunk_whose_process_dies_is_computed_again(tmp_path):
    sweep = Sweep.of(read(*SWEPT[:2]), 0)
    flag = tmp_path / "died"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "CHUNK_VALUES", 1)
        chunks = list(sweep.chunks())
    found = [columns for _, columns in in_order(DiesOnce(str(flag)), chunks, None, 2)]
    assert flag.exists()
    assert found == [evaluate_table(chunk) for chunk in chunks]


class DiesOnce:
    """Ends its process at the first chunk it is given, as a machine would that goes away."""

    def __init__(self, flag):
        self.flag = flag

    def __call__(self, chunk):
        import os

        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return evaluate_table(chunk)
        os._exit(1)


def test_a_point_at_which_a_drawn_choice_is_impossible_is_invalid(resolve):
    # Eight sequences divide over eight ranks, four of them do not.
    resolved = resolve("workload.global_batch_size=8", "sweep={layout.cp: [16, 32]}", systems=("megatron",))
    text = "the choice 4 of workload.global_batch_size is not possible"
    scenario = replace(
        resolved.scenario,
        assumptions=(Assumption(path="workload.global_batch_size", choices=(8, 4), reason="not known"),),
    )
    rows = Sweep.of(replace(resolved, scenario=scenario), 8).collect()["rows"]
    assert [row["verdict"] == "invalid" for row in rows] == [True, False]
    assert rows[0]["reason"].startswith(text)
    nominal = Sweep.of(replace(resolved, scenario=scenario), 0).collect()["rows"]
    assert nominal[0]["verdict"] != "invalid"
