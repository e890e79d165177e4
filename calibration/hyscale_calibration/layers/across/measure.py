"""One layer over the ranks of a process group: steps, phases, collectives shown and hidden, contention, memory.

Times are those of the slowest rank, phases and communication means over ranks, memory the most of any rank. Every rank
calls the same functions in the same order.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from hyscale_calibration.benches.record import median_and_spread
from hyscale_calibration.layers.across.check import Shared, equal_rows, in_one_process, worst_over_ranks
from hyscale_calibration.layers.across.exposure import Busy, communication
from hyscale_calibration.layers.across.gathered import GatheredKeys
from hyscale_calibration.layers.build import shared_keys
from hyscale_calibration.layers.measure import Bench, phase_milliseconds, phase_peaks
from hyscale_calibration.layers.selection import select

WARM_UP = 2
# Gathers beside a selection take this share of its time, so that all of them end before it does.
BESIDE = 0.7
# Clocks that a launch may take on the host, several times over: the device waits until all are queued.
LAUNCH = 200_000


def measured(shared: Shared, samples: int, gpu: Any) -> dict[str, Any]:
    """What was found of a layer, a row without its name.

    Args:
        samples: steps that are timed whole.
        gpu: times, ``benches.device.Gpu``.
    """
    context = GatheredKeys(shared.length, device=shared.device)
    bench = Bench(shared.layer(context), shared.states(context.positions))
    for _ in range(WARM_UP):
        bench.step()
    times = []
    for _ in range(samples):
        dist.barrier()
        times += gpu.milliseconds(bench.step, 1, warm_up=0)
    dist.barrier()
    phases = everywhere(phase_milliseconds(bench))
    dist.barrier()
    peaks = phase_peaks(bench)
    assert bench.layer.last is not None
    indices, loss = bench.layer.last
    indices = indices.clone()
    found = {
        **median_and_spread(_slowest(times, shared.device)),
        "phases_ms": {name: statistics.mean(each[name] for each in phases) for name in phases[0]},
        "peak_bytes": max(max(each.values()) for each in everywhere(peaks)),
        "communication": communication(everywhere(traced(bench))),
        "contention": contention(bench, gpu),
        "shared_keys": statistics.mean(everywhere(shared_keys(indices))),
        "index_loss": statistics.mean(everywhere(float(loss))),
        "clocks": everywhere(gpu.clocks()),
    }
    del bench
    _free()
    alike = worst_over_ranks(equal_rows(indices, in_one_process(shared, context)[0]), shared.device)
    return {**found, "selected_as_one_process": alike}


def everywhere(value: Any) -> list[Any]:
    """What each rank has, in their order."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def traced(bench: Bench) -> Busy:
    """When the GPU of this rank was at work in one step, by the profiler."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        # Inside, for profilers take long to start, and not equally long. What is before its end does not count.
        dist.barrier()
        _synchronize()
        bench.step()
        _synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        found = json.loads(path.read_text(encoding="utf-8"))
    return Busy.of(found["traceEvents"])


def contention(bench: Bench, gpu: Any) -> dict[str, Any] | None:
    """What a selection loses while gathers of latents run beside it all the time; None without a GPU.

    One gather is short beside a selection, so as many run as fit into most of its time, on a stream of their own, and
    the selection begins with the first of them. What it takes longer, over the time of the gathers, is the share of the
    GPU that they take away.
    """
    if bench.x.device.type != "cuda":
        return None
    layer, context = bench.layer, bench.layer.context
    assert isinstance(context, GatheredKeys)
    with torch.no_grad():
        arriving, scored = layer.project(bench.x)
        keys = arriving().keys
        own = keys[: len(keys) // context.ranks].clone()
        whole, spans, topk = torch.empty_like(keys), layer.spans, layer.index.topk
        del keys, arriving

        def selecting() -> None:
            select(layer.system, *scored, spans, topk, name="contention", deterministic=False)

        def gathering() -> None:
            dist.all_gather_into_tensor(whole, own)

        dist.barrier()
        alone = statistics.median(_slowest(gpu.milliseconds(selecting, 3, warm_up=1), "cuda"))
        one = statistics.median(_slowest(gpu.milliseconds(gathering, 5, warm_up=2), "cuda"))
        count = max(int(BESIDE * alone / one), 1)
        found = [_beside(selecting, gathering, count) for _ in range(3)]
    selected = statistics.median(_slowest([each[0] for each in found], "cuda"))
    gathered = statistics.median(_slowest([each[1] for each in found], "cuda"))
    return {
        "selection_alone_ms": alone,
        "selection_beside_ms": selected,
        "gathers": count,
        "gather_alone_ms": one,
        "gather_beside_ms": gathered / count,
        "lost_per_s": (selected - alone) / min(gathered, selected),
    }


def _beside(selecting: Callable[[], None], gathering: Callable[[], None], count: int) -> tuple[float, float]:
    """Milliseconds of a selection and of gathers that begin with it."""
    # Before other kernels, as the group's own stream is.
    main, side = torch.cuda.current_stream(), torch.cuda.Stream(priority=-1)
    start, selected, begun, gathered = (torch.cuda.Event(enable_timing=True) for _ in range(4))
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(count * LAUNCH)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        begun.record()
        for _ in range(count):
            gathering()
        gathered.record()
    start.record()
    selecting()
    selected.record()
    main.wait_stream(side)
    torch.cuda.synchronize()
    return start.elapsed_time(selected), begun.elapsed_time(gathered)


def _slowest(times: list[float], device: str) -> list[float]:
    slowest = torch.tensor(times, device=device, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return [float(each) for each in slowest]


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _free() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def named(shared: Shared, model: str, ranks: int) -> dict[str, Any]:
    """What a row is of."""
    return {
        "model": model,
        "layer": "dsa",
        "system": shared.system.name,
        "cp_overlap": shared.system.cp_overlap,
        "shape": {"n": shared.length // ranks, "L": shared.length, "ranks": ranks},
    }
