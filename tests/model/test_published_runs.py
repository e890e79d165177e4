"""Published runs: how they are split, what their summaries say, and which bars they meet."""

import pytest

from hyscale_model import catalog
from hyscale_model.checks import check
from hyscale_model.checks.fit import fit_cases, fitted_factor
from hyscale_model.checks.published import BARS, NAMES, family_of, group_of, published_names, split_of
from hyscale_model.scenario import read_scenario


@pytest.fixture(scope="module")
def checked():
    return check(["memory", "runs"], draws=32)


def scenario(name):
    return read_scenario(name, text=catalog.path("published", name).read_bytes()).scenario


def test_runs_of_one_model_in_one_layout_are_on_one_side(checked):
    sides = {}
    for row in checked["rows"]:
        if row["split"] != "lower_bound":
            sides.setdefault(row["family"], set()).add(row["split"])
    assert all(len(found) == 1 for found in sides.values())
    assert {side for found in sides.values() for side in found} == {"fit", "held_out"}


def test_a_split_is_a_matter_of_the_name_alone():
    assert split_of("gpt-22b 48 layers tp8 pp1 vpp1 cp1 ep1 etp1 zero0") == "fit"
    assert split_of("gpt-1t 128 layers tp8 pp64 vpp1 cp1 ep1 etp1 zero0") == "held_out"


def test_every_published_run_is_compared_once(checked):
    reported = [row.id for name in published_names() for row in scenario(name).reported]
    assert sorted(reported) == sorted(row["id"] for row in checked["rows"])
    for row in checked["rows"]:
        assert row["group"] == group_of(row["metric"])


def test_untuned_runs_are_bounds(checked):
    bounds = [row for row in checked["rows"] if row["split"] == "lower_bound"]
    assert [row["id"] for row in bounds] == ["R07"]
    assert all(row["relation"] == "at_most" and "not tuned" in row["note"] for row in bounds)


def test_activations_of_korthikanti_et_al_come_out_to_the_byte(checked):
    rows = [row for row in checked["rows"] if row["series"] == "korthikanti" and row["group"] == "memory"]
    assert len(rows) == 8
    for row in rows:
        assert row["error"] == pytest.approx(0, abs=1e-9)


def test_memory_of_the_simumax_rows_is_within_its_bar(checked):
    rows = [row for row in checked["rows"] if row["series"] == "simumax" and row["group"] == "memory"]
    assert len(rows) == 22
    assert sum(abs(row["error"]) for row in rows) / len(rows) <= 0.01


def test_bars_say_what_their_part_of_the_summary_says(checked):
    for group, bars in BARS.items():
        summary = checked["summary"][group]
        found = {bar["id"]: bar for bar in summary["bars"]}
        assert len(found) == len(bars)
        for part, what, low, high in bars:
            bar = found[f"{NAMES[what]} of {part}"]
            assert bar["passed"] == (low <= bar["value"] <= high)
            if part in summary["parts"]:
                assert bar["value"] == summary["parts"][part][what]


def test_no_rate_was_fitted_on_what_is_held_out():
    families = {family for family, _ in fit_cases()}
    assert families
    assert {split_of(family) for family in families} == {"fit"}


def test_the_fitted_rate_is_the_one_that_is_shipped():
    """Fitting again changes the rate of 16-bit products on Blackwell by less than a hundredth."""
    assert fitted_factor() == pytest.approx(1, abs=0.01)


def test_a_family_tells_model_and_layout():
    found = family_of(scenario("simumax-s36"))
    assert found == "llama-3-70b 12 layers tp2 pp1 vpp1 cp4 ep1 etp1 zero1"
