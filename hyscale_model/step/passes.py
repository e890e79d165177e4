"""How long the passes of a pipeline take together: sends between stages, weight gradients that can be put off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from hyscale_model.families import anatomy
from hyscale_model.layers.operation import Operation, Task, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.rates.cost import Cost
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.orders import pair_counts
from hyscale_model.step.pairs import Pairs
from hyscale_model.step.pipeline import Structure
from hyscale_model.step.price import Priced
from hyscale_model.step.schedule import dual_seconds, step_seconds


def stage_send(case: Scenario, sizes: Sizes) -> Transfer:
    """What a stage sends of a micro-batch: its residual streams, BF16."""
    return Transfer(
        kind="send",
        group="pp",
        payload_bytes=sizes.queries * anatomy(case.model).streams * anatomy(case.model).hidden * BF16_BYTES,
    )


def sends_of_ranks(group: Structure) -> np.ndarray:
    """Activations and gradients each rank sends in a step: every virtual boundary once forward, once backward."""
    virtual = np.full(group.pp * group.vpp, 2.0 if group.pp > 1 else 0.0)
    if group.pp > 1:
        virtual[[0, -1]] -= 1
    if group.mirrored:
        return group.passes * (virtual + virtual[::-1])
    return group.passes * virtual.reshape(group.vpp, group.pp).sum(axis=0)


def stage_sends(group: Structure) -> np.ndarray:
    """1 where a virtual stage's forward, and where its backward, ends with a send, shape (virtual stages, 2)."""
    crosses = np.ones((group.pp * group.vpp, 2)) * (group.pp > 1)
    crosses[-1, 0] = crosses[0, 1] = 0
    return crosses


def stage_seconds(
    group: Structure, forward: np.ndarray, backward: np.ndarray, send: np.ndarray, waits: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each virtual stage's passes: blocks, waits for the host, and sends, which block their sender."""
    crosses = stage_sends(group)
    ahead = group.counts @ forward + waits[0] + crosses[:, :1] * send
    return ahead, group.counts @ backward + waits[1] + crosses[:, 1:] * send


def waits_of_ranks(group: Structure, waits: Sequence[np.ndarray]) -> np.ndarray:
    """Seconds that each rank waits for the host in a step, shape (pp, n)."""
    each = waits[0] + waits[1]
    if group.mirrored:
        return group.passes * (each + each[::-1])
    total: np.ndarray = group.passes * each.reshape(group.vpp, group.pp, -1).sum(axis=0)
    return total


def makespan(group: Structure, ahead: np.ndarray, back: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Makespan and critical rank, by the seconds of each virtual stage's passes."""
    busy = (ahead + back).reshape(group.vpp, group.pp, -1).sum(axis=0)
    return step_seconds(ahead, back, group.pp, group.vpp, group.micro_batches), busy.argmax(axis=0)


def pair_seconds(group: Structure, pairs: Pairs, send: np.ndarray) -> np.ndarray:
    """Seconds of each stage's forward beside the other backward of its rank, with the sends of both."""
    crosses = stage_sends(group)
    seconds: np.ndarray = pairs.seconds + (crosses[:, :1] + crosses[::-1, 1:]) * send
    return seconds


@dataclass(frozen=True, slots=True)
class Dual:
    """A step under DualPipe.

    Attributes:
        seconds: makespan, shape (n,); ``stage``: critical rank.
        saved: of every rank, what pairs take less than their passes alone; ``hidden``: token exchange that they hide;
            ``waits``: for the host; shape (pp, n).
        together: seconds of the pair with each stage's forward, shape (pp, n).
    """

    seconds: np.ndarray
    stage: np.ndarray
    saved: np.ndarray
    hidden: np.ndarray
    waits: np.ndarray
    together: np.ndarray


def dual_makespan(
    group: Structure,
    passes: tuple[np.ndarray, np.ndarray],
    waits: tuple[np.ndarray, np.ndarray],
    deferred: np.ndarray,
    pairs: Pairs,
    device: np.ndarray,
    host: np.ndarray,
) -> Dual:
    """Time a step under DualPipe.

    Args:
        group: its stages.
        passes: seconds of each stage's forward and of its other phases; ``waits``: of those, for the host.
        deferred: seconds of what each block can put off.
        pairs: of forwards and backwards; ``device``: their seconds with sends, ``host``: what issuing them takes.
    """
    ahead, back = passes
    together = np.maximum(device, host)
    counts = np.array([pair_counts(rank, group.pp, group.micro_batches) for rank in range(group.pp)])
    # The stage nearer to the beginning of the model of each rank, and the other.
    near = np.minimum(np.arange(group.pp), np.arange(group.pp)[::-1])
    far = group.pp - 1 - near

    def of_pairs(part: np.ndarray) -> np.ndarray:
        total: np.ndarray = counts[:, :1] * part[near] + counts[:, 1:] * part[far]
        return total

    waited = waits[0] + waits[1][::-1]
    saved, hidden = of_pairs(ahead + back[::-1] - waited - device), of_pairs(pairs.hidden)
    waiting = waits_of_ranks(group, waits) - of_pairs(waited - (together - device))
    busy = group.passes * (ahead + ahead[::-1] + back + back[::-1]) - of_pairs(ahead + back[::-1] - together)
    seconds = dual_seconds(ahead, back, group.counts @ deferred, together, group.micro_batches)
    return Dual(seconds, busy.argmax(axis=0), saved, hidden, waiting, together)


def weight_gradients(priced: Priced, rates: Rates, shape: tuple[int, int]) -> np.ndarray:
    """Seconds of the weight gradients of every block, half of each pair of products, shape (blocks, flat)."""
    costs = [
        [_half(rates.cost(cast(Operation, task.work))) for task in block.backward if _is_product(task)]
        for case in priced.cases
        for block in case.blocks
    ]
    seconds = rates.coefficients.evaluate(costs, shape)
    by_case = seconds.reshape(len(priced.cases), -1, *shape).swapaxes(0, 1)
    return by_case.reshape(by_case.shape[0], -1)


def _is_product(task: Task) -> bool:
    """Whether a task of a backward pass is a pair of products; what waits for the slowest rank is none."""
    work = task.work
    return isinstance(work, Operation) and work.family in ("gemm", "grouped_gemm") and task.term != "waiting"


def _half(cost: Cost) -> Cost:
    return Cost({key: work / 2 for key, work in cost.linear.items()}, cost.rest / 2)


def zero_bubble_makespan(group: Structure, ahead: np.ndarray, back: np.ndarray, deferred: np.ndarray) -> np.ndarray:
    """Makespan where weight gradients, part of the backward, are put off."""
    return step_seconds(ahead, back, group.pp, group.vpp, group.micro_batches, group.counts @ deferred)
