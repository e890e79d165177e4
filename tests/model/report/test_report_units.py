import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.report import units

FINITE = st.floats(min_value=-1e15, max_value=1e15, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (157.34, "157.3 s"),
        (1.0, "1.000 s"),
        (0.00999996, "10.00 ms"),
        (12.5e-6, "12.50 us"),
        (3e-9, "3.000 ns"),
        (-36.5, "-36.50 s"),
        (12345.6, "12,346 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


def test_gib_and_gb_are_different_units():
    assert units.gib(2**30) == "1.0 GiB"
    assert units.gib(1e9) == "0.9 GiB"
    assert units.gib(64 * 2**20) == "64.0 MiB"
    assert units.gib(0) == "0.0 GiB"
    assert units.gb_per_s(1e9) == "1.000 GB/s"


def test_shares_ratios_and_counts():
    assert units.percent(0.47) == "47.0 %"
    assert units.signed_percent(0.031) == "+3.1 %"
    assert units.signed_percent(-0.05) == "-5.0 %"
    assert units.ratio(2.066) == "2.07x"
    assert units.count(1048576) == "1,048,576"


@pytest.mark.parametrize("show", [units.seconds, units.gib, units.percent, units.ratio, units.count, units.significant])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(show, value):
    with pytest.raises(ValueError, match="not a finite number"):
        show(value)


@given(FINITE)
def test_significant_never_uses_an_exponent_and_stays_close(value):
    text = units.significant(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4, abs=1e-300)


def test_interval_shares_a_unit_only_when_it_is_the_same():
    assert units.interval({"p10": 1.0, "p90": 2.0}, units.seconds) == "1.000 to 2.000 s"
    assert units.interval({"p10": 0.9, "p90": 1.1}, units.seconds) == "900.0 ms to 1.100 s"
    assert units.interval({"nominal": 1.0}, units.seconds) == "-"
    assert units.interval(None, units.seconds) == "-"


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("speedup.hyscale/megatron", 2.07, "2.07x"),
        ("speedup.hyscale/megatron.p10", 2.07, "2.07x"),
        ("systems.megatron.selection_share_of_step", 0.47, "47.0 %"),
        ("systems.megatron.time_s.selection_recompute", 37.0, "37.00 s"),
        ("systems.megatron.memory.peak_bytes", 2**35, "32.0 GiB"),
        ("systems.megatron.tokens_per_s_per_gpu", 52.3, "52.30"),
        ("gpu.hbm_bytes_per_s", 4e12, "4,000 GB/s"),
        ("time_ms", 1.5, "1.500 ms"),
    ],
)
def test_a_metric_shows_in_the_unit_of_its_name(metric, value, text):
    assert units.unit_of(metric)(value) == text
