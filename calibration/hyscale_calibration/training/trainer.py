"""One model and its optimizer, a step at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from hyscale_calibration.layers.layer import Options
from hyscale_calibration.training import fingerprint
from hyscale_calibration.training.model import Sizes, Transformer
from hyscale_calibration.training.optimizer import MasterWeights
from hyscale_calibration.training.runs import Run
from hyscale_calibration.training.task import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train, the same for every run.

    Attributes:
        rate: of learning, reached over ``warm_up`` steps; index_coefficient: of the index loss; seed: of the weights.
    """

    rate: float = 1e-3
    warm_up: int = 20
    index_coefficient: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step left.

    Attributes:
        loss, index_loss: FP32; the latter summed over layers.
        selected: fingerprint of what each layer selected; reselected: the same of its recomputation.
        weights: fingerprint of the FP32 weights behind the step.
        time_ms: of forward, backward and update; peak_bytes: of device memory as if alone; None on the CPU.
    """

    loss: float
    index_loss: float
    selected: tuple[str, ...]
    reselected: tuple[str, ...]
    weights: str
    time_ms: float
    peak_bytes: int | None


class Trainer:
    """Trains one run.

    Args:
        run: what; sizes: of the model; tokens: of a sequence; recipe: how; device: where.
    """

    def __init__(self, run: Run, sizes: Sizes, tokens: int, recipe: Recipe, device: str) -> None:
        self.run, self.device = run, device
        self.model = Transformer(
            sizes,
            tokens,
            run.system,
            options=Options(deterministic=run.deterministic, pairs=run.pairs),
            index_coefficient=recipe.index_coefficient,
            device=device,
            seed=recipe.seed,
        )
        self.optimizer = MasterWeights(self.model.parameters(), recipe.rate, recipe.warm_up)

    def copy_from(self, other: Trainer) -> None:
        """Go on from where another is."""
        self.optimizer.copy_from(other.optimizer)

    def step(self, batch: Batch) -> tuple[Step, list[torch.Tensor]]:
        """Train on one sequence; its record, and what each layer selected, int32 ``[n, topk]`` in any order."""
        meter = _Meter(self.device)
        with deterministic(self.run.deterministic):
            loss = self.model(batch)
            loss.backward()
            self.optimizer.step()
        time_ms, used_bytes = meter.stop()
        attentions = [block.attention for block in self.model.blocks]
        selections, index_losses = zip(*(attention.last for attention in attentions), strict=True)
        seen = [[fingerprint.written(each) for each in block.seen] for block in self.model.blocks]
        for block in self.model.blocks:
            block.seen.clear()
            block.attention.last = None
        step = Step(
            loss=loss.item(),
            index_loss=torch.stack(index_losses).sum().item(),
            selected=tuple(forward for forward, _ in seen),
            reselected=tuple(recomputation for _, recomputation in seen),
            weights=fingerprint.written(fingerprint.of_weights(self.optimizer.masters)),
            time_ms=time_ms,
            peak_bytes=None if used_bytes is None else used_bytes + self.optimizer.bytes(),
        )
        return step, list(selections)


class _Meter:
    """Time and memory from its making until it is stopped."""

    def __init__(self, device: str) -> None:
        self._cuda = torch.device(device).type == "cuda"
        if not self._cuda:
            self._began = time.perf_counter()
            return
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._start.record()

    def stop(self) -> tuple[float, int | None]:
        """Milliseconds, and device memory at the peak beyond what was allocated before."""
        if not self._cuda:
            return 1e3 * (time.perf_counter() - self._began), None
        self._end.record()
        torch.cuda.synchronize()
        return self._start.elapsed_time(self._end), torch.cuda.max_memory_allocated() - self._before


@contextmanager
def deterministic(on: bool) -> Iterator[None]:
    """Torch refuses what is not deterministic; what it does not write it leaves as it is, as our kernels expect."""
    before: Any = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(on)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]
