"""Latency and bus bandwidth of collectives over the ranks of a torchrun job, NCCL on GPUs and Gloo elsewhere.

Bus bandwidth is what each link carries, whatever the number of ranks g, as NCCL's own tests count it. B is the whole
gathered buffer of all_gather and reduce_scatter, and what one rank holds of the others:

    all_gather, reduce_scatter, all_to_all   B (g - 1) / g over the time
    all_reduce                               2 B (g - 1) / g
    send                                     B
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyscale_calibration.alpha_beta import fit
from hyscale_calibration.profile_file import ProfileError, empty, read, with_group, write

# Bytes by plan: 4 KiB to 16 MiB, or to 1 GiB.
SIZES = {name: tuple(2**power for power in range(12, last + 1)) for name, last in (("quick", 24), ("full", 30))}
# Runs of a sample follow each other without waiting; fewer of large messages.
WARM_UP, SAMPLES, RUNS, LARGE_SAMPLES, LARGE_RUNS, LARGE = 3, 9, 10, 5, 3, 2**26
FACTORS: dict[str, Callable[[int], float]] = {
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "send": lambda ranks: 1.0,
}


def launched() -> bool:
    """Whether torchrun, or something like it, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@dataclass(slots=True)
class Ranks:
    """The process group of this job, open while it is in use.

    Attributes:
        device: where buffers are; ``ranks``, ``rank``: how many there are and which this one is.
    """

    device: str
    ranks: int
    rank: int

    @classmethod
    def open(cls, *, first: bool = False) -> Ranks:
        """Join the group of the job.

        Args:
            first: collectives on CUDA are given SMs before other kernels, which may hold all of them for long.
        """
        import torch
        import torch.distributed as dist

        gpu = torch.cuda.is_available()
        if gpu:
            # In-network multicast differs between clusters in whether it may be used; links are what is measured.
            os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True) if gpu and first else None
        dist.init_process_group("nccl" if gpu else "gloo", pg_options=options)
        return cls("cuda" if gpu else "cpu", dist.get_world_size(), dist.get_rank())

    def close(self) -> None:
        """Leave the group, when all do: one that is gone while another still sends takes that one with it."""
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()

    def first_says(self, answer: bool) -> bool:
        """What the first rank answers, told to every rank."""
        import torch
        import torch.distributed as dist

        told = torch.tensor(float(answer), device=self.device)
        dist.broadcast(told, 0)
        return bool(told)

    def library(self) -> dict[str, Any]:
        """What carries collectives: ``backend``, its ``version``, and whether in-network multicast (``nvls``) is on."""
        import torch

        if self.device != "cuda":
            return {"backend": "gloo", "version": torch.__version__, "nvls": False}
        version = ".".join(map(str, torch.cuda.nccl.version()))
        return {"backend": "nccl", "version": version, "nvls": os.environ.get("NCCL_NVLS_ENABLE") != "0"}

    def measure(self, sizes: Sequence[int]) -> dict[str, Any]:
        """A group of ``profile["collectives"]``; every rank measures, and each time is that of the slowest."""
        import torch

        rows = [self._measure(kind, size) for kind in FACTORS for size in sizes]
        return {
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "ranks": self.ranks,
            "ranks_per_node": int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks)),
            **self.library(),
            "rows": rows,
            "fits": {
                kind: fit([row for row in rows if row["kind"] == kind], factor(self.ranks))
                for kind, factor in FACTORS.items()
            },
        }

    def _measure(self, kind: str, size: int) -> dict[str, Any]:
        run, check = self._prepared(kind, size)
        run()
        if not check():
            raise RuntimeError(f"{kind} of {size} bytes over {self.ranks} ranks gives wrong results")
        samples, runs = (LARGE_SAMPLES, LARGE_RUNS) if size >= LARGE else (SAMPLES, RUNS)
        times = sorted(self._seconds(run, samples, runs))
        seconds = times[len(times) // 2]
        return {
            "kind": kind,
            "bytes": size,
            "median_s": seconds,
            "bus_bytes_per_s": size * FACTORS[kind](self.ranks) / seconds,
        }

    def _prepared(self, kind: str, size: int) -> tuple[Callable[[], None], Callable[[], bool]]:
        """What to run, and whether its last run was right."""
        import torch
        import torch.distributed as dist

        count = max(size // 4 // self.ranks, 1)
        whole = torch.zeros(count * self.ranks, device=self.device)
        part = torch.full((count,), float(self.rank + 1), device=self.device)
        total = self.ranks * (self.ranks + 1) / 2
        if kind == "all_gather":
            return (
                lambda: dist.all_gather_into_tensor(whole, part),
                lambda: float(whole[-1]) == self.ranks and float(whole[0]) == 1,
            )
        if kind == "reduce_scatter":
            given = torch.full_like(whole, float(self.rank + 1))
            return lambda: dist.reduce_scatter_tensor(part, given), lambda: float(part[0]) == total
        if kind == "all_to_all":
            given = torch.full_like(whole, float(self.rank + 1))
            return (
                lambda: dist.all_to_all_single(whole, given),
                lambda: float(whole[-1]) == self.ranks and float(whole[0]) == 1,
            )
        if kind == "all_reduce":
            # In place: sums of sums grow, and only the first is checked.
            whole.fill_(float(self.rank + 1))
            return lambda: dist.all_reduce(whole), lambda: float(whole[0]) == total
        # The first rank sends to the last, which is on another node if there are several.
        last = self.ranks - 1
        if self.rank == 0:
            whole.fill_(1.0)

        def send() -> None:
            if self.rank == 0:
                dist.send(whole, last)
            elif self.rank == last:
                dist.recv(whole, 0)

        return send, lambda: self.rank not in (0, last) or float(whole[-1]) == 1

    def _seconds(self, run: Callable[[], None], samples: int, runs: int) -> list[float]:
        import torch
        import torch.distributed as dist

        for _ in range(WARM_UP):
            run()
        self._wait()
        timed = self._recorded(run, runs)
        found = []
        for _ in range(samples):
            dist.barrier()
            self._wait()
            found.append(timed() / runs)
        slowest = torch.tensor(found, device=self.device, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return [float(each) for each in slowest]

    def _recorded(self, run: Callable[[], None], runs: int) -> Callable[[], float]:
        """Seconds of so many runs; on a GPU from a graph, as a host far ahead of its device would launch them."""
        import torch

        if self.device != "cuda":

            def by_clock() -> float:
                began = time.perf_counter()
                for _ in range(runs):
                    run()
                return time.perf_counter() - began

            return by_clock
        graph = torch.cuda.CUDAGraph()
        # Other threads of the library look at their events meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(runs):
                run()

        def by_events() -> float:
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            graph.replay()
            ended.record()
            ended.synchronize()
            return began.elapsed_time(ended) / 1e3

        by_events()
        return by_events

    def _wait(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


def measure_into(path: Path, level: str, *, resume: bool) -> dict[str, Any] | None:
    """Measure on every rank of this job; the first writes them into a profile and is given what it wrote, others None.

    Raises:
        ProfileError: this is no job of several processes; or, on the first rank alone, the file exists and ``resume``
            was not said, or it cannot be read.
    """
    if not launched():
        raise ProfileError("collectives need several processes: torchrun --nproc-per-node=N ...")
    group = Ranks.open()
    profile: dict[str, Any] | None = None
    refused: ProfileError | None = None
    if group.rank == 0:
        try:
            profile = _begun(path, resume)
        except ProfileError as error:
            refused = error
    # Nodes may have files of their own: that of the rank that writes counts, and all hear of it before they measure.
    found = group.measure(SIZES[level]) if group.first_says(refused is None) else None
    # Not after an error: leaving the group would wait for ranks that wait for this one.
    group.close()
    if refused is not None:
        raise refused
    if profile is None or found is None:
        return None
    profile["collectives"] = with_group(profile["collectives"], found)
    write(path, profile)
    return found


def _begun(path: Path, resume: bool) -> dict[str, Any]:
    if path.exists() and not resume:
        raise ProfileError(f"{path}: exists; --resume continues it, --output names another file")
    return read(path) if path.exists() else empty(path.name.removesuffix(".json"), None)


def told(group: dict[str, Any]) -> list[str]:
    """A group's fits for people, a line each."""
    lines = []
    for kind, terms in group["fits"].items():
        rate, held = f"{terms['bus_bytes_per_s'] / 1e9:.1f} GB/s", terms["held_out"]
        lines.append(
            f"{kind:15} {terms['latency_s'] * 1e6:8.1f} us  {rate:>12} over {group['ranks']} ranks; {held['n']} sizes "
            f"held out: {held['median']:.1%} median, {held['worst']:+.1%} worst"
        )
    return lines
