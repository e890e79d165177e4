"""What a program scores at a time, and how keys are shared out among programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """What a program multiplies at a time: (query, head) columns and keys, and how it is compiled."""

    columns: int
    keys: int
    warps: int
    stages: int

    def at(self, heads: int, dim: int) -> Tile:
        """The same memory at a width above the 128 that tiles were measured at; a product has at least 16 keys."""
        wider = max(1, dim // 128)
        fitting = replace(self, columns=self.columns // wider, keys=max(16, self.keys // wider))
        # Four queries are the least of a tile.
        return replace(fitting, warps=8) if 4 * heads > fitting.columns else fitting

    def queries(self, heads: int) -> int:
        """Queries of a tile: four at least, and no more than 64 of few heads."""
        return min(64, max(4, self.columns // heads))


# Two programs of the narrow tile fit an SM. Writing BF16 scores is faster with one large one; see README.md.
NARROW = Tile(columns=256, keys=64, warps=4, stages=3)
WIDE = Tile(columns=256, keys=128, warps=8, stages=3)
# Shares of the keys beyond which the last programs of a launch leave too little idle to matter.
MOST_SHARES = 16


def shares(programs: int, width: int, tile: Tile, multiple: int, device: torch.device) -> int:
    """Keys that one program of a block of queries scores, a multiple of some number.

    All blocks times all shares run in waves over the SMs. The shares are as many as leave the last wave full, or, of
    few queries, as fill one wave.
    """
    parts = 1
    if device.type == "cuda":
        slots = torch.cuda.get_device_properties(device).multi_processor_count * (1 if tile.warps > 4 else 2)

        def idle(count: int) -> float:
            waves = programs * count / slots
            # Each program loads its queries anew.
            return 1 - waves / -(-waves // 1) + 1e-4 * count

        parts = min(range(1, max(MOST_SHARES, slots // programs) + 1), key=idle)
    return max(1, triton.cdiv(triton.cdiv(width, parts), multiple)) * multiple
