"""A predicted step as a trace for Perfetto or chrome://tracing.

One process a pipeline stage of a system, one track a stream. On the compute track a pass holds blocks and a block holds
tasks; transfers lie on tracks of their own. Arrows lead from the pass that sends to the pass that waits for it. The
counters are micro-batches whose activations a stage holds, and the memory of the fullest moment of each phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyscale_model.timeline import Interval, Pass, Timeline

MICROSECONDS = 1e6
# Stages of a system; the next system's begin behind them.
_STAGES = 1000
_KINDS = {
    "F": "forward",
    "B": "backward",
    "W": "weight gradients",
    "I": "backward of inputs",
    "P": "forward beside another backward",
}
# Blocks of a pair run in turns, which no order of whole blocks shows.
_PHASES: Mapping[str, tuple[str, ...]] = {
    "F": ("forward",),
    "B": ("recompute", "backward"),
    "W": (),
    "I": ("recompute", "backward"),
    "P": (),
}
_COMPUTE = "compute"


def trace(steps: Mapping[str, tuple[Timeline, Mapping[str, Any]]]) -> dict[str, Any]:
    """The JSON of a trace.

    Args:
        steps: of each system its timeline, and its memory as ``memory_moments`` gives it.
    """
    events: list[dict[str, Any]] = []
    for number, (name, (found, moments)) in enumerate(steps.items()):
        events += _system(name, number * _STAGES, found, moments)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"what": "a prediction, not a measurement"}}


def _system(name: str, base: int, found: Timeline, moments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    ranks = sorted({each.rank for each in found.passes})
    streams = [_COMPUTE, *sorted({row.stream for rows in found.blocks.values() for row in rows} - {_COMPUTE})]
    tracks = {stream: number for number, stream in enumerate(streams)}
    for rank in ranks:
        yield _named("process_name", base + rank, 0, f"{name}, stage {rank}")
        for stream, track in tracks.items():
            yield _named("thread_name", base + rank, track, stream if track == 0 else f"{stream.upper()} transfers")
    for each in found.passes:
        yield from _pass(each, len(ranks), base, found, tracks)
    yield from _arrows(found, len(ranks), base)
    for rank in ranks:
        mine = [each for each in found.passes if each.rank == rank]
        yield from _counters(mine, base + rank, _fullest(moments, rank))
        if found.shown == found.micro_batches and found.ending_s > 0:
            last = max(each.end_s for each in found.passes)
            yield _slice("gradient exchange and optimizer", base + rank, 0, last, last + found.ending_s, {})


def _pass(each: Pass, ranks: int, base: int, found: Timeline, tracks: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    process = base + each.rank
    title = f"{_KINDS[each.kind]}, micro-batch {each.micro_batch}, chunk {each.chunk}"
    yield _slice(title, process, 0, each.start_s, each.end_s, {})
    now = each.start_s
    blocks = list(_in_order(found.stages[each.chunk * ranks + each.rank]))
    for name in blocks if each.kind == "F" else reversed(blocks):
        for phase in _PHASES[each.kind]:
            rows = [row for row in found.blocks[name] if row.phase == phase]
            end = min(now + max((row.end_s for row in rows), default=0.0), each.end_s)
            if end <= now:
                continue
            yield _slice(f"{name}, {phase}", process, 0, now, end, {})
            yield from _tasks(rows, process, now, end, tracks)
            now = end


def _tasks(
    rows: Sequence[Interval], process: int, offset: float, end: float, tracks: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    for row in rows:
        start, stop = offset + row.start_s, min(offset + row.end_s, end)
        if stop > start:
            yield _slice(row.name, process, tracks[row.stream], start, stop, {"term": row.term, "block": row.block})


def _in_order(runs: Mapping[str, int]) -> Iterator[str]:
    """Blocks in turns, as layers hold them; the embedding comes first and the output head last."""
    if "embedding" in runs:
        yield "embedding"
    inner = {name: count for name, count in runs.items() if name not in ("embedding", "head")}
    for turn in range(max(inner.values(), default=0)):
        yield from (name for name, count in inner.items() if turn < count)
    if "head" in runs:
        yield "head"


def _sent(each: Pass) -> list[tuple[str, int, int]]:
    """What a pass has for others when it ends: (F or B, chunk, micro-batch)."""
    if each.kind == "P":
        return [("F", each.chunk, each.micro_batch), ("B", 1 - each.chunk, each.other or 0)]
    return [] if each.kind == "W" else [("B" if each.kind == "I" else each.kind, each.chunk, each.micro_batch)]


def _arrows(found: Timeline, ranks: int, base: int) -> Iterator[dict[str, Any]]:
    place = {
        (kind, chunk * ranks + each.rank, micro): each for each in found.passes for kind, chunk, micro in _sent(each)
    }
    for (kind, stage, micro_batch), sender in place.items():
        against = found.mirrored and stage >= ranks
        following = stage + (1 if (kind == "F") != against else -1)
        if found.mirrored and following // ranks != stage // ranks:
            continue
        receiver = place.get((kind, following, micro_batch))
        if receiver is None or receiver.rank == sender.rank:
            continue
        arrow = {"cat": "pipeline", "name": "send", "id": f"{base}.{kind}.{stage}.{micro_batch}", "tid": 0}
        # An arrow binds to the slice around its time stamp.
        inside = sender.start_s + 0.999 * (sender.end_s - sender.start_s)
        yield arrow | {"ph": "s", "pid": base + sender.rank, "ts": inside * MICROSECONDS}
        yield arrow | {"ph": "f", "bp": "e", "pid": base + receiver.rank, "ts": receiver.start_s * MICROSECONDS}


def _fullest(moments: Mapping[str, Any], rank: int) -> dict[str, Mapping[str, float]]:
    """Bytes by kind at the fullest moment of forward and of backward passes, which begin at the output head."""
    rows = list(zip(moments["moments"], moments["stages"][rank], strict=True))
    passes = (("F", ("forward",)), *((kind, ("backward", "output head")) for kind in "BWIP"))
    return {
        kind: max((row for name, row in rows if name.startswith(words)), key=lambda row: sum(row.values()), default={})
        for kind, words in passes
    }


def _counters(
    passes: Sequence[Pass], process: int, memory: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    changes = [(each.start_s, 1) for each in passes if each.kind in "FP"]
    changes += [(each.end_s, -1) for each in passes if each.kind in "BIP"]
    count = 0
    for time, change in sorted(changes):
        count += change
        yield _counter("micro-batches held", process, time, {"micro-batches": count})
    for each in passes:
        yield _counter("memory at most, bytes", process, each.start_s, memory[each.kind])


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _slice(name: str, process: int, track: int, start: float, end: float, args: Mapping[str, Any]) -> dict[str, Any]:
    span = {"ts": start * MICROSECONDS, "dur": (end - start) * MICROSECONDS}
    return {"ph": "X", "name": name, "cat": "predicted", "pid": process, "tid": track, **span, "args": dict(args)}


def _counter(name: str, process: int, time: float, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": time * MICROSECONDS, "args": dict(values)}
