"""The figures of the documents are those of the code."""

import re
from pathlib import Path

import pytest

from hyscale_model.checks import check

DOCS = Path(__file__).parent.parent
UNITS = {"%": 0.01, "s": 1.0, "GiB": 2.0**30, "MiB": 2.0**20}


@pytest.fixture(scope="module")
def rows():
    return {row["id"]: row for row in check(["paper"])["rows"]}


def number(text):
    value, _, unit = text.strip().partition(" ")
    return float(value) * UNITS.get(unit, 1.0)


def test_the_accuracy_page_shows_what_check_computes(rows):
    page = (DOCS / "docs" / "accuracy.md").read_text()
    table = [line.strip().strip("|").split("|") for line in page.splitlines() if re.match(r"\| P\d", line)]
    assert {cells[0].strip() for cells in table} == set(rows)
    for name, _, _, predicted, interval, _, inside in ([c.strip() for c in cells] for cells in table):
        row = rows[name]["predicted"]
        assert number(predicted) == pytest.approx(row["nominal"], rel=0.02), name
        assert ("no" not in inside) == rows[name]["inside"], name
        if " to " in interval:
            low, high = interval.split(" to ")
            unit = high.partition(" ")[2]
            assert number(f"{low} {unit}") == pytest.approx(row["p10"], rel=0.2, abs=0.0006), name
            assert number(high) == pytest.approx(row["p90"], rel=0.05), name


def test_the_readme_tells_the_speed_up_of_the_demo(rows):
    readme = (DOCS / "README.md").read_text()
    nominal = rows["P1"]["predicted"]["nominal"]
    told = float(re.search(r"HyScale brings ([\d.]+)x", readme)[1])
    assert told == pytest.approx(nominal, rel=0.01)


@pytest.fixture(scope="module")
def published():
    return check(["memory", "runs", "collectives"])


@pytest.mark.slow
def test_the_accuracy_page_shows_every_published_run(published):
    page = (DOCS / "docs" / "accuracy.md").read_text()
    shown = {cells[0]: cells for cells in table_rows(page)}
    rows = {row["id"]: row for row in published["rows"]}
    assert set(rows) <= set(shown)
    for name, row in rows.items():
        _, split, _, predicted, interval, _, inside = shown[name]
        assert split == row["split"].replace("_", " ")
        assert inside == {True: "yes", False: "**no**", None: ""}[row["inside"]], name
        # A unit that is no suffix is that of the metric.
        scale = {"GiB": 2.0**30, "s": 1.0, "%": 0.01, "GB/s": 1e9}[predicted.partition(" ")[2]]
        assert float(predicted.split()[0]) * scale == pytest.approx(row["predicted"]["nominal"], rel=0.002), name
        low, high = interval.rpartition(" ")[0].split(" to ")
        assert float(low) * scale == pytest.approx(row["predicted"]["p10"], rel=0.02), name
        assert float(high) * scale == pytest.approx(row["predicted"]["p90"], rel=0.02), name


@pytest.mark.slow
def test_the_accuracy_page_sums_up_what_check_does(published):
    page = (DOCS / "docs" / "accuracy.md").read_text()
    shown = {cells[0]: cells for cells in table_rows(page)}
    for group, summary in published["summary"].items():
        for part, entry in {"all": summary, **summary["parts"]}.items():
            cells = shown[f"{group}, {part}"]
            assert [int(cells[1]), int(cells[2])] == [entry["n"], entry["families"]]
            for text, value in zip(cells[3:6], (entry["mape"], entry["bias"], entry["coverage"]), strict=True):
                if value is not None:
                    assert float(text.split()[0]) / 100 == pytest.approx(value, abs=0.006)


def table_rows(page, columns=7):
    lines = (line.strip().strip("|").split("|") for line in page.splitlines() if line.startswith("| "))
    return [[cell.strip() for cell in cells] for cells in lines if len(cells) == columns]


def test_the_accuracy_page_shows_the_small_training_beside_its_prediction():
    page = (DOCS / "docs" / "accuracy.md").read_text()
    shown = {cells[0].replace("`", ""): cells[1:] for cells in table_rows(page, 5)}
    told = [row for row in check(["training"])["rows"] if row["id"] in shown]
    assert len(told) == 6
    for row in told:
        reported, nominal, interval, error = shown[row["id"]]
        scale = {"ms": 1e-3, "GiB": 2.0**30, "": 1.0}[nominal.partition(" ")[2]]
        known = [row["reported"], row["predicted"]["nominal"]]
        figures = [float(text.split()[0]) for text in (reported, nominal)]
        if interval:
            known += [row["predicted"]["p10"], row["predicted"]["p90"]]
            figures += [float(text.split()[0]) for text in interval.split(" to ")]
        assert figures == pytest.approx([value / scale for value in known], abs=0.006 if scale == 1 else 0.06)
        assert float(error.split()[0]) == pytest.approx(100 * row["error"], abs=0.06)
