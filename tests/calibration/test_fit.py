"""Fits recover a law, and their intervals hold what they promise."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_calibration.fit import LawFit, Samples
from hyscale_calibration.fits import fit_all, missed_bars, told
from hyscale_calibration.plan import plan
from hyscale_calibration.work import Work, work_of
from simulated import PEAKS, SimulatedMachine, law_of, true_seconds

from hyscale_model.rates.law import seconds


@cache
def points_of(family):
    return [
        point
        for point in plan("full")
        if not point.sms and (work := work_of(point.row, point.dtype, point.shape)) and work.family == family
    ]


def samples_of(points, noise=0.0, seed=0):
    works = [work_of(point.row, point.dtype, point.shape) for point in points]
    times = np.array([true_seconds(point) for point in points])
    times = times * np.exp(np.random.default_rng(seed).normal(0, noise, len(times)))
    return Samples(works, [132] * len(works), times)


@pytest.mark.parametrize("family", ["gemm", "index_scoring.filter", "topk_torch", "replay_scoring", "copy"])
def test_times_of_a_known_law_are_predicted_to_a_percent(family):
    points = points_of(family)
    seen, unseen = ([point for point in points if point.part == part] for part in ("fit", "held_out"))
    fit = LawFit(PEAKS).fit(samples_of(seen))
    nominal, low, high = fit.predict(samples_of(unseen))
    errors = np.abs(nominal / samples_of(unseen).seconds - 1)
    assert np.median(errors) < 0.01
    assert errors.max() < 0.1
    assert np.all((low < nominal) & (nominal < high))


def test_the_coefficients_that_bind_are_recovered():
    fit = LawFit(PEAKS).fit(samples_of(points_of("copy")))
    assert fit.law_.hbm == pytest.approx(law_of(Work(family="copy")).hbm, rel=0.01)
    fit = LawFit(PEAKS).fit(samples_of(points_of("topk_torch")))
    assert fit.law_.clocks["visible_bytes"] == pytest.approx(0.5, rel=0.03)
    assert fit.law_.clocks["masked_bytes"] == pytest.approx(0.45, rel=0.06)


def test_intervals_hold_about_four_fifths_of_what_was_not_seen():
    inside = []
    for seed in range(6):
        points = points_of("index_scoring.table") + points_of("topk_radix")
        for family in ("index_scoring.table", "topk_radix"):
            points = points_of(family)
            some = samples_of(points, 0.05, seed)
            half = len(points) // 2
            first = Samples(some.work[:half], some.sms[:half], some.seconds[:half])
            rest = Samples(some.work[half:], some.sms[half:], some.seconds[half:])
            _, low, high = LawFit(PEAKS).fit(first).predict(rest)
            inside.append((low <= rest.seconds) & (rest.seconds <= high))
    assert 0.7 <= np.concatenate(inside).mean() <= 0.92


@settings(max_examples=8)
@given(factor=st.floats(0.25, 4.0))
def test_a_kernel_that_is_slower_throughout_is_predicted_slower_throughout(factor):
    samples = samples_of(points_of("topk_radix")[:12], 0.02)
    slower = Samples(samples.work, samples.sms, samples.seconds * factor)
    before, after = (LawFit(PEAKS).fit(each).predict(samples)[0] for each in (samples, slower))
    # Bounds on what memory can give keep the fastest from being followed all the way.
    assert np.median(after / before) == pytest.approx(factor, rel=0.25)


def test_noise_widens_the_interval():
    points = points_of("gemm")
    narrow, wide = (LawFit(PEAKS).fit(samples_of(points, noise)) for noise in (0.01, 0.1))
    assert wide.spread_ > 3 * narrow.spread_


def test_the_covariance_is_one():
    fit = LawFit(PEAKS).fit(samples_of(points_of("gemm"), 0.03))
    assert fit.covariance_.shape == (len(fit.names_),) * 2
    assert np.allclose(fit.covariance_, fit.covariance_.T)
    assert np.all(np.linalg.eigvalsh(fit.covariance_) > 0)


def test_one_point_makes_no_law():
    with pytest.raises(ValueError, match="two points at least, there are 1"):
        LawFit(PEAKS).fit(samples_of(points_of("copy")[:1]))


def test_work_that_a_law_does_not_price_costs_no_time_beyond_it():
    work = Work(family="x", hbm_bytes=4.8e9, units={"slots": 1e6}, launches=0)
    samples = Samples([work], [132], np.ones(1))
    (taken,) = seconds(law_of(work), samples.workload(("slots",)), PEAKS)
    assert taken >= 4.8e9 / PEAKS.hbm


def measured(noise, level="full"):
    machine, found = SimulatedMachine(noise), []
    for point in plan(level):
        ((_, result),) = machine.measure([point])
        found.append(
            {
                "id": point.id,
                "row": point.row,
                "dtype": point.dtype,
                "shape": dict(point.shape),
                "sms": point.sms,
                "part": point.part,
                "median_ms": result.times_ms[0],
            }
        )
    return found


@pytest.fixture(scope="module")
def fits():
    return fit_all(measured(0.035), PEAKS)


@pytest.mark.slow
def test_a_whole_plan_meets_the_bars_on_kernels_that_follow_the_law(fits):
    assert missed_bars(fits["held_out"]) == []
    assert fits["held_out"]["n"] > 150
    # One shape of another width tells of partitions alone.
    assert set(fits["unfitted"]) == {"index_scoring.only.wide", "index_scoring.table.wide"}


@pytest.mark.slow
def test_the_rule_of_transfer_holds_where_kernels_follow_it(fits):
    assert fits["transfer"]["median"] < 0.04
    assert fits["transfer"]["n"] == sum(point.part == "transfer" and point.row != "hytopk" for point in plan("full"))


@pytest.mark.slow
def test_steps_of_hytopk_are_added_up_and_counted_once(fits):
    rows = sum(entry["held_out"]["n"] for entry in fits["families"].values())
    assert fits["families"]["candidate_select"]["fit"]["n"] > 10
    assert fits["held_out"]["n"] == rows - fits["families"]["candidate_select"]["held_out"]["n"]


@pytest.mark.slow
def test_what_is_held_out_changes_no_coefficient():
    rows = measured(0.02, "quick")
    other = [
        {**row, "median_ms": row["median_ms"] * 9 if row["part"] == "held_out" else row["median_ms"]} for row in rows
    ]
    before, after = (fit_all(each, PEAKS)["families"] for each in (rows, other))
    # Sums of steps have a part of their own.
    for family in set(before) - {"candidate_select"}:
        assert before[family]["coefficients"] == after[family]["coefficients"]


def test_missed_bars_are_told_with_their_numbers():
    errors = told(np.array([0.2, -0.3]), np.array([False, False]), ["a", "b"])
    assert errors["worst_id"] == "b"
    text = " ".join(missed_bars(errors))
    assert "25.0%" in text
    assert "holds 0%" in text
    assert missed_bars({"n": 0}) == ["no point was held out"]
