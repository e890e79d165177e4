"""A machine whose kernels follow a law that the test knows."""

import zlib

import numpy as np
from hyscale_calibration.fit import Samples
from hyscale_calibration.machine import Failed, Measured
from hyscale_calibration.work import work_of

from hyscale_model.rates.law import Law, Peaks, seconds

PEAKS = Peaks(tensor={"bf16": 989e12, "fp8": 1979e12}, sms=132, hz=1.98e9, hbm=4.8e12)
IDENTITY = {
    "name": "NVIDIA H200",
    "sms": 132,
    "memory_bytes": 150_109_880_320,
    "l2_bytes": 62_914_560,
    "torch": "2.11.0",
    "triton": "3.6.0",
    "cuda": "13.0",
    "driver": "580",
}
CLOCKS = {
    "values": 0.2,
    "logits": 0.6,
    "plain_logits": 0.4,
    "plain_sums": 0.4,
    "products": 0.03,
    "scores": 0.3,
    "gathered_bytes": 0.04,
    "atomics": 0.4,
    "visible_bytes": 0.5,
    "masked_bytes": 0.45,
    "rows": 3000.0,
    "selected": 2.0,
    "words": 0.5,
    "candidates": 1.0,
    "slots": 0.4,
    "picks": 100.0,
    "wide": 0.002,
    "crowded": 0.02,
    "shared_atomics": 0.2,
    "fresh_bytes": 0.02,
    "loaded_bytes": 0.1,
    "reread_bytes": 0.1,
    "searched": 1.0,
    "rounds": 40.0,
    "lines": 2.0,
    "steps": 600.0,
    "again": 5.0,
}
# A kernel that finds nothing to do.
IDLE_S = 5e-6


def law_of(work):
    """The law behind a family: the same numbers for every one, with the units it has."""
    return Law(
        tensor={"bf16": 0.7, "fp8": 0.6},
        clocks={unit: CLOCKS[unit] for unit in work.units},
        hbm=0.88,
        launch_s=3e-6,
        lag_s=2e-6,
        serial=0.15,
        sustained=0.05 if work.flops else 0.0,
    )


def true_seconds(point):
    work = work_of("hytopk.filter" if point.row == "hytopk" else point.row, point.dtype, point.shape)
    if work is None:
        return IDLE_S
    samples = Samples([work], [point.sms or 132], np.ones(1))
    return float(seconds(law_of(work), samples.workload(tuple(work.units)), PEAKS)[0])


class SimulatedMachine:
    """Times of a known law with a given scatter; points named in ``broken`` fail."""

    def __init__(self, scatter=0.02, broken=(), identity=IDENTITY):
        self.scatter, self.broken, self._identity = scatter, broken, identity
        self.measured = []

    def identity(self):
        return dict(self._identity)

    def measure(self, points):
        for point in points:
            self.measured.append(point.id)
            if point.row in self.broken:
                yield point, Failed(message="OutOfMemoryError: no 64 GiB")
                continue
            noise = np.random.default_rng(zlib.crc32(point.id.encode())).normal(0, self.scatter)
            ms = 1e3 * true_seconds(point) * np.exp(noise)
            found = {"clock_mhz": 1700, "throttled": False}
            yield point, Measured(times_ms=[ms] * 5, peak_bytes=0, found=found)
