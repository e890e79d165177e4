"""Studies that take seconds, in the background: a page asks how far one is, and one that nobody asks about ends.

Chunks of large studies are evaluated by processes of low priority, so that other readers are not kept waiting. A page
asks again and again with the same question; the answer is either the study or how much of it is done.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.studies.points import Chunk, Rows, evaluate, here
from hyscale_model.studies.pool import in_order, local_workers, single_thread
from hyscale_model.views.page import Progress, Work

# Results that are remembered, and studies that may be at work or wait at once.
REMEMBERED, MOST_WAITING = 64, 16
# A request waits this long for a study that another one began, before it says how far it is.
PATIENCE_S = 0.4
# A study that nobody asked about for so long ends.
LEASE_S = 5.0
# Values (points times columns of draws) that are evaluated faster here than sent away, and structures likewise.
FEW_VALUES, FEW_CHUNKS = 30_000, 12
# More layouts than this are a matter of the command line.
MOST_POINTS = 3_000_000
_NICENESS = 10


class Abandoned(Exception):
    """Nobody waits for the study any longer."""


class _Long(Exception):
    """The study is for processes of its own."""


@dataclass(slots=True)
class Job:
    """A study: what is done of it, and whether anybody waits.

    Attributes:
        name: what a page calls it.
        done: share of its points.
        asked_at: when somebody last asked, on the monotonic clock.
        cancelled: whether it has to end.
        settled: set when it is finished, or known to take longer than anybody should wait.
        finished: whether ``result`` or ``error`` is there, or it was cancelled.
    """

    name: str
    done: float = 0.0
    asked_at: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    settled: threading.Event = field(default_factory=threading.Event)
    finished: bool = False
    result: Mapping[str, Any] | None = None
    error: Exception | None = None

    def live(self) -> None:
        """Raises Abandoned where nobody waits."""
        if self.cancelled or time.monotonic() - self.asked_at > LEASE_S:
            raise Abandoned


class Jobs:
    """The studies of a server."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        # One at a time: the next one would only take its processes away.
        self._turn = threading.Lock()
        self._executor: Executor | None = None

    def ask(self, question: Any, name: str, work: Work, *, later: bool = False) -> Mapping[str, Any] | Progress:
        """The result of a study, or how far it is.

        Args:
            question: what is studied; with ``name`` it stands for the study.
            name: which study of it.
            work: does it.
            later: begins it beside the request, however small it is.

        Raises:
            InputError: the study cannot be made, or too many others wait.
        """
        key = hashlib.sha256(repr((question, name)).encode()).hexdigest()[:32]
        with self._lock:
            job = self._jobs.get(key)
            begun = job is None or job.cancelled
            if job is None or job.cancelled:
                if sum(not each.finished for each in self._jobs.values()) >= MOST_WAITING:
                    raise InputError("too many studies are at work here", expected="the same question in a minute")
                job = self._jobs[key] = Job(key)
            job.asked_at = time.monotonic()
            self._jobs.move_to_end(key)
        if begun and later:
            self._do_later(job, work)
        elif begun:
            self._do(job, work, _at_once)
        job.settled.wait(PATIENCE_S)
        if job.error is not None:
            raise job.error
        return Progress(key, job.done) if job.result is None else job.result

    def progress(self, key: str) -> float | None:
        """The share of a study that is done, 1 when it is finished; None where there is none of that name."""
        job = self.job(key)
        if job is None or job.cancelled:
            return None
        job.asked_at = time.monotonic()
        return 1.0 if job.finished else min(job.done, 0.99)

    def cancel(self, key: str) -> None:
        """End a study; asked for again, it begins anew."""
        job = self.job(key)
        if job is not None and not job.finished:
            job.cancelled = True

    def job(self, key: str) -> Job | None:
        """A study by its name."""
        with self._lock:
            return self._jobs.get(key)

    def close(self) -> None:
        """End every study and its processes."""
        with self._lock:
            for job in self._jobs.values():
                job.cancelled = True
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _do(self, job: Job, work: Work, run: Callable[[Job, Iterable[Chunk]], Iterator[tuple[Chunk, Rows]]]) -> None:
        try:
            job.result = work(partial(run, job))
        except _Long:
            # From the beginning: what was done so far is next to nothing.
            self._do_later(job, work)
            return
        except Abandoned:
            job.cancelled = True
        except Exception as error:
            job.error = error
        job.finished = True
        job.settled.set()
        self._forget()

    def _do_later(self, job: Job, work: Work) -> None:
        threading.Thread(target=self._do, args=(job, work, self._in_processes), daemon=True).start()
        job.settled.set()

    def _forget(self) -> None:
        with self._lock:
            for key in [key for key, job in self._jobs.items() if job.cancelled and job.finished]:
                del self._jobs[key]
            while len(self._jobs) > REMEMBERED:
                oldest = next((key for key, job in self._jobs.items() if job.finished), None)
                if oldest is None:
                    return
                del self._jobs[oldest]

    def _in_processes(self, job: Job, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Rows]]:
        whole = list(chunks)
        total = sum(chunk.points for chunk in whole)
        while not self._turn.acquire(timeout=0.2):
            job.live()
        try:
            found = 0
            for chunk, rows in in_order(evaluate, whole, self._processes(), local_workers()):
                job.live()
                found += chunk.points
                job.done = found / total
                yield chunk, rows
        except BrokenProcessPool:
            self._executor = None
            raise
        finally:
            self._turn.release()

    def _processes(self) -> Executor:
        if self._executor is None:
            # A fork of a process with threads may wait for a lock that no thread holds any more.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(local_workers(), context, initializer=_modest)
        return self._executor


def _at_once(job: Job, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Rows]]:
    """Evaluate a few chunks here; raises ``_Long`` for more of them, InputError for far too many."""
    whole = list(chunks)
    layouts = sum(chunk.points * len(chunk.systems) for chunk in whole)
    if layouts > MOST_POINTS:
        problem = f"{layouts:,} layouts are too many to search here"
        raise InputError(problem, expected=f"at most {MOST_POINTS:,}; hyscale search takes more")
    if len(whole) > FEW_CHUNKS or sum(chunk.points * (chunk.draws + 1) for chunk in whole) > FEW_VALUES:
        raise _Long
    yield from here(whole)


def _modest() -> None:
    """What a process of studies is: of one thread and of low priority."""
    single_thread()
    nice: Callable[[int], int] | None = getattr(os, "nice", None)
    if nice is not None:
        nice(_NICENESS)
