"""Time by phase and memory of one step of a layer: forward, recomputation, backward."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from hyscale_kernels.sparse_attention import query_pairs

from hyscale_calibration.benches.record import median_and_spread
from hyscale_calibration.layers.build import hidden_states, layer_of, shared_keys
from hyscale_calibration.layers.cases import Case
from hyscale_calibration.layers.layer import Options, SparseLayer
from hyscale_calibration.layers.recompute import recomputed
from hyscale_calibration.layers.systems import system_named

# Steps that are timed phase by phase, at most.
PHASE_SAMPLES = 3


class Bench:
    """A layer with its input and the gradient of its output, ready to step.

    Args:
        grad: as ``x``; None: normal.
        coefficient: of the index loss, the mean over the layer's own queries.
    """

    def __init__(
        self, layer: SparseLayer, x: torch.Tensor, grad: torch.Tensor | None = None, *, coefficient: float = 1.0
    ) -> None:
        self.layer, self.x, self.coefficient = layer, x, coefficient
        generator = torch.Generator(x.device).manual_seed(2)
        self.grad = torch.randn(x.shape, device=x.device, generator=generator).bfloat16() if grad is None else grad

    @classmethod
    def of(cls, case: Case, system: str, options: Options, device: str, sizes: Any = None) -> Bench:
        """Of a case and a system of the catalogue."""
        layer = layer_of(case, system_named(system), options, sizes=sizes, device=device)
        return cls(layer, hidden_states(case.queries, layer.input_norm.shape[0], device=device))

    def step(self) -> torch.Tensor:
        """Forward, recomputation and backward; gradients of weights add up, those of inputs are new every time."""
        self.x.grad = None
        for held in self.layer.context_parameters():
            held.grad = None
        out = recomputed(self.layer, self.x, keeps=self.layer.system.keeps, coefficient=self.coefficient)
        out.backward(self.grad)
        return out.detach()


def measured(case: Case, system: str, samples: int, device: Any) -> dict[str, Any]:
    """One row: times in milliseconds, memory, and what times depend on in the data.

    Args:
        case, system: what is measured.
        samples: steps that are timed whole.
        device: times and memory, ``benches.device.Gpu``.
    """
    bench = Bench.of(case, system, Options(), device.name)
    times = device.milliseconds(bench.step, samples, warm_up=2)
    phases = [phase_milliseconds(bench) for _ in range(min(PHASE_SAMPLES, samples))]
    peaks = phase_peaks(bench)
    assert bench.layer.last is not None
    indices, loss = bench.layer.last
    return {
        "name": "layer",
        "dtype": "bf16",
        "model": case.model,
        "layer": case.layer,
        "system": system,
        "shape": {"n": case.queries, "L": case.length, "ranks": case.ranks, "rank": case.rank},
        **median_and_spread(times),
        "phases_ms": {name: statistics.median(each[name] for each in phases) for name in phases[0]},
        "peak_bytes": max(peaks.values()),
        "phase_peak_bytes": peaks,
        "shared_keys": shared_keys(indices),
        "paired": float(query_pairs(bench.layer.attended(indices)).share),
        "index_loss": float(loss),
        **device.clocks(),
    }


def phase_milliseconds(bench: Bench) -> dict[str, float]:
    """Device time of each phase of one step, by events at its beginning; a phase that comes again adds up."""
    marks: list[tuple[str, torch.cuda.Event]] = []

    def mark(name: str) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        marks.append((name, event))

    _listening(bench, mark)
    mark("end")
    torch.cuda.synchronize()
    found: dict[str, float] = {}
    for (name, begin), (_, end) in pairwise(marks):
        found[name] = found.get(name, 0.0) + begin.elapsed_time(end)
    return found


def phase_peaks(bench: Bench) -> dict[str, int]:
    """Most bytes allocated in each phase of one step, beyond what stays allocated between steps.

    What stays: weights and their gradients, the input and the gradient of the output, and the keys of other ranks.
    """
    bench.x.grad = None
    for held in bench.layer.context_parameters():
        held.grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    found: dict[str, int] = {}
    begun: list[str] = []

    def mark(name: str) -> None:
        if begun:
            found[begun[-1]] = max(found.get(begun[-1], 0), torch.cuda.max_memory_allocated() - before)
        begun.append(name)
        torch.cuda.reset_peak_memory_stats()

    _listening(bench, mark)
    mark("end")
    return found


def _listening(bench: Bench, listener: Callable[[str], None]) -> None:
    bench.layer.phases.listener = listener
    try:
        bench.step()
    finally:
        bench.layer.phases.listener = None


def row_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for people: a row each, phases by what they are part of."""
    lines = [f"{'':44} {'total':>8} {'select':>8} {'again':>8} {'attend':>8} {'back':>8} {'loss':>8} {'peak GiB':>9}"]
    for row in rows:
        phases = row["phases_ms"]

        def part(*names: str, of: Mapping[str, float] = phases) -> float:
            return sum(of.get(name, 0.0) for name in names)

        name = f"{row['model']} {row['layer']} {row['shape']['L']} {row['system']}"
        columns = (
            row["median_ms"],
            part("forward.selection"),
            part("recompute.selection"),
            part("forward.sparse_attention", "recompute.sparse_attention"),
            part("backward.sparse_attention"),
            part("recompute.index_loss", "backward.index_loss"),
        )
        lines.append(
            f"{name:44} " + " ".join(f"{each:8.2f}" for each in columns) + f" {row['peak_bytes'] / 2**30:9.2f}"
        )
    return lines
