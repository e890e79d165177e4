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
