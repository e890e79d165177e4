"""Trains runs in turn, a step of each before the next step of any, so that they can be compared at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from hyscale_kernels.sparse_attention import query_pairs

from hyscale_calibration.training.compare import PAIRS
from hyscale_calibration.training.record import Record
from hyscale_calibration.training.sets import differing, in_common
from hyscale_calibration.training.task import Recall
from hyscale_calibration.training.trainer import Step, Trainer

# Steps between writes of the record, and between comparisons of selections key by key.
WRITE_EVERY, SETS_EVERY = 10, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """So many ``steps`` on documents of so many tokens."""

    steps: int
    document: int


def documents(stages: Sequence[Stage], steps: int) -> Iterator[int]:
    """The length of the documents of each step; the last stage goes on."""
    lengths = [stage.document for stage in stages for _ in range(stage.steps)]
    yield from (lengths[min(step, len(lengths) - 1)] for step in range(steps))


def train(
    trainers: Sequence[Trainer],
    task: Recall,
    stages: Sequence[Stage],
    steps: int,
    record: Record,
    path: Path,
    *,
    atomic_steps: int,
    say: Callable[[int, dict[str, Step]], None],
    stopped: Callable[[], bool],
) -> int:
    """Train until ``steps`` or until ``stopped``; the number of steps made.

    Runs that are not deterministic begin with the last stage, where the first deterministic one then is; without any,
    from the beginning.

    Args:
        atomic_steps: of the last stage, after which runs that are not deterministic end.
        say: is told each step.
        stopped: is asked before each step.
    """
    last_stage = sum(stage.steps for stage in stages[:-1])
    origin = next((trainer for trainer in trainers if trainer.run.deterministic), None)
    # First step of each run, and the one behind its last.
    spans = {
        trainer.run.name: (0, steps)
        if trainer.run.deterministic
        else (0 if origin is None else last_stage, last_stage + atomic_steps)
        for trainer in trainers
    }
    for trainer in trainers:
        run = trainer.run
        first, _ = spans[run.name]
        record.begin(run.name, system=run.system.name, deterministic=run.deterministic, first_step=first)
    done = 0
    for step, document in enumerate(documents(stages, steps)):
        if stopped():
            break
        told: dict[str, Step] = {}
        selections: dict[str, list[torch.Tensor]] = {}
        batch = task.batch(step, document).to(trainers[0].device)
        going = [each for each in trainers if spans[each.run.name][0] <= step < spans[each.run.name][1]]
        for trainer in going:
            if origin is not None and trainer is not origin and step == spans[trainer.run.name][0] > 0:
                trainer.copy_from(origin)
        for trainer in going:
            name = trainer.run.name
            told[name], found = trainer.step(batch)
            record.add(name, told[name])
            if step % SETS_EVERY == 0:
                selections[name] = found
        for name, found in list(selections.items())[:1]:
            record.add_selection(
                step,
                name,
                answered=[float(batch.answered(each)) for each in found],
                shared_keys=[float(in_common(each)) for each in found],
                paired=[float(query_pairs(each).share) for each in found],
            )
        for a, b in PAIRS:
            if a in selections and b in selections:
                queries, keys = zip(*map(differing, selections[a], selections[b]), strict=True)
                record.add_sets(step, (a, b), queries, keys)
        say(step, told)
        done = step + 1
        if done % WRITE_EVERY == 0:
            record.write(path)
    record.write(path)
    return done
