"""The kernels of a trace, the operations that launched them, and where its steps begin.

A kernel is found by its category. What launched it is known by its correlation: the operations of PyTorch and the
annotations that enclose the launch, on the thread that made it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hyscale_model.errors import InputError
from hyscale_model.traces.stream import Event, read_events

# Categories of kineto (libkineto/src/ActivityType.cpp) and, capitalised, of its first versions.
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
OPERATIONS = frozenset({"cpu_op", "user_annotation", "operator"})
FORMER = {"memcpy": "gpu_memcpy", "memset": "gpu_memset", "runtime": "cuda_runtime"}
STEP = re.compile(r"ProfilerStep#\d+")
# Keys of a collective's arguments (libkineto/src/output_json.cpp).
GROUP, GROUP_SIZE = "Process Group Description", "Group size"
RECORD = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Kernel:
    """What kernels of one kind share.

    Attributes:
        name, category: as the trace says.
        group: description of the process group of a collective, and its number of ranks; empty and 0 elsewhere.
        ranks: see ``group``.
        within: operations and annotations that enclose the launch, the innermost last; None: not known.
    """

    name: str
    category: str
    group: str = ""
    ranks: int = 0
    within: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What one GPU did.

    Attributes:
        kernels: kinds of kernels.
        kind: index into ``kernels`` of each kernel that ran; ``start_s`` and ``end_s`` when.
        steps: begin and end of each step in seconds, ``[steps, 2]``; of the whole trace where no step is marked.
        marked: whether steps are marked (``ProfilerStep#``).
        device: the GPU, as the driver calls it; None: not said.
        ranks: processes of the run; None: not said.
    """

    kernels: tuple[Kernel, ...]
    kind: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    steps: np.ndarray
    marked: bool
    device: str | None
    ranks: int | None


def read_trace(path: Path) -> Trace:
    """The kernels of a Chrome JSON trace, ``.gz`` or not.

    Raises:
        InputError: it cannot be read, or no kernel of a GPU is in it.
    """
    gathering = _Gathering()
    facts = read_events(path, ("deviceProperties", "distributedInfo"), gathering.take)
    if not gathering.ran:
        raise InputError("no kernel of a GPU is in the trace", str(path), expected=RECORD)
    return gathering.trace(facts)


@dataclass(slots=True)
class _Thread:
    """Operations and launches of one thread, as they come."""

    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("q"))
    launched: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Ran:
    """Kernels of one GPU, as they come; ``name`` is an index into what they have in common."""

    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    kind: array[int] = field(default_factory=lambda: array("q"))
    correlation: array[int] = field(default_factory=lambda: array("q"))


class _Gathering:
    """Takes the events of a trace one after another."""

    def __init__(self) -> None:
        self.ran: dict[Any, _Ran] = {}
        self._threads: dict[Any, _Thread] = {}
        self._names: dict[str, int] = {}
        self._kinds: dict[Kernel, int] = {}
        self._steps: dict[str, tuple[float, float]] = {}

    def take(self, event: Event) -> None:
        """Keep what is needed of one event; anything unusual is passed over."""
        if event.get("ph") != "X":
            return
        category = str(event.get("cat", "")).lower()
        category = FORMER.get(category, category)
        start, duration = event.get("ts"), event.get("dur", 0.0)
        if not isinstance(start, (int, float)) or not isinstance(duration, (int, float)):
            return
        name, arguments = str(event.get("name", "")), event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if category in ON_GPU:
            self._on_gpu(event, name, category, arguments, float(start), float(duration))
        elif category in LAUNCHES:
            correlation = arguments.get("correlation")
            if isinstance(correlation, int):
                self._thread(event).launched.append((float(start), correlation))
        elif category in OPERATIONS:
            if STEP.fullmatch(name):
                self._steps[name] = float(start), float(start + duration)
                return
            thread = self._thread(event)
            thread.start.append(start)
            thread.duration.append(duration)
            thread.name.append(self._names.setdefault(name, len(self._names)))

    def _thread(self, event: Event) -> _Thread:
        return self._threads.setdefault((event.get("pid"), event.get("tid")), _Thread())

    def _on_gpu(
        self, event: Event, name: str, category: str, arguments: Mapping[str, Any], start: float, duration: float
    ) -> None:
        ranks, correlation = arguments.get(GROUP_SIZE), arguments.get("correlation")
        kernel = Kernel(name, category, str(arguments.get(GROUP) or ""), ranks if isinstance(ranks, int) else 0)
        ran = self.ran.setdefault(arguments.get("device", event.get("pid")), _Ran())
        ran.start.append(start)
        ran.duration.append(duration)
        ran.kind.append(self._kinds.setdefault(kernel, len(self._kinds)))
        ran.correlation.append(correlation if isinstance(correlation, int) else -1)

    def trace(self, facts: Mapping[str, Any]) -> Trace:
        """What was taken, of the GPU that ran longest."""
        device, ran = max(self.ran.items(), key=lambda item: sum(item[1].duration))
        launched_at, within = self._launches()
        plain = tuple(self._kinds)
        kinds: dict[tuple[int, tuple[str, ...] | None], int] = {}
        kind = [
            kinds.setdefault((own, within.get(correlation)), len(kinds))
            for own, correlation in zip(ran.kind, ran.correlation, strict=True)
        ]
        start = np.array(ran.start)
        end = start + np.array(ran.duration)
        launched = np.array([launched_at.get(each, np.nan) for each in ran.correlation])
        # Without its launch a kernel belongs to the step it ran in.
        steps = self._spans(np.where(np.isnan(launched), start, launched), start, end)
        origin = start.min()
        return Trace(
            kernels=tuple(
                Kernel(plain[own].name, plain[own].category, plain[own].group, plain[own].ranks, chain)
                for own, chain in kinds
            ),
            kind=np.array(kind),
            start_s=(start - origin) * MICRO,
            end_s=(end - origin) * MICRO,
            steps=(steps - origin) * MICRO,
            marked=bool(self._steps),
            device=_device(facts, device),
            ranks=_ranks(facts),
        )

    def _launches(self) -> tuple[dict[int, float], dict[int, tuple[str, ...]]]:
        """By correlation: when the launch was made, and what encloses it."""
        at: dict[int, float] = {}
        within: dict[int, tuple[str, ...]] = {}
        # Kernels come by the million, what encloses them by the hundred.
        chains: dict[tuple[str, ...], tuple[str, ...]] = {}
        known = any(len(thread.start) for thread in self._threads.values())
        names = tuple(self._names)
        for thread in self._threads.values():
            # Of those that begin together the longest encloses the others.
            order = np.lexsort((-np.array(thread.duration), np.array(thread.start))).tolist()
            ends: list[float] = []
            open_: list[str] = []
            place = 0
            for moment, correlation in sorted(thread.launched):
                while place < len(order) and thread.start[order[place]] <= moment:
                    index = order[place]
                    begin = thread.start[index]
                    while ends and ends[-1] <= begin:
                        ends.pop()
                        open_.pop()
                    ends.append(begin + thread.duration[index])
                    open_.append(names[thread.name[index]])
                    place += 1
                while ends and ends[-1] < moment:
                    ends.pop()
                    open_.pop()
                at[correlation] = moment
                if known:
                    within[correlation] = chains.setdefault(chain := tuple(open_), chain)
        return at, within

    def _spans(self, moments: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Begin and end of each step on the GPU: from its first kernel to the first of the next step."""
        begins = []
        for first, last in sorted(self._steps.values()):
            own = (moments >= first) & (moments < last)
            if own.any():
                begins.append((start[own].min(), end[own].max()))
        if not begins:
            return np.array([[start.min(), end.max()]])
        following = [begin for begin, _ in begins[1:]] + [begins[-1][1]]
        return np.array([[begin, max(after, begin)] for (begin, _), after in zip(begins, following, strict=True)])


def _device(facts: Mapping[str, Any], device: Any) -> str | None:
    listed = facts.get("deviceProperties")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("id") == device and isinstance(each.get("name"), str):
            return str(each["name"])
    return None


def _ranks(facts: Mapping[str, Any]) -> int | None:
    told = facts.get("distributedInfo")
    ranks = told.get("world_size") if isinstance(told, dict) else None
    return ranks if isinstance(ranks, int) else None
