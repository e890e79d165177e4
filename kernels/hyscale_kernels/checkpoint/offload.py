"""Indices that wait in host memory between a forward and its recomputation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Streams to the host and back, which a link carries at once; one pair, for each stream has a memory pool."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


class HostCopy:
    """A copy of indices in host memory: pinned and asynchronous from a CUDA device, elsewhere a plain copy."""

    def __init__(self, indices: torch.Tensor) -> None:
        self.device = indices.device
        if not indices.is_cuda:
            self.host = indices.to("cpu", copy=True)
            return
        away, _ = _streams(self.device)
        # On the CPU also where torch.device("cuda") is the default: only that can be pinned.
        self.host = torch.empty(indices.shape, dtype=indices.dtype, device="cpu", pin_memory=True)
        away.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(away):
            self.host.copy_(indices, non_blocking=True)
        self.copied = away.record_event()
        # The caller may drop the indices at once; their memory is another's only after the copy.
        indices.record_stream(away)

    def fetch(self) -> Callable[[], torch.Tensor]:
        """Start the way back to the device.

        Returns:
            What waits for it: a function to call once, on the stream that will use the indices it returns. They are a
            new tensor each time.
        """
        if self.device.type != "cuda":
            return lambda: self.host.to(self.device, copy=True)
        _, back = _streams(self.device)
        back.wait_event(self.copied)
        # Memory of the stream that writes it: of the user's stream it could still be in use by work queued there, and
        # indices that nobody comes for could be freed under the copy. A pinned buffer that is dropped under a copy
        # needs no such care, for PyTorch gives it out again only after the copies that it started.
        with torch.cuda.stream(back):
            indices = torch.empty(self.host.shape, dtype=self.host.dtype, device=self.device)
            indices.copy_(self.host, non_blocking=True)
        arrived = back.record_event()

        def wait() -> torch.Tensor:
            user = torch.cuda.current_stream(self.device)
            user.wait_event(arrived)
            indices.record_stream(user)
            return indices

        return wait
