import csv
import json

import pytest

from hyscale_model import catalog

SCENARIO = catalog.path("published", "glm-5.1-1m-512xh20")
SET = ("--set", "sweep.workload.sequence_length=[131072, 200000, 1048576]", "--set", "sweep.layout.cp=[64, 128]")
# Some 120,000 rows.
AXES = {"workload.sequence_length": range(1, 400), "workload.global_batch_size": range(1, 102)}
MANY = [part for path, values in AXES.items() for part in ("--set", f"sweep.{path}={list(values)}")]


# Text, empty where there is nothing to tell.
TOLD = ("extrapolated", "reason")


def test_people_get_a_line_a_point(run):
    result = run("sweep", SCENARIO, *SET, "--draws", 4)
    assert result.code == 0
    lines = [line.split() for line in result.out.splitlines()]
    points = [(words[0], words[1]) for words in lines if words[1:2] in (["64"], ["128"])]
    lengths = ("131,072", "200,000", "1,048,576")
    assert points == [(length, cp) for length in lengths for cp in ("64", "128")]
    assert "200000 tokens cannot be cut" in " ".join(result.out.split())


def test_people_see_what_is_extrapolated(run, monkeypatch):
    monkeypatch.setattr("hyscale_model.rates.profile.REACH", 1.0)
    result = run("sweep", SCENARIO, *SET, "--set", "cluster.gpu=h200", "--draws", 0)
    text = " ".join(result.out.split())
    legend = text.partition("~ beyond what the profile measured: ")[2]
    assert "selection_forward" in legend
    assert "s~" in text.partition("beyond")[0]
    assert "~" not in run("sweep", SCENARIO, *SET, "--draws", 0).out


def test_json_has_every_row_and_nothing_else(run):
    result = run("sweep", SCENARIO, *SET, "--draws", 0, "--json", "--system", "megatron", "--system", "hyscale")
    data = json.loads(result.out)
    assert result.err == ""
    assert data["points"] == 6
    assert len(data["rows"]) == 12
    assert list(data["rows"][0]) == data["columns"]
    assert data["axes"] == ["workload.sequence_length", "layout.cp"]


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_files_hold_what_json_holds(run, tmp_path, monkeypatch, name):
    path = tmp_path / name
    # On the GPU of the profile, with next to nothing within its reach.
    monkeypatch.setattr("hyscale_model.rates.profile.REACH", 1.0)
    arguments = (*SET, "--set", "cluster.gpu=h200", "--draws", 2)
    rows = json.loads(run("sweep", SCENARIO, *arguments, "--json").out)["rows"]
    assert any("selection_forward" in row["extrapolated"].split(";") for row in rows)
    result = run("sweep", SCENARIO, *arguments, "--output", path)
    assert result.code == 0
    assert result.out == ""
    assert f"wrote {path}: 18 rows of 6 points" in result.err
    assert [each.name for each in tmp_path.iterdir()] == [name]
    if path.suffix == ".csv":
        with path.open() as file:
            found = list(csv.DictReader(file))
        for line, row in zip(found, rows, strict=True):
            assert {key: type(row[key])(text) if text or key in TOLD else None for key, text in line.items()} == {
                key: pytest.approx(value, rel=1e-11) if isinstance(value, float) else value
                for key, value in row.items()
            }
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(path).to_pylist() == rows


def test_bad_input_leaves_nothing_behind(run, tmp_path):
    for arguments, message in (
        (("--output", tmp_path / "table.xlsx", *SET), "ends in .csv or .parquet"),
        (("--output", tmp_path / "no" / "table.csv", *SET), "cannot be written"),
        ((), "nothing to sweep"),
        (MANY, "too many to show"),
    ):
        result = run("sweep", SCENARIO, *arguments)
        assert result.code == 2
        assert message in result.err
        assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_breaks_off_leaves_the_old_one(run, tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hyscale_model.studies.pool.in_order", broken)
    assert run("sweep", SCENARIO, *SET, "--output", path).code == 130
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_bad_input(run):
    pytest.importorskip("distributed")
    result = run("sweep", SCENARIO, *SET, "--scheduler", "tcp://127.0.0.1:9")
    assert result.code == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in result.err
