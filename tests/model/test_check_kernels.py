"""Published kernels beside a profile measured on another GPU."""

import json

import numpy as np
import pytest

from hyscale_model import catalog
from hyscale_model.catalog import measured
from hyscale_model.checks import check
from hyscale_model.checks.kernels import KERNELS, kernel_summary, predicted_file
from hyscale_model.report import failed_bars, make_console, render_check


@pytest.fixture(scope="module")
def result():
    return check(["kernels"], draws=64)


def rows_of(result, split):
    return [row for row in result["rows"] if row["split"] == split]


def test_every_published_kernel_is_predicted(result):
    files = [catalog.document("kernels", name).data for name in catalog.names("kernels")]
    assert len(result["rows"]) == sum(len(file["rows"]) for file in files)
    assert {file["kernel"] for file in files} <= set(KERNELS)
    assert all(file["source"] and file["library"] in ("same", "other") for file in files)


def test_errors_are_those_of_the_nominal_time(result):
    for row in result["rows"]:
        assert row["error"] == pytest.approx(row["predicted"]["nominal"] / row["reported"] - 1)
        assert row["inside"] == (row["predicted"]["p10"] <= row["reported"] <= row["predicted"]["p90"])
        assert row["predicted"]["p10"] < row["predicted"]["p90"]


def test_the_rules_carry_products_of_an_h200_to_an_h100(result):
    moved = rows_of(result, "transferred")
    assert len(moved) > 60
    errors = np.abs([row["error"] for row in moved])
    assert np.median(errors) <= 0.12
    assert np.mean([row["inside"] for row in moved]) >= 0.7


def test_bars_are_over_gpus_that_were_not_measured(result):
    summary = result["summary"]["kernels"]
    assert summary["transferred"]["n"] == len(rows_of(result, "transferred"))
    assert {bar["id"]: bar["passed"] for bar in summary["bars"]} == {
        "median error": True,
        "coverage of the 80 % interval": True,
    }
    assert not failed_bars(result)


def test_each_gpu_and_kernel_has_its_worst_case(result):
    families = result["summary"]["kernels"]["by_family"]
    assert {name.split(":")[0] for name in families} == {"h100", "h200", "h800", "h20-96"}
    assert all(entry["worst"]["id"].startswith(name.split(":")[0]) for name, entry in families.items())


def test_a_missed_bar_is_told():
    row = {"family": "x", "split": "transferred", "id": "x 1", "error": 0.5, "inside": False}
    data = {"summary": {"kernels": kernel_summary([row])}}
    assert failed_bars(data) == [
        "kernels: median error is 50.0 %, the bar is at most 12.0 %",
        "kernels: coverage of the 80 % interval is 0.0 %, the bar is at least 70.0 %",
    ]


def test_the_terminal_shows_families_and_worst_cases(result, capsys):
    render_check(result, make_console(width=140))
    shown = capsys.readouterr().out
    assert "kernels by family" in shown
    assert "h20-96: grouped_gemm, other library" in shown


def test_whoever_owns_a_predicted_gpu_scores_the_predictions(tmp_path, monkeypatch):
    shipped = measured.folders()
    file = predicted_file("h20-96")
    rows = [row for row in file["rows"] if not row["id"].startswith("replay/")][:4]
    times = [0.9, 1.0, 1.1, 3.0]
    entries = [{"id": row["id"], "median_ms": 1e3 * row["s"] * scale} for row, scale in zip(rows, times, strict=True)]
    changed = next(row for row in file["rows"] if row["id"].startswith("replay/"))
    more = [{"id": "other", "median_ms": 1.0}, {"id": changed["id"], "median_ms": 1.0}]
    profile = {
        "kind": "measured",
        "gpu": "h20-96",
        "measurements": [*entries, *more],
        "kernels": {**file["kernels"], "replay": "other kernels"},
    }
    (tmp_path / "mine.json").write_text(json.dumps(profile))
    monkeypatch.setattr(measured, "folders", lambda: [tmp_path, *shipped])
    found = check(["kernels"], profile="mine")
    assert [row["error"] for row in found["rows"]] == pytest.approx([1 / scale - 1 for scale in times])
    assert found["summary"]["kernels"]["transferred"]["n"] == 4
    assert "predicted in advance from h200-sxm" in found["rows"][0]["source"]
