"""The machine that measures points, on a processor: every row of the plans exists, is checked and timed."""

from dataclasses import replace

import pytest
from hyscale_calibration.benches import registry
from hyscale_calibration.gpu import GpuMachine
from hyscale_calibration.machine import Failed, Measured
from hyscale_calibration.plan import SWEEPS
from hyscale_calibration.work import work_of

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

# HyTopK filters from a few thousand keys on; fewer are scored.
LONG = {"n": 1, "L": 12_400, "k": 500}


class Processor:
    """Runs everything once, and says that it took a millisecond."""

    name = "cpu"

    def description(self):
        return {"name": "a processor", "sms": 1, "memory_bytes": 2**30}

    def driver(self):
        return None

    def milliseconds(self, run, samples, warm_up=3):
        run()
        return [1.0] * samples

    def peak_bytes(self, run):
        return 0

    def clocks(self):
        return {"clock_mhz": None, "throttled": None}


@pytest.fixture
def machine():
    return GpuMachine(Processor(), lambda: None, lambda: None)


def small(sweep):
    """Points of a sweep's first case at a shape that a processor is done with."""
    shape = {**sweep.shapes[0], **registry.load(sweep.operation).trial}
    if sweep.operation == "selection_phases":
        shape |= LONG
    (_, points), *_ = replace(sweep, shapes=(shape,), sms=0).cases()
    return points


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda each: f"{each.operation}-{each.dtypes[0]}-{each.sms}")
def test_every_row_of_a_sweep_is_measured(machine, sweep):
    if sweep.sms or (sweep.operation, sweep.dtypes) == ("grouped_gemm", ("fp8",)):
        pytest.skip("only a GPU has this")
    points = small(sweep)
    results = dict(machine.measure(points))
    assert list(results) == list(points)
    for point, result in results.items():
        assert isinstance(result, Measured), result
        assert point.row == "hytopk" or work_of(point.row, point.dtype, point.shape) is not None


def test_parts_of_the_sms_that_are_not_there_fail_with_a_reason(machine):
    (point, *_) = small(SWEEPS[0])
    ((_, result),) = machine.measure([replace(point, sms=80)])
    assert isinstance(result, Failed)
    assert "partition" in result.message


def test_a_row_that_the_benchmark_lacks_fails_and_leaves_the_others(machine):
    points = small(SWEEPS[0])
    results = dict(machine.measure([replace(points[0], row="nothing"), *points]))
    assert [type(each) for each in results.values()] == [Measured, Failed]
