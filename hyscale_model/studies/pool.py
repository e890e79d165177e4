"""Work on chunks side by side: here, in processes of this machine, or on any ``concurrent.futures`` executor."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from hyscale_model.studies.points import Chunk

Result = TypeVar("Result")
# Chunks that wait or run for each worker: enough to keep it busy, few enough to stay small.
AHEAD = 4
# How often processes that died are started again: a chunk that kills its worker would kill every next one.
RESTARTS = 3


def single_thread() -> None:
    """Keep the matrix library of a worker to one thread: the workers are the parallelism."""
    threadpool_limits(1)


def local_workers() -> int:
    """Processes this machine has room for."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    work: Callable[[Chunk], Result], chunks: Iterable[Chunk], executor: Executor | None, workers: int
) -> Iterator[tuple[Chunk, Result]]:
    """Each chunk with its result, in order; no more than a few chunks a worker exist at a time.

    Args:
        work: what a worker does with a chunk; the same chunk always gives the same result.
        chunks: the chunks.
        executor: where, such as that of a Dask client; None: processes of this machine.
        workers: how many; with one and no executor the caller does all itself.

    Raises:
        BrokenProcessPool: processes of this machine died again and again.
    """
    if executor is None and workers <= 1:
        for chunk in chunks:
            yield chunk, work(chunk)
        return
    with ExitStack() as stack:
        pool = _Pool(work, executor, workers, stack)
        waiting: deque[tuple[Chunk, Future[Any]]] = deque()
        for chunk in chunks:
            waiting.append((chunk, pool.submit(chunk)))
            if len(waiting) >= AHEAD * workers:
                yield pool.result(waiting)
        while waiting:
            yield pool.result(waiting)


class _Pool:
    """An executor that is made anew where processes of this machine die; finished chunks are kept."""

    def __init__(self, work: Callable[[Chunk], Any], executor: Executor | None, workers: int, stack: ExitStack) -> None:
        self._work, self._workers, self._stack = work, workers, stack
        self._local = executor is None
        self._executor = executor or self._processes()
        self._restarts = 0

    def _processes(self) -> Executor:
        return self._stack.enter_context(ProcessPoolExecutor(self._workers, initializer=single_thread))

    def submit(self, chunk: Chunk) -> Future[Any]:
        try:
            return self._executor.submit(self._work, chunk)
        except BrokenProcessPool as error:
            self._restart(error)
            return self._executor.submit(self._work, chunk)

    def result(self, waiting: deque[tuple[Chunk, Future[Any]]]) -> tuple[Chunk, Any]:
        """The result of the chunk that has waited longest."""
        while True:
            chunk, future = waiting[0]
            try:
                found = future.result()
            except BrokenProcessPool as error:
                self._restart(error)
                lost = [(each, job) for each, job in waiting if not job.done() or job.exception() is not None]
                for each, _ in lost:
                    place = next(index for index, (other, _) in enumerate(waiting) if other is each)
                    waiting[place] = each, self._executor.submit(self._work, each)
                continue
            waiting.popleft()
            return chunk, found

    def _restart(self, error: BrokenProcessPool) -> None:
        self._restarts += 1
        if not self._local or self._restarts > RESTARTS:
            raise error
        self._executor = self._processes()
