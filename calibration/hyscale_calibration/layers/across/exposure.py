"""How much of a step's collectives ran beside other kernels, from a Chrome trace of the torch profiler. Needs no torch.

Of each rank::

    exposed     time in which a collective ran and nothing else did: |union of NCCL kernels - union of other kernels|
    hidden      the rest of the time in which one ran
    idle        time, from the first kernel to the last, in which nothing ran

A collective's kernel also runs while it waits for ranks that come later. The rank that comes last does not wait, so the
shortest of the ranks' kernels is the transfer, and what a rank's kernel took longer is waiting for others, which no
network makes shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Categories of events that are work of a GPU, and what names of NCCL's kernels begin with.
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
NCCL = "nccl"
KINDS = ("AllGather", "ReduceScatter")
MS_PER_US = 1e-3


@dataclass(frozen=True, slots=True)
class Busy:
    """When a rank's GPU was at work, in microseconds of the trace's clock.

    Attributes:
        computing: ``[kernels, 2]``, begin and end of kernels and copies that are no collectives.
        collectives: ``[collectives, 2]`` in the order of their beginning; kinds: what each is.
    """

    computing: np.ndarray
    collectives: np.ndarray
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> Busy:
        """Of a trace's ``traceEvents``, from the last barrier on, which is a collective that no layer has."""
        found = sorted(
            (float(each["ts"]), float(each["ts"]) + float(each["dur"]), str(each["name"]))
            for each in events
            if each.get("cat") in ON_GPU and "dur" in each
        )
        began = max((end for _, end, name in found if name.startswith(NCCL) and not _kind(name)), default=-np.inf)
        found = [each for each in found if each[0] >= began]
        ours = [each for each in found if each[2].startswith(NCCL)]
        others = [each for each in found if not each[2].startswith(NCCL)]
        return cls(_spans(others), _spans(ours), tuple(_kind(name) for _, _, name in ours))


def _spans(found: Sequence[tuple[float, float, str]]) -> np.ndarray:
    return np.array([each[:2] for each in found], dtype=float).reshape(-1, 2)


def _kind(name: str) -> str:
    return next((kind for kind in KINDS if kind in name), "")


def union(spans: np.ndarray) -> np.ndarray:
    """Spans that do not overlap and cover the same, in order: ``[n, 2]``."""
    if not len(spans):
        return spans
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    until = np.maximum.accumulate(ordered[:, 1])
    new = np.append(True, ordered[1:, 0] > until[:-1])
    ends = np.append(until[:-1][new[1:]], until[-1])
    return np.column_stack([ordered[new, 0], ends])


def covered(spans: np.ndarray, by: np.ndarray) -> np.ndarray:
    """How much of each span lies within ``by``, which is a union: ``[n]``."""
    if not len(by) or not len(spans):
        return np.zeros(len(spans))
    before = np.concatenate([[0.0], np.cumsum(by[:, 1] - by[:, 0])])

    def until(times: np.ndarray) -> np.ndarray:
        """Covered time before each moment."""
        index = np.searchsorted(by[:, 0], times, side="right")
        last = np.maximum(index - 1, 0)
        beyond = np.where(index > 0, np.maximum(by[last, 1] - times, 0.0), 0.0)
        found: np.ndarray = before[index] - beyond
        return found

    return until(spans[:, 1]) - until(spans[:, 0])


def communication(ranks: Sequence[Busy]) -> dict[str, Any]:
    """Milliseconds of collectives of one step, each the mean over ranks, and every rank's exposed time.

    Raises:
        ValueError: ranks did not run the same collectives.
    """
    if len({each.kinds for each in ranks}) != 1:
        raise ValueError(f"ranks ran different collectives: {[each.kinds for each in ranks]}")
    kinds, names = np.array(ranks[0].kinds), sorted(set(ranks[0].kinds))
    took = np.array([each.collectives[:, 1] - each.collectives[:, 0] for each in ranks])
    beside = np.array([covered(each.collectives, union(each.computing)) for each in ranks])
    transfer = took.min(axis=0)
    exposed = took - beside
    # What shows for longer than the transfer takes is waiting.
    shown = np.minimum(exposed, transfer)
    idle = [_idle(each) for each in ranks]
    return {
        "collectives": {name: int((kinds == name).sum()) for name in names},
        "transfer_ms": {name: MS_PER_US * float(transfer[kinds == name].sum()) for name in names},
        "exposed_ms": MS_PER_US * float(exposed.sum(axis=1).mean()),
        "exposed_transfer_ms": MS_PER_US * float(shown.sum(axis=1).mean()),
        "hidden_ms": MS_PER_US * float(beside.sum(axis=1).mean()),
        "waiting_ms": MS_PER_US * float((took - transfer).sum(axis=1).mean()),
        "idle_ms": MS_PER_US * float(np.mean(idle)),
        "exposed_ms_by_rank": [MS_PER_US * float(each) for each in exposed.sum(axis=1)],
    }


def _idle(busy: Busy) -> float:
    spans = union(np.concatenate([busy.computing, busy.collectives]))
    return float((spans[1:, 0] - spans[:-1, 1]).sum()) if len(spans) else 0.0
