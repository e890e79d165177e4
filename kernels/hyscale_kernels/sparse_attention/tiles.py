"""What a program multiplies at a time, and how it is compiled."""

from __future__ import annotations

from dataclasses import dataclass, replace

import triton


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Heads, keys and columns of a program, its warps, and the tiles of keys that it holds or loads ahead.

    Attributes:
        columns: of the gradients of keys that one program adds to; other kernels take all.
        impl: of the kernel; one in Gluon has tiles of its own, with as many heads.
    """

    heads: int = 64
    keys: int
    columns: int = 0
    warps: int
    stages: int
    impl: str = "triton"

    def at(self, group_heads: int) -> Tile:
        """The tile for as many heads to a group of keys. A product has at least 16 rows; few of them need few warps."""
        heads = min(self.heads, max(16, triton.next_power_of_2(group_heads)))
        return replace(self, heads=heads, warps=self.warps if heads > 32 else 4)


FORWARD = Tile(keys=64, warps=8, stages=3)
QUERIES = Tile(keys=64, warps=8, stages=1)
KEYS = Tile(keys=64, columns=128, warps=4, stages=2)
# Of queries together.
PAIRS = Tile(keys=64, columns=64, warps=8, stages=1)
# Rows of what is left are filled up to a multiple of any tile of keys.
SLOTS = 128
# Tiles of keys whose probabilities one program adds up.
ADDED_TILES = 8
# What programs of one launch leave to those of the next, bytes. Launches end with SMs that have nothing left to do.
LEFT_BYTES = 2**30
# Launches whose p and dz are kept until the units of deterministic sums are known: 4 GiB, of 8,192 queries of 64 heads
# and 2,048 keys.
KEPT_LAUNCHES = 4
