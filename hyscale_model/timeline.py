"""When each pass of a step runs on which pipeline rank, and what a pass consists of, at the nominal point."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hyscale_model.arrays import nominal
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.layers.operation import Phase, Task, Transfer
from hyscale_model.network.collectives import Network
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.step.graph import term_of
from hyscale_model.step.orders import Kind
from hyscale_model.step.passes import stage_seconds
from hyscale_model.step.pipeline import Structure, structures
from hyscale_model.step.price import running_phases
from hyscale_model.step.schedule import STEADY_DEPTHS, Schedule, finish_times, schedule

COMPUTE = "compute"
# More passes than this are no picture any more.
LIMIT_PASSES = 1024


@dataclass(frozen=True, slots=True)
class Pass:
    """One micro-batch on one virtual stage.

    Attributes:
        rank: pipeline rank.
        chunk: which of the rank's model chunks.
        micro_batch: its number.
        kind: ``F`` forward, ``B`` recomputation and backward, ``I`` the same without weight gradients where others have
            them, ``W`` weight gradients that were put off, ``P`` a forward beside a backward of the other chunk.
        start_s: from the beginning of the step; ``end_s`` likewise.
        other: of a ``P``, the micro-batch of the backward.
    """

    rank: int
    chunk: int
    micro_batch: int
    kind: str
    start_s: float
    end_s: float
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """One task of a block on its stream, from the beginning of the block's phase.

    ``transfer`` is what it sends, None of computation; ``exposed_s`` how long computation waits for it.
    """

    block: str
    phase: Phase
    stream: str
    name: str
    term: str
    start_s: float
    end_s: float
    transfer: Transfer | None = None
    exposed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """A step of one system.

    Attributes:
        passes: of every rank in order; where a step has very many micro-batches, of the first ones.
        micro_batches: of the step.
        shown: micro-batches among ``passes``.
        ending_s: gradient exchange and optimizer, after the last pass.
        step_s: the whole step.
        blocks: the tasks of each block that runs.
        stages: how often each block runs in a pass of each virtual stage, by name.
        mirrored: chunk 1 runs against the ranks.
    """

    passes: tuple[Pass, ...]
    micro_batches: int
    shown: int
    ending_s: float
    step_s: float
    blocks: dict[str, tuple[Interval, ...]]
    stages: tuple[dict[str, int], ...]
    mirrored: bool = False


def timeline(resolved: Resolved, system: str) -> Timeline:
    """The timeline of one system.

    Args:
        resolved: the scenario.
        system: the name of one of its systems.
    """
    scenario = resolved.scenario
    evaluator = Evaluator(scenario, {}, Draws(0), profile_of(scenario))
    result = evaluator.steps([next(each for each in scenario.systems if each.name == system)])[0]
    priced = result.priced.cases[result.index]
    network = Network(result.case, result.sizes, result.priced.rates.coefficients)
    (structure,) = structures(result.case, result.sizes, (1, 1))
    forward, backward, put_off = result.step.blocks[:, :, None]
    waits = list(result.step.waits[:, : structure.counts.shape[0], None])
    staged = stage_seconds(structure, forward, backward, np.array([result.step.send]), waits)
    ahead, back = (part[:, 0] for part in staged)
    late = (structure.counts @ put_off)[:, 0]
    shown = _shown(structure)
    kind: Kind = "1f1b"
    if structure.mirrored or (structure.pp > 1 and result.case.layout.schedule == "zero_bubble"):
        kind = "dualpipe" if structure.mirrored else "zero_bubble"
    whole = back if structure.mirrored else back - late
    durations = np.concatenate([ahead, whole, late, back - late, result.step.pairs])
    passes = _scheduled(schedule(structure.pp, structure.vpp, shown, kind), durations)
    names = [block.name for block in priced.blocks]
    # Of the chunk that runs against the ranks, the stages lie the other way round.
    stages = np.concatenate([structure.counts, structure.counts[::-1]]) if structure.mirrored else structure.counts
    step_s = float(result.step.seconds[0, 0])
    ending = sum(float(result.step.term(term)[0, 0]) for term in ("optimizer", "dp_communication_exposed"))
    if shown == structure.micro_batches:
        # Stages that finish early wait for the one that finishes last.
        ending = step_s - max(each.end_s for each in passes)
    return Timeline(
        passes=passes,
        micro_batches=structure.micro_batches,
        shown=shown,
        ending_s=ending,
        step_s=step_s,
        blocks={block.name: block_intervals(result, row, network) for row, block in enumerate(priced.blocks)},
        stages=tuple({name: int(count) for name, count in zip(names, row, strict=True) if count} for row in stages),
        mirrored=structure.mirrored,
    )


def _shown(structure: Structure) -> int:
    """Micro-batches to show: all, or whole rounds of the first ones; the schedule repeats itself after a few."""
    rounds = LIMIT_PASSES // (2 * structure.pp**2 * structure.vpp)
    # DualPipe needs two rounds to fill its pipeline.
    least = 2 if structure.mirrored else 1
    return min(structure.micro_batches, max(least, min(rounds, STEADY_DEPTHS)) * structure.pp)


def _scheduled(plan: Schedule, durations: np.ndarray) -> tuple[Pass, ...]:
    """Passes in the order of their ranks, each as early as its rank and the passes it depends on allow."""
    ends = finish_times(durations[:, None], plan)[1:, 0]
    starts = ends - durations[plan.durations]
    passes = [
        Pass(rank, item[1], item[2], item[0], float(start), float(end), item[3] if len(item) == 4 else None)
        for (rank, item), start, end in zip(plan.passes, starts, ends, strict=True)
    ]
    return tuple(sorted(passes, key=lambda each: (each.rank, each.start_s)))


def block_intervals(result: Evaluation, row: int, network: Network) -> tuple[Interval, ...]:
    """The tasks of one block of an evaluated step, phase by phase, at the nominal point."""
    priced = result.priced.cases[result.index]
    block = priced.blocks[row]
    contention = nominal(result.priced.rates.factor("overlap_contention"))
    found: list[Interval] = []
    for phase, tasks in running_phases(block, priced.training):
        found += _streams(block.name, phase, tasks, result, network, contention)
    return tuple(found)


def _streams(
    block: str, phase: Phase, tasks: tuple[Task, ...], result: Evaluation, network: Network, contention: float
) -> list[Interval]:
    """The tasks of a phase as ``step.graph.walk`` times them, with their beginning and end."""
    now = 0.0
    free: dict[str, float] = {}
    running: dict[str, Interval] = {}
    found: dict[int, Interval] = {}

    def wait(name: str, now: float) -> float:
        each = running.pop(name)
        exposed = max(each.end_s - now, 0.0)
        place = next(place for place, other in found.items() if other is each)
        found[place] = replace(each, exposed_s=exposed)
        return now + exposed + contention * (each.end_s - each.start_s - exposed)

    for place, task in enumerate(tasks):
        term = term_of(task, phase)
        if not isinstance(task.work, Transfer):
            for name in task.after:
                if name in running:
                    now = wait(name, now)
            took = result.priced.rates.nominal(task.work).seconds
            found[place] = Interval(block, phase, COMPUTE, task.name, term, now, now + took)
            now += took
            continue
        group = task.work.group
        took = nominal(network.seconds(task.work))
        start = max(now, free.get(group, 0.0))
        end = start + took
        exposed = end - now if task.blocking else 0.0
        found[place] = Interval(block, phase, group, task.name, term, start, end, task.work, exposed)
        if task.blocking:
            now = end
        else:
            free[group] = end
            running[task.name] = found[place]
    for name in list(running):
        now = wait(name, now)
    return list(found.values())
