"""Selections of a forward, kept for its recomputation.

A recomputation that selected again would need the scores again, and could select other keys than its forward did: of
equal scores, or of scores whose last bits differ. The gradient would then be that of another function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from types import TracebackType

import torch

from hyscale_kernels.checkpoint.offload import HostCopy
from hyscale_kernels.indices import length_of, made_indices

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


class SelectionReplayError(RuntimeError):
    """Indices that are not those of the forward being recomputed would have been used."""


class _Active(threading.local):
    """Recordings and replays that this thread is inside of, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[object] = []


# Autograd recomputes in threads of its own on CUDA, in the caller's on the CPU.
_active = _Active()


class _Entry:
    """One selection of a tape."""

    def __init__(self, key: Hashable, indices: torch.Tensor, offload: bool) -> None:
        self.key = key
        self.kept = HostCopy(indices) if offload else indices
        self.length = length_of(indices)
        self.version = None if indices.is_inference() else indices._version
        self.witness = indices
        if offload:
            # A detached tensor shares the count of changes; emptied, it keeps that but not the memory.
            self.witness = indices.detach()
            self.witness.data = self.witness.new_empty(0)

    def fetch(self) -> Callable[[], torch.Tensor]:
        """Start to bring the indices to their device; what is returned gives them."""
        kept = self.kept
        if not isinstance(kept, HostCopy):
            return lambda: kept
        fetched, length = kept.fetch(), self.length
        return fetched if length is None else lambda: made_indices(fetched(), length)

    def check(self) -> None:
        if self.version is None:
            raise SelectionReplayError(
                f"the indices of {self.key!r} were made under torch.inference_mode, where changes to them cannot be "
                "noticed: record under torch.no_grad, or with gradients"
            )
        if self.witness._version != self.version:
            raise SelectionReplayError(
                f"the indices of {self.key!r} were modified in place after they were recorded (version "
                f"{self.witness._version}, recorded {self.version}): change a clone of them"
            )


_UNREPLAYABLE = {
    "new": "it never recorded a forward: run the forward inside recording() first",
    "recording": "its forward is still being recorded: leave recording() first, and do not take gradients of a "
    "checkpointed function inside itself",
    "aborted": "its forward was ended by an exception: repeat the forward with a new tape",
}


class SelectionTape:
    """The selections of one forward of one checkpointed call, in their order.

    ``checkpoint_contexts`` makes tapes for ``torch.utils.checkpoint`` without reentrance. Other checkpoint functions
    (Megatron-LM's, or torch's with ``use_reentrant=True``) call the same function for the forward, with gradients off,
    and for the recomputation; there make one tape a call, which is one a micro-batch and layer, inside whatever an
    outer checkpoint repeats::

        tape = SelectionTape()

        def run(x):
            with tape.replaying() if tape.recorded else tape.recording():
                return layer(x)

        out = checkpoint(run, x, use_reentrant=True)

    Nothing is recorded outside a context, as in an evaluation, nor in threads other than the one that entered it.

    Args:
        offload: keep the indices in host memory, pinned and copied beside the computation where they are on a CUDA
            device. A replay fetches them one selection ahead.
    """

    def __init__(self, offload: bool = False) -> None:
        self.offload = offload
        self._entries: list[_Entry] = []
        self._state = "new"

    @property
    def recorded(self) -> bool:
        """Whether the tape holds a whole forward, so that it can be replayed."""
        return self._state == "recorded"

    def recording(self) -> AbstractContextManager[SelectionTape]:
        """Context of the forward: every selection inside is kept, to be entered once.

        An exception that passes through makes the tape unusable and empties it.

        Raises:
            SelectionReplayError: on entry, if the tape holds a forward already, whole, running or aborted.
        """
        return _Recording(self)

    def replaying(self) -> AbstractContextManager[SelectionTape]:
        """Context of a recomputation: selections inside are those of the tape, from the first on at every entry.

        Fewer than all may be used only where an exception ends the context: torch stops a recomputation by one as soon
        as it has the tensors it needs (``set_checkpoint_early_stop``), and selections behind them are then not asked
        for.

        Raises:
            SelectionReplayError: on entry, if the tape holds no whole forward; on leaving without an exception, if
                selections are left over. ``select_once`` raises the others.
        """
        return _Replaying(self)


class _Recording:
    """Entered at most once, so itself what is on the stack."""

    def __init__(self, tape: SelectionTape) -> None:
        self.tape = tape

    def __enter__(self) -> SelectionTape:
        if self.tape._state != "new":
            reason = {
                "recording": "it is recording already",
                "recorded": f"it holds a forward of {len(self.tape._entries)} selections",
                "aborted": "its forward was ended by an exception",
            }[self.tape._state]
            raise SelectionReplayError(f"this tape cannot record, {reason}: make a new tape for every forward")
        self.tape._state = "recording"
        # Some versions of torch leave this context when they collect the generator that entered it: late, with others
        # entered meanwhile, and perhaps in another thread.
        self.stack = _active.stack
        self.stack.append(self)
        return self.tape

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.remove(self)
        self.tape._state = "recorded" if kind is None else "aborted"
        if kind is not None:
            self.tape._entries.clear()


class _Replay:
    """One recomputation and how far it is."""

    def __init__(self, entries: list[_Entry], stack: list[object]) -> None:
        self.entries = entries
        self.stack = stack
        self.place = 0
        self.ahead: list[Callable[[], torch.Tensor]] = []
        self._fetch()

    def _fetch(self) -> None:
        if self.place < len(self.entries):
            self.ahead.append(self.entries[self.place].fetch())

    def next(self, key: Hashable) -> torch.Tensor:
        total = len(self.entries)
        if self.place == total:
            raise SelectionReplayError(
                f"a recomputation asks for {key!r} as selection {total + 1}, its forward made {total}: both must make "
                "the same selections in the same order"
            )
        entry = self.entries[self.place]
        if entry.key != key:
            raise SelectionReplayError(
                f"a recomputation asks for {key!r} as selection {self.place + 1} of {total}, in its forward this was "
                f"{entry.key!r}: both must make the same selections in the same order"
            )
        entry.check()
        indices = self.ahead.pop()()
        self.place += 1
        self._fetch()
        return indices


class _Replaying:
    """Torch enters the same context for every recomputation, also in several threads, so each entry has a replay."""

    def __init__(self, tape: SelectionTape) -> None:
        self.tape = tape
        self.replays: list[_Replay] = []

    def __enter__(self) -> SelectionTape:
        if not self.tape.recorded:
            raise SelectionReplayError(f"this tape cannot be replayed: {_UNREPLAYABLE[self.tape._state]}")
        replay = _Replay(self.tape._entries, _active.stack)
        self.replays.append(replay)
        replay.stack.append(replay)
        return self.tape

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replay = ([replay for replay in self.replays if replay.stack is _active.stack] or self.replays)[-1]
        self.replays.remove(replay)
        replay.stack.remove(replay)
        if kind is None and replay.place < len(replay.entries):
            raise SelectionReplayError(
                f"a recomputation ended after {replay.place} of the {len(replay.entries)} selections of its forward, "
                f"before {replay.entries[replay.place].key!r}: both must make the same selections"
            )


def checkpoint_contexts(
    offload: bool = False,
) -> Callable[[], tuple[AbstractContextManager[SelectionTape], AbstractContextManager[SelectionTape]]]:
    """What ``torch.utils.checkpoint.checkpoint`` takes as ``context_fn``, with ``use_reentrant=False``::

        checkpoint(layer, x, use_reentrant=False, context_fn=checkpoint_contexts())

    One result serves any number of calls: each has a tape of its own, which lives as long as its graph needs it.
    Of nested checkpoints all must have it: one that has not selects again, which nothing notices.

    A forward that an exception ended is over for torch 2.11 only when the traceback is dropped: forwards made while
    it is kept raise SelectionReplayError in their recomputation.

    Args:
        offload: see ``SelectionTape``.
    """

    def contexts() -> tuple[AbstractContextManager[SelectionTape], AbstractContextManager[SelectionTape]]:
        tape = SelectionTape(offload)
        return tape.recording(), tape.replaying()

    return contexts


@torch.compiler.disable(reason="a graph must not contain the tape of one call")
def select_once(key: Hashable, select: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The indices of ``select``, which is called in a forward but not in its recomputation.

    The innermost replay gives the indices, else ``select`` does; the recordings inside that replay, else all, keep
    them. So an outer recomputation replays its tape into that of a checkpoint inside, and a recomputation that a
    gradient starts inside a forward belongs to its own tape alone, as if it ran in another thread.

    Args:
        key: names the selection among those of a forward: layer, first row of the chunk, shape, topk.
        select: gives integer indices, ``[n, k]``, in memory that nobody writes afterwards. It must not draw from the
            default random generators, for the recomputation would not, and draw other numbers later. Calls of
            ``select_once`` inside it are part of this selection.

    Returns:
        The indices, to be read only. Changes by tensor operations are noticed at the replay, those of a kernel that
        writes to a pointer are not.

    Raises:
        SelectionReplayError: in a recomputation, if its forward made another selection at this place or none, or if
            the indices have been modified in place since.
        TypeError: what is to be recorded is no tensor of integers, or has a key that is not hashable.
    """
    stack = _active.stack
    recordings = []
    inside: object = None
    for active in reversed(stack):
        if not isinstance(active, _Recording):
            inside = active
            break
        recordings.append(active)
    if isinstance(inside, _Replay):
        indices = inside.next(key)
    elif not recordings:
        return select()
    else:
        indices = _select(stack, select)
        if not isinstance(indices, torch.Tensor) or indices.dtype not in _INTEGERS:
            found = indices.dtype if isinstance(indices, torch.Tensor) else type(indices).__name__
            raise TypeError(f"the selection {key!r} must be a tensor of integers, is {found}")
        hash(key)
    for recording in recordings:
        recording.tape._entries.append(_Entry(key, indices, recording.tape.offload))
    return indices


def _select(stack: list[object], select: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Select behind a mark that hides all recordings: a replay would not ask for selections inside a selection."""
    mark = object()
    stack.append(mark)
    try:
        return select()
    finally:
        stack.remove(mark)
