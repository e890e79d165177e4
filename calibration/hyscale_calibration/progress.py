"""Progress of a calibration: a bar with the time left where Rich and a terminal are there, else a line a point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from hyscale_calibration.machine import Failed
from hyscale_calibration.session import Step


def line(step: Step) -> str:
    """One point's result for people."""
    if isinstance(step.result, Failed):
        told = f"FAILED {step.result.message}"
    else:
        ordered = sorted(step.result.times_ms)
        told = f"{ordered[len(ordered) // 2]:.4g} ms"
    return f"[{step.done}/{step.total}, {left(step.left_s)} left] {step.point.id}: {told}"


def left(seconds: float) -> str:
    """``2:05``."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes}:{rest:02d}"


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[Callable[[Step], None]]:
    """Something to tell each step to, on stderr unless told otherwise."""
    stream = stream or sys.stderr
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        yield lambda step: print(line(step), file=stream, flush=True)
        return
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        yield lambda step: print(line(step), file=stream, flush=True)
        return
    columns = (BarColumn(), TextColumn("{task.completed}/{task.total}  {task.fields[left]} left  {task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None, left="?")

        def say(step: Step) -> None:
            if isinstance(step.result, Failed):
                console.print(f"failed: {step.point.id}: {step.result.message}")
            told = f"{step.point.row} {step.point.dtype}"
            progress.update(task, completed=step.done, total=step.total, left=left(step.left_s), description=told)

        yield say
