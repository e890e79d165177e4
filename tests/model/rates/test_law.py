"""The law of a kernel, by itself and as predictions price operations by it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.layers.tiles import product_turns
from hyscale_model.prediction import Origin
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.law import Law, Peaks, Workload, by_path, seconds, together
from hyscale_model.rates.load import gpu_named, load_profile
from hyscale_model.rates.profile import Family, Fitted, Rate
from hyscale_model.rates.roofline import Rates

PEAKS = Peaks(tensor={"bf16": 989e12, "fp8": 1979e12}, sms=132, hz=1.98e9, hbm=4.8e12)
LAW = Law(
    tensor={"bf16": 0.7, "fp8": 0.6},
    clocks={"scores": 0.3, "gathered_bytes": 0.05, "atomics": 0.4, "products": 0.02},
    hbm=0.85,
    launch_s=3e-6,
    serial=0.2,
    sustained=0.1,
    lag_s=1e-12,
)
amounts = st.floats(0, 1e12)


def one(**work):
    shape = {name: np.array([float(work.pop(name, 0.0))]) for name in ("flops", "hbm_bytes", "passed_bytes")}
    units = np.array([[float(work.pop(unit, 0.0)) for unit in LAW.clocks]])
    rest = {
        name: np.array([work.pop(name, usual)]) for name, usual in (("launches", 1), ("turns", 1.0), ("sms", 132.0))
    }
    return Workload(**shape, **rest, units=units, precision=np.array([int(work.pop("fp8", 0))]))


def taken(**work):
    return float(seconds(LAW, one(**work), PEAKS)[0])


def test_what_one_resource_does_takes_its_own_time():
    assert taken(hbm_bytes=4.8e9) == pytest.approx(3e-6 + 1e-3 / 0.85)
    assert taken(passed_bytes=4.8e9) == pytest.approx(3e-6 + 1e-3 / 0.85)
    assert taken(scores=132 * 1.98e9) == pytest.approx(3e-6 + 0.3)
    assert taken(launches=5) == pytest.approx(15e-6)
    short = 989e12 * 1e-6
    assert taken(flops=short) == pytest.approx(3e-6 + 1e-6 / 0.7, rel=1e-3)


def test_clocks_fall_under_long_tensor_work():
    short, long = taken(flops=1e10) - 3e-6, taken(flops=1e16) - 3e-6
    assert short == pytest.approx(1e10 / 989e12 / 0.7, rel=0.01)
    assert long == pytest.approx(1.1 * 1e16 / 989e12 / 0.7, rel=0.01)


def test_paths_run_side_by_side_and_units_of_a_path_add_up():
    assert by_path(tuple(LAW.clocks)) == {"cores": [0, 3], "gather": [1], "atomics": [2]}
    clocks = 132 * 1.98e9
    scores, gather = 0.3, 0.05
    both = taken(scores=clocks, gathered_bytes=clocks) - 3e-6
    assert both == pytest.approx(scores + 0.2 * gather)
    assert taken(scores=clocks, products=clocks) - 3e-6 == pytest.approx(0.32)


@given(st.fixed_dictionaries({"flops": amounts, "hbm_bytes": amounts, "scores": amounts, "atomics": amounts}))
def test_fewer_sms_never_help_and_at_worst_scale(work):
    whole, part = taken(**work), taken(**work, sms=80.0)
    # A clock that falls later makes up for a little of it.
    assert whole * (1 - 1e-12) <= part <= whole * 132 / 80 * 1.1


@given(st.sampled_from(("flops", "hbm_bytes", "scores", "atomics", "launches", "passed_bytes")), st.floats(1, 100))
def test_more_work_never_takes_less(name, factor):
    work = {"flops": 1e11, "hbm_bytes": 1e8, "scores": 1e8, "atomics": 1e7, "launches": 2, "passed_bytes": 1e7}
    assert taken(**{**work, name: work[name] * factor}) >= taken(**work) * (1 - 1e-12)


def test_together_is_between_the_longest_and_the_sum():
    assert together(0.0, 3.0, 1.0) == 3.0
    assert together(1.0, 3.0, 1.0, 1.0) == 5.0


def test_a_law_is_written_and_read():
    assert Law.parse(LAW.as_json()) == LAW
    plain = replace(LAW, tensor={}, sustained=0.0)
    assert Law.parse(plain.as_json()) == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hbm": 0.0}, "hbm is 0.0, not a positive number"),
        ({"hbm": "much"}, "hbm is 'much'"),
        ({"clocks.scores": math.inf}, "clocks.scores is inf"),
        ({"other": 1.0}, "has hbm, lag_s, launch_s, other, serial, sustained where"),
    ],
)
def test_what_is_no_law_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Law.parse({**LAW.as_json(), **change})


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.sampled_from([78, 80, 132]), st.integers(1, 16))
def test_tiles_take_whole_turns(rows, columns, sms, groups):
    turns = float(product_turns(rows * groups, columns, sms, groups))
    assert turns >= 1
    # Large products fill the SMs.
    assert float(product_turns(rows * groups * 4096, columns * 4096, sms, groups)) < 1.1


def test_tiles_of_arrays_are_those_of_their_elements():
    rows, columns = np.array([[100.0], [5000.0]]), np.array([[300.0, 7000.0]])
    found = product_turns(rows, columns, 132)
    assert found.shape == (2, 2)
    assert found[1, 0] == product_turns(5000, 300, 132)


def fitted_profile(error=1.0, measured=(1e-6, 1.0)):
    source = "a profile"
    width = Rate(1.0, 1.0 / error, error, Origin("measured", source))
    fitted = Fitted("h200", source, LAW, width, measured)
    base = load_profile("published")
    return replace(base, families={**base.families, "x": Family("x", (), None, fitted)})


def rates_on(gpu, draws=0, **options):
    return Rates(fitted_profile(**options), gpu_named(gpu), Draws(draws), gpu_named)


def operation(scale=1.0, **changes):
    units = {"scores": 1e9 * scale, "gathered_bytes": 1e8 * scale, "atomics": 1e7 * scale, "products": 1e10 * scale}
    work = {"flops": 1e12 * scale, "hbm_bytes": 3e9 * scale, "passed_bytes": 1e9 * scale, "turns": lambda sms: 1.25}
    return Operation(family="x", units=lambda: units, **{"launches": 3, **work, **changes})


def law_seconds(operation, gpu="h200", alone=False):
    """As the law says, at the clock of long work, or of the kernel ``alone``."""
    known = gpu_named(gpu)
    peaks = Peaks(
        tensor={"bf16": known.bf16_flops, "fp8": known.fp8_flops},
        sms=known.sms,
        hz=known.boost_hz,
        hbm=known.hbm_bytes_per_s,
    )
    tensor = {name: value / (1 + LAW.sustained) for name, value in LAW.tensor.items()}
    work = one(
        flops=operation.flops,
        hbm_bytes=operation.hbm_bytes - operation.passed_bytes,
        passed_bytes=operation.passed_bytes,
        launches=operation.launches,
        turns=operation.turns(known.sms),
        sms=float(known.sms),
        fp8=operation.fp8,
        **operation.units(),
    )
    law = LAW if alone else replace(LAW, tensor=tensor, sustained=0.0)
    return float(seconds(replace(law, lag_s=0.0), work, peaks)[0])


@pytest.mark.parametrize("gpu", ["h200", "h100", "h800"])
@pytest.mark.parametrize("fp8", [0.0, 1.0])
@pytest.mark.parametrize("changes", [{}, {"flops": 1e15}, {"hbm_bytes": 1e12}, {"passed_bytes": 2e9}])
def test_an_operation_takes_what_the_law_says(gpu, fp8, changes):
    work = operation(fp8=fp8, **changes)
    rates = rates_on(gpu)
    assert np.asarray(rates.seconds([work]))[0, 0, 0] == pytest.approx(law_seconds(work, gpu), rel=1e-9)
    in_step = rates.factor("step_over_kernels")[0, 0]
    assert rates.nominal(work).seconds == pytest.approx(in_step * law_seconds(work, gpu), rel=1e-9)


@pytest.mark.parametrize("gpu", ["h200", "h100"])
@pytest.mark.parametrize("flops", [0.0, 1e10, 1e12, 1e16])
def test_a_kernel_by_itself_lowers_the_clock_by_its_own_time(gpu, flops):
    rates, work = rates_on(gpu), operation(flops=flops)
    assert rates.seconds([rates.alone(work)])[0, 0, 0] == pytest.approx(law_seconds(work, gpu, alone=True), rel=1e-9)
    assert rates.alone(work).flops <= work.flops


def test_what_is_priced_by_published_rates_is_the_same_by_itself():
    rates = Rates(load_profile("published"), gpu_named("h100"), Draws(0), gpu_named)
    work = Operation(family="gemm", flops=1e12)
    assert rates.alone(work) is work


def test_an_sm_that_works_alone_takes_as_long_on_a_gpu_of_fewer():
    law = replace(LAW, clocks={"again": 5.0})
    work = replace(one(launches=0), units=np.array([[1e6]]), sms=np.array([80.0]))
    assert seconds(law, work, PEAKS)[0] == pytest.approx(5e6 / PEAKS.hz, rel=1e-6)


def test_points_and_draws_of_an_operation_are_those_of_each():
    rates = rates_on("h200", draws=4, error=1.3)
    scales = np.array([[1.0], [10.0], [1000.0]])
    whole = rates.seconds([operation(scales)], points=3)[0]
    assert whole.shape == (3, 5)
    for index, scale in enumerate(scales[:, 0]):
        assert whole[index] == pytest.approx(rates.seconds([operation(float(scale))])[0, 0])
    assert whole[0].min() >= law_seconds(operation()) / 1.3
    assert whole[0].max() <= law_seconds(operation()) * 1.3
    assert len(set(whole[0])) == 5


def test_slow_tensor_cores_keep_another_share_of_their_peak():
    """An H20 has 78 of 132 SMs and 148 of 989 TFLOP/s."""
    work = operation(flops=1e16, turns=None)
    binding = rates_on("h20-96").nominal(work)
    assert binding.resource == "tensor"
    assert 1e16 / 148e12 / 0.95 < binding.seconds < 1e16 / 148e12 / 0.78 * 1.1
    assert binding.origin.origin == "transferred"


def test_where_a_number_comes_from():
    long = operation(1e3)
    assert rates_on("h200").nominal(operation()).origin.origin == "measured"
    beyond = rates_on("h200", measured=(1e-6, 1e-3)).nominal(long).origin
    assert beyond.origin == "transferred"
    assert "extrapolated: a profile, kernels of 0.001 to 1 ms" in beyond.detail
    other = rates_on("h100").nominal(operation()).origin
    assert other.origin == "transferred"
    assert "on h100 scaled by" in other.detail


def test_each_point_beyond_what_was_measured_is_told():
    scales = np.array([[1e-3], [1.0], [1e3]])
    own = rates_on("h200", draws=2, measured=(law_seconds(operation()), law_seconds(operation())))
    assert own.is_beyond(operation(scales)).ravel().tolist() == [True, False, True]
    for scale in scales[:, 0].tolist():
        assert own.is_beyond(operation(scale)) == (scale != 1.0)
    assert not np.any(rates_on("h100", measured=(1e-9, 1e-8)).is_beyond(operation(scales)))
    # A wait for another rank's kernel is none, and neither is one without work.
    assert not own.is_beyond(operation(1e3, launches=0))
    assert not own.is_beyond(Operation(family="x", units=lambda: dict.fromkeys(operation().units(), 0.0)))


def test_a_unit_that_an_operation_does_not_say_has_no_price():
    with pytest.raises(UnpricedError, match="operation of x does not say its scores"):
        rates_on("h200").cost(Operation(family="x", flops=1.0))
