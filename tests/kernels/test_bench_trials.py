"""The benchmarks check and run what they say, at shapes a CPU is done with at once."""

import pytest
import torch
from hyscale_calibration.benches import registry
from hyscale_calibration.benches.operation import CannotRun, Skipped

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

OPERATIONS = [registry.load(name) for name in registry.NAMES]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_every_kind_of_row_checks_and_runs(operation, device):
    for dtype in operation.dtypes:
        seen = set()
        for measurement in operation.measure({**operation.cases[0].shape, **operation.trial}, dtype, device):
            # Tiles and the like differ in speed alone.
            if isinstance(measurement, Skipped) or measurement.name in seen:
                continue
            seen.add(measurement.name)
            try:
                measurement.check()
            except CannotRun:
                continue
            measurement.run()
        assert seen
    if device == "cuda":
        torch.cuda.synchronize()


@pytest.mark.gpu
def test_the_device_counts_the_result_and_what_is_needed_on_the_way(gpu):
    from hyscale_calibration.benches.device import Gpu

    held = torch.zeros(2**20, device="cuda")
    assert Gpu().peak_bytes(lambda: held.zero_()) == 0
    assert Gpu().peak_bytes(lambda: held + 1) == 2**22
    assert Gpu().peak_bytes(lambda: (held + 1) + 2) == 2**23
    assert all(time > 0 for time in Gpu().milliseconds(lambda: held.zero_(), samples=3))
    assert Gpu().description()["sms"] > 0
