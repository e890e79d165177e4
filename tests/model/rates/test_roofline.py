from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import gpu_named, load_profile
from hyscale_model.rates.roofline import Rates

PROFILE = load_profile("published")
GPUS = ("h20-96", "h20-141", "h800", "h100", "h200")
SM_FAMILIES = sorted(name for name, family in PROFILE.families.items() if family.sm is not None)
PRICED = sorted(name for name, family in PROFILE.families.items() if family.sm is not None or family.tensor)
amounts = st.just(0.0) | st.floats(1, 1e15)
WORK = 1e15


def rates_on(name, draws=None):
    return Rates(PROFILE, gpu_named(name), draws or Draws(0), gpu_named)


def seconds(rates, operation):
    return np.asarray(rates.seconds([operation])[0])


def sm_operation(name, work=WORK):
    """Nothing but the work that the family's SM rate counts."""
    unit = PROFILE.family(name).sm.unit
    return Operation(family=name, flops=work if unit == "flop" else 0.0, sm_work=work, launches=0)


@pytest.mark.parametrize("name", SM_FAMILIES)
def test_a_published_rate_is_reproduced_on_the_gpu_it_was_measured_on(name):
    entry = PROFILE.family(name).sm
    assert entry.gpu in ("h100", "h200")
    taken = seconds(rates_on(entry.gpu), sm_operation(name))
    assert taken[0, 0] == pytest.approx(WORK / entry.rate.value, rel=1e-12)


@pytest.mark.parametrize("name", SM_FAMILIES)
def test_no_draw_is_faster_than_the_range_of_a_published_rate(name):
    entry = PROFILE.family(name).sm
    taken = seconds(rates_on(entry.gpu, Draws(64)), sm_operation(name))
    assert taken.shape == (1, 65)
    assert np.all(taken >= WORK / entry.rate.high * (1 - 1e-12))
    assert len(np.unique(taken)) > 32


@pytest.mark.parametrize("name", SM_FAMILIES)
def test_work_of_the_sms_scales_by_their_number_and_clock(name):
    """H20 and H200 share the die and the clock: 78 of 132 SMs."""
    # Pure SM work; what the tensor cores add is another resource.
    operation = Operation(family=name, sm_work=WORK, launches=0)
    on_h20, on_h200 = (seconds(rates_on(gpu), operation)[0, 0] for gpu in ("h20-96", "h200"))
    assert on_h20 / on_h200 == pytest.approx(132 / 78, rel=1e-12)
    slower = replace(gpu_named("h200"), name="slow", boost_hz=gpu_named("h200").boost_hz / 2)
    assert seconds(Rates(PROFILE, slower, Draws(0), gpu_named), operation)[0, 0] == pytest.approx(2 * on_h200)


@pytest.mark.parametrize("gpu", GPUS)
def test_bytes_alone_take_the_sustained_bandwidth(gpu):
    rates = rates_on(gpu)
    taken = seconds(rates, Operation(family="elementwise", hbm_bytes=1e12, launches=0))[0, 0]
    assert taken == pytest.approx(1e12 / (gpu_named(gpu).hbm_bytes_per_s * PROFILE.hbm.value))


def test_launches_add_up():
    rates = rates_on("h200")
    taken = seconds(rates, Operation(family="elementwise", launches=10))[0, 0]
    assert taken == pytest.approx(10 * PROFILE.factors["launch_s"].value)


@given(
    gpu=st.sampled_from(GPUS),
    family=st.sampled_from(PRICED),
    flops=amounts,
    hbm=amounts,
    fp8=st.sampled_from((0.0, 1.0)),
)
def test_nothing_beats_the_peaks(gpu, family, flops, hbm, fp8):
    rates = rates_on(gpu, Draws(8))
    operation = Operation(family=family, flops=flops, hbm_bytes=hbm, fp8=fp8, launches=0)
    data = gpu_named(gpu)
    peak = data.fp8_flops if fp8 else data.bf16_flops
    floor = hbm / data.hbm_bytes_per_s
    if PROFILE.family(family).tensor:
        floor = max(floor, flops / peak)
        assert rates.nominal(operation).floor_s == pytest.approx(floor)
    assert np.all(rates.seconds([operation])[0] >= floor * (1 - 1e-12))


@given(
    family=st.sampled_from(PRICED),
    flops=amounts,
    hbm=amounts,
    work=amounts,
    launches=st.integers(0, 100),
    more=st.sampled_from(("flops", "hbm_bytes", "sm_work", "launches")),
    factor=st.floats(1, 10),
)
def test_more_work_never_takes_less_time(family, flops, hbm, work, launches, more, factor):
    small = Operation(family=family, flops=flops, hbm_bytes=hbm, sm_work=work, launches=launches)
    large = replace(small, **{more: getattr(small, more) * factor})
    before, after = rates_on("h20-96", Draws(8)).seconds([small, large])
    assert np.all(after >= before * (1 - 1e-12))


@given(family=st.sampled_from(PRICED), flops=amounts, hbm=amounts, work=amounts)
def test_resources_overlap_at_best_fully_and_at_worst_not_at_all(family, flops, hbm, work):
    whole = Operation(family=family, flops=flops, hbm_bytes=hbm, sm_work=work, launches=0)
    alone = [
        Operation(family=family, flops=flops, sm_work=0.0, launches=0),
        Operation(family=family, sm_work=work, launches=0),
        Operation(family=family, sm_work=0.0, hbm_bytes=hbm, launches=0),
    ]
    together, *parts = (np.asarray(taken) for taken in rates_on("h20-96", Draws(8)).seconds([whole, *alone]))
    parts = np.broadcast_arrays(*parts)
    assert np.all(together >= np.max(parts, axis=0) * (1 - 1e-12))
    assert np.all(together <= np.sum(parts, axis=0) * (1 + 1e-12))


def test_the_binding_resource_is_the_one_that_takes_longest():
    rates = rates_on("h20-96")
    scoring = next(name for name in SM_FAMILIES if name.startswith("index_scoring"))
    operations = [
        Operation(family=scoring, flops=1e15),
        Operation(family="topk_torch", sm_work=1e12, hbm_bytes=1e12),
        Operation(family=scoring, flops=1e12, hbm_bytes=1e13),
    ]
    assert [rates.nominal(operation).resource for operation in operations] == ["tensor", "sm", "hbm"]


def test_operations_are_timed_independently_of_each_other():
    rates = rates_on("h20-96", Draws(8))
    operations = [Operation(family=name, flops=1e12, hbm_bytes=1e9) for name in PRICED]
    together = rates.seconds(operations)
    for index, operation in enumerate(operations):
        assert together[index] == pytest.approx(seconds(rates, operation), rel=1e-12)


@pytest.mark.parametrize("name", sorted(PROFILE.factors))
def test_factors_are_drawn_from_their_range(name):
    rate = PROFILE.factors[name]
    drawn = rates_on("h20-96", Draws(64)).factor(name)
    assert drawn[0, 0] == pytest.approx(rate.value)
    assert np.all((drawn >= rate.low * (1 - 1e-12)) & (drawn <= rate.high * (1 + 1e-12)))
    assert np.sum(drawn[0, 1:] <= rate.value * (1 + 1e-12)) >= 32
    assert np.sum(drawn[0, 1:] >= rate.value * (1 - 1e-12)) >= 32


def test_fp8_is_never_slower_than_bf16_where_both_are_known():
    for gpu in GPUS:
        for family in PRICED:
            narrow, wide = (Operation(family=family, flops=1e15, fp8=fp8) for fp8 in (1.0, 0.0))
            fast, slow = rates_on(gpu).seconds([narrow, wide])
            assert np.all(fast <= slow * (1 + 1e-12)), (gpu, family)


def test_what_has_no_rate_is_refused_by_name():
    with pytest.raises(UnpricedError) as refused:
        rates_on("h200").seconds([Operation(family="topk_by_hand", flops=1.0)])
    assert refused.value.field == "profile"
    assert "topk_by_hand" in str(refused.value)


def test_an_unknown_factor_is_refused_by_name():
    with pytest.raises(UnpricedError) as refused:
        rates_on("h200").factor("luck")
    assert refused.value.field == "profile"
    assert "luck" in str(refused.value)


def test_rates_do_not_carry_over_between_architectures():
    other = replace(gpu_named("h200"), name="next", architecture="blackwell")
    with pytest.raises(UnpricedError) as refused:
        Rates(PROFILE, other, Draws(0), gpu_named)
    assert refused.value.field == "profile"


def test_a_backend_without_rates_is_refused(predicted):
    with pytest.raises(UnpricedError) as refused:
        predicted("systems.megatron.backend=unfused")
    assert "backend" in refused.value.field
    assert "unfused" in str(refused.value)
    assert "tilelang" in refused.value.expected


@given(family=st.sampled_from(PRICED), flops=amounts, hbm=amounts, work=amounts)
def test_the_nominal_time_is_that_of_the_nominal_column_in_a_step(family, flops, hbm, work):
    rates = rates_on("h20-96", Draws(8))
    operation = Operation(family=family, flops=flops, hbm_bytes=hbm, sm_work=work)
    in_step = rates.factor("step_over_kernels")[0, 0]
    assert rates.nominal(operation).seconds == pytest.approx(rates.seconds([operation])[0, 0, 0] * in_step, rel=1e-9)


def test_a_sum_is_the_sum_of_its_operations_whether_linear_or_not():
    """Replay is bound by different resources in different draws, so its cost is not linear; a product's is."""
    rates = rates_on("h20-96", Draws(32))
    operations = [
        Operation(family="gemm", flops=np.array([[1e12], [3e12]]), hbm_bytes=1e9),
        Operation(family="replay_scoring", flops=1e12, hbm_bytes=1e10),
        Operation(family="elementwise", hbm_bytes=np.array([[1e9], [2e9]])),
        Operation(family="gemm", flops=1e12 * np.linspace(1, 2, 33)[None, :]),
    ]
    costs = [rates.cost(operation) for operation in operations]
    whole = rates.coefficients.evaluate([costs], (2, 33))[0]
    alone = rates.coefficients.evaluate([[cost] for cost in costs], (2, 33))
    assert whole == pytest.approx(alone.sum(axis=0), rel=1e-12)
