"""A forward beside the backward of another micro-batch: each exchanges tokens while the other computes.

Both passes are chains of stretches, computation and token exchange in turn: attention and router, dispatch, experts,
combine; the backward runs the same backwards, each block after what is recomputed of it. A GPU computes one stretch and
exchanges one at a time, and a stretch starts when the one before it in its chain has ended, so what the pair takes
follows from these dependencies, never less than all computation, all exchange or either chain alone. Hidden exchange
slows computation by the share of the GPU that it occupies (DeepSeek-V3 report, arXiv 2412.19437, section 3.2.1, figure
4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.layers.operation import Task, Transfer
from hyscale_model.network.collectives import Network
from hyscale_model.rates.cost import Cost
from hyscale_model.rates.roofline import Rates
from hyscale_model.step.pipeline import Structure
from hyscale_model.step.price import Priced, running_phases

COMPUTATION, EXCHANGE = 0, 1
GROUP = "ep"
# (COMPUTATION or EXCHANGE, seconds over the flat axis).
Stretch = tuple[int, np.ndarray]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Each stage's forward beside the backward of the other stage of its rank, by the former; shape (pp, flat).

    Attributes:
        seconds: of the pair; ``hidden``: of token exchange that runs beside computation.
    """

    seconds: np.ndarray
    hidden: np.ndarray


class Exchanging:
    """The stretches of the blocks that exchange tokens, of every case over the flat axis.

    Args:
        priced: the blocks; ``networks``: of each case.
        shape: (points, draws) of the batch.
    """

    def __init__(self, priced: Priced, networks: Sequence[Network], shape: tuple[int, int]) -> None:
        cases, rates, columns = priced.cases, priced.rates, shape[0] * shape[1]
        self.forward: dict[int, list[Stretch]] = {}
        self.backward: dict[int, list[Stretch]] = {}
        for row in range(len(cases[0].blocks)):
            ahead: list[list[list[Cost]]] = []
            back: list[list[list[Cost]]] = []
            for case, network in zip(cases, networks, strict=True):
                phases = {
                    phase: _cut(tasks, network, rates)
                    for phase, tasks in running_phases(case.blocks[row], case.training)
                }
                ahead.append(phases["forward"])
                # Tasks of a backward are listed as those of a forward and run the other way round.
                again, reverse = phases.get("recompute", []), phases.get("backward", [])[::-1]
                back.append(
                    [*again[:-1], again[-1] + reverse[0], *reverse[1:]] if again and reverse else again or reverse
                )
            if all(len(cut) < 2 for cut in ahead):
                continue
            for table, cuts in ((self.forward, ahead), (self.backward, back)):
                # Systems that recompute other modules have other stretches; what one lacks takes no time.
                width = max(len(cut) for cut in cuts)
                costs = [cut[place] if place < len(cut) else [] for place in range(width) for cut in cuts]
                seconds = rates.coefficients.evaluate(costs, shape).reshape(width, len(cases) * columns)
                table[row] = [(place % 2, part) for place, part in enumerate(seconds)]


def _cut(tasks: Sequence[Task], network: Network, rates: Rates) -> list[list[Cost]]:
    """Costs of computation and exchange in turn, computation first and last."""
    found: list[list[Cost]] = [[]]
    for task in tasks:
        if not isinstance(task.work, Transfer):
            found[-1].append(rates.cost(task.work))
        elif task.work.group == GROUP:
            found += [[network.cost(task.work)], []]
        elif task.blocking:
            # What runs beside computation anyway is no stretch of the chain.
            found[-1].append(network.cost(task.work))
    return found


def paired(
    group: Structure,
    forward: np.ndarray,
    backward: np.ndarray,
    exchanging: Exchanging,
    contention: np.ndarray,
    at: slice | np.ndarray,
) -> Pairs:
    """Time the pairs of every stage.

    Args:
        group: the stages.
        forward: seconds of each block's forward, exchange exposed, shape (blocks, n); ``backward`` likewise.
        exchanging: stretches of the blocks that exchange tokens.
        contention: computation lost per second of hidden exchange, shape (n,).
        at: the columns of the group on the flat axis.
    """
    counts = group.counts
    known: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    rows = []
    for stage in range(group.pp):
        mine, other = counts[stage], counts[group.pp - 1 - stage]
        key = mine.tobytes() + other.tobytes()
        if key not in known:
            chains = (
                chain(mine, forward, exchanging.forward, at),
                chain(other, backward, exchanging.backward, at, backward=True),
            )
            known[key] = beside(*chains, contention)
        rows.append(known[key])
    return Pairs(np.stack([seconds for seconds, _ in rows]), np.stack([hidden for _, hidden in rows]))


def chain(
    counts: np.ndarray,
    seconds: np.ndarray,
    exchanging: dict[int, list[Stretch]],
    at: slice | np.ndarray,
    backward: bool = False,
) -> list[Stretch]:
    """The stretches of a pass: its blocks in turns, as layers hold them, each a stretch or several."""
    # The last two of ``block_names`` are the embedding and the output head.
    inner, (embedding, head) = counts[:-2].astype(int), (counts.size - 2, counts.size - 1)
    order = [embedding] * int(counts[embedding])
    order += [row for turn in range(inner.max(initial=0)) for row in np.flatnonzero(inner > turn).tolist()]
    order += [head] * int(counts[head])
    found: list[Stretch] = []
    for row in reversed(order) if backward else order:
        if row in exchanging:
            found += [(kind, part[at]) for kind, part in exchanging[row]]
        else:
            found.append((COMPUTATION, seconds[row]))
    return found


def beside(ahead: Sequence[Stretch], back: Sequence[Stretch], contention: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of two chains side by side, and of exchange that runs beside computation.

    What can start first at the nominal point (the first column) does; every column keeps that order.
    """
    chains, position = (ahead, back), [0, 0]
    ready = [np.zeros_like(contention), np.zeros_like(contention)]
    free = [np.zeros_like(contention), np.zeros_like(contention)]
    total = [np.zeros_like(contention), np.zeros_like(contention)]
    while any(place < len(chain) for place, chain in zip(position, chains, strict=True)):
        starts = {
            which: np.maximum(ready[which], free[chains[which][position[which]][0]])
            for which in (0, 1)
            if position[which] < len(chains[which])
        }
        # Of two that could start at once, the one with more left to do.
        which = min(starts, key=lambda each: (float(starts[each][0]), position[each] - len(chains[each])))
        kind, seconds = chains[which][position[which]]
        ready[which] = free[kind] = starts[which] + seconds
        total[kind] = total[kind] + seconds
        position[which] += 1
    ended = np.maximum(*ready)
    hidden = np.maximum(total[COMPUTATION] + total[EXCHANGE] - ended, 0.0)
    return ended + contention * hidden, hidden
