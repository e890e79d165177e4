"""The profile of an H200 that is shipped, and what was predicted from it of other cards."""

import json
import warnings
from importlib.resources import files

import pytest
from hyscale_calibration import predicted, profile_file
from hyscale_calibration.fits import missed_bars
from hyscale_calibration.fitted import with_fits
from hyscale_calibration.plan import plan
from hyscale_calibration.point import part_of

PACKAGE = files("hyscale_calibration")
PREDICTED = ("h20-96", "h20-141", "h800", "h100")


@pytest.fixture(scope="module")
def profile():
    return profile_file.read(PACKAGE / "profiles" / "h200-sxm.json")


def test_it_is_of_a_real_h200(profile):
    assert profile["gpu"] == "h200"
    assert {(each["name"], each["sms"]) for each in profile["machines"].values()} == {("NVIDIA H200", 132)}
    assert profile["collectives"]["measured"] is True
    assert profile["failed"] == []


def test_its_points_are_those_of_the_plan(profile):
    points = {point.id for point in plan("full")}
    # Benchmarks of kernels that changed may have other shapes by now.
    changed = profile_file.stale_operations(profile)
    for entry in profile["measurements"]:
        assert entry["id"] in points or entry["operation"] in changed
        assert entry["part"] == ("transfer" if entry["sms"] else part_of(entry["id"]))
        assert entry["p10_ms"] <= entry["median_ms"] <= entry["p90_ms"]


@pytest.mark.slow
def test_its_fits_are_those_of_its_measurements(profile):
    again = with_fits(profile)["fits"]
    assert set(again["families"]) == set(profile["fits"]["families"])
    for part in ("fit", "held_out", "transfer"):
        for name in ("n", "median", "p95", "coverage"):
            assert again[part][name] == pytest.approx(profile["fits"][part][name], rel=0.02, abs=0.002)


def test_held_out_points_meet_the_bars(profile):
    held = profile["fits"]["held_out"]
    assert held["n"] > 200
    assert missed_bars(held) == []


def test_partitions_of_its_sms_follow_the_rule(profile):
    moved = profile["fits"]["transfer"]
    assert moved["n"] >= 80
    assert moved["median"] <= 0.12
    assert moved["coverage"] >= 0.7


def test_a_width_of_four_times_the_products_scales_with_the_sms(profile):
    """What an H20 is like: tensor cores that bind, on 80 of 132 SMs."""
    times = {entry["id"]: entry["median_ms"] for entry in profile["measurements"] if entry["shape"].get("D") == 512}
    pairs = [(name, ms) for name, ms in times.items() if name.endswith("@80sms")]
    assert len(pairs) == 2
    for name, ms in pairs:
        assert times[name.removesuffix("@80sms")] * 132 / 80 / ms == pytest.approx(1.0, abs=0.04)


def test_kernels_that_changed_since_are_told(profile):
    for name in profile_file.stale_operations(profile):
        warnings.warn(f"profile h200-sxm: {name} is of other kernels: measure again", stacklevel=1)


@pytest.mark.parametrize("gpu", PREDICTED)
def test_predictions_in_advance_cover_the_plan(gpu):
    found = json.loads((PACKAGE / "results" / "predicted" / f"{gpu}.json").read_text())
    assert (found["gpu"], found["profile"]) == (gpu, "h200-sxm")
    points = {point.id for point in plan("full") if not point.sms and point.row != "hytopk"}
    assert {row["id"] for row in found["rows"]} <= points
    assert len(found["rows"]) > 600
    assert set(found["kernels"]) == {point.operation for point in plan("full")}
    assert all(0 < row["p10_s"] <= row["s"] <= row["p90_s"] for row in found["rows"])


def test_a_card_with_a_seventh_of_the_tensor_rate_takes_longer_for_products_and_less_so_for_the_rest():
    h100, h20 = (
        {row["id"]: row for row in json.loads(predicted.dumps(predicted.predictions(gpu, "h200-sxm")))["rows"]}
        for gpu in ("h100", "h20-96")
    )
    ratio = {name: h20[name]["s"] / row["s"] for name, row in h100.items()}
    products = [ratio[name] for name, row in h100.items() if row["family"] == "gemm" and row["s"] > 1e-3]
    copies = [ratio[name] for name, row in h100.items() if row["family"] == "copy"]
    rows = [ratio[name] for name, row in h100.items() if row["family"] == "topk_torch"]
    assert all(4 < each < 8 for each in products)
    # More bandwidth, fewer SMs.
    assert all(0.8 < each < 1.0 for each in copies)
    assert all(1.3 < each < 1.75 for each in rows)
