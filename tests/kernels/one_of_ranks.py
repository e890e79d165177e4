"""What one rank of tests/kernels/test_layers_across.py does: ``torchrun ... one_of_ranks.py NAME [ARGUMENT...]``."""

import runpy
import sys

import interpreted
import torch
import torch.distributed as dist
from hyscale_calibration.benches import device
from hyscale_calibration.collectives import Ranks
from hyscale_calibration.layers.__main__ import main
from hyscale_calibration.layers.across import check, command, gathered, measure
from hyscale_calibration.layers.across.exposure import Busy
from hyscale_calibration.layers.check import SIZES


def layers(*arguments):
    """``python -m hyscale_calibration.layers``, in a fast interpreter."""
    sys.argv[1:] = arguments
    del sys.modules[main.__module__]
    runpy.run_module(main.__module__, run_name="__main__", alter_sys=True)


def fails():
    """Rank 1 raises in the middle of a step, while the others wait for its rows."""

    def coming(self, name, own, *, hidden):
        if self.rank == 1:
            raise ValueError("no rows of mine")
        return original(self, name, own, hidden=hidden)

    original, gathered.GatheredKeys.coming = gathered.GatheredKeys.coming, coming
    sys.exit(main(["--cp", "--check-only", "--system", "hyscale"]))


def misplaced():
    """Rows stay in the order of ranks."""
    gathered.in_order = lambda rows, ranks: rows.clone()
    sys.exit(main(["--cp", "--check-only", "--system", "hyscale"]))


class Event:
    """Of a device without streams."""

    def __init__(self, enable_timing=False):
        pass

    def record(self):
        pass

    def elapsed_time(self, other):
        return 1.0


class Gpu:
    """Takes a millisecond for everything."""

    name = "cpu"

    def milliseconds(self, run, samples, warm_up=3):
        run()
        return [1.0 + dist.get_rank()]

    def clocks(self):
        return {"clock_mhz": None, "throttled": None}

    def description(self):
        return {"name": "NVIDIA H200", "sms": 132, "memory_bytes": 150109880320}

    def driver(self):
        return None


def measures(path):
    """The whole way to the file, with a GPU that is none."""
    torch.cuda.Event, torch.cuda.synchronize, torch.cuda.reset_peak_memory_stats = Event, lambda: None, lambda: None
    torch.cuda.memory_allocated = torch.cuda.max_memory_allocated = lambda: 2**20 * (1 + dist.get_rank())
    torch.cuda.nccl.version, torch.cuda.can_device_access_peer = lambda: (2, 1), lambda a, b: True
    device.Gpu, measure.WARM_UP, measure.traced = Gpu, 0, lambda bench: one_step(bench)
    sizes, rows = SIZES["dsa"], [{"model": "glm-5.1", "layer": "dsa", "sequence_length": 16, "cp": 2}] * 2
    command.across_ranks = lambda: {"rows": rows}
    opened = Ranks.open
    Ranks.open = classmethod(lambda cls, first: as_gpu(opened()))
    command.values_of = lambda kind, name: None
    check.DsaSizes.of = classmethod(lambda cls, values: sizes)
    made = command.Measuring._time_for
    # What is not to begin is told by rank 0.
    command.Measuring._time_for = lambda self, length, last: last is None and made(self, length, last)
    sys.exit(main(["--cp", "--unchecked", "--system", "hyscale", "--samples", "1", "--json", path]))


def as_gpu(ranks):
    """Of which nothing but the tensors is on the CPU."""

    class Named(str):
        def __ne__(self, other):
            return other not in ("cpu", "cuda")

    ranks.device = Named("cpu")
    return ranks


def one_step(bench):
    """A trace of two kernels and a collective beside one of them, which rank 1 waits for longer."""
    bench.step()
    late = 10 * dist.get_rank()
    names = {"scores": (0, 100), "ncclDevKernel_AllGather": (90 - late, 130), "attention": (130, 150)}
    return Busy.of([{"cat": "kernel", "name": name, "ts": a, "dur": b - a} for name, (a, b) in names.items()])


interpreted.hasten()
globals()[sys.argv[1]](*sys.argv[2:])
