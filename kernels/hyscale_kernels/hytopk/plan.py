"""How many samples, candidates and bytes a selection takes."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_kernels.top_k.api import WIDEST, check_topk

# The threshold is this sample, of which 16 stand for topk keys: 2.25 topk are expected to reach it, and 6 topk fit.
# With scores in no order of position (Poisson), one query in 85,000 has 36 where 16 are due, and fewer than 36 where 96
# are is rarer than one in 10^12.
RANK = 36
WANTED = 16
FULL = 96
# Below this, samples would cost more than the candidates they save.
LEAST_STRIDE = 32
# Up to four times the candidates, scoring all keys into tables is faster than finding candidates; see README.md.
SHORT = 4
# Samples of a query are held in registers.
MOST_SAMPLES = 16384
LONGEST = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How candidates are found.

    One key of every ``stride`` is a sample; the ``rank``-th best sample is the threshold, which about ``rank * stride``
    keys reach. At most ``capacity`` candidates are kept. Where ``hopeless`` samples reach the threshold, by equal
    scores, the query is not filtered: the capacity would overflow by six deviations. With no more than ``short`` keys,
    or what fits the candidates, all are scored.

    ``lanes``: keys of a tile. ``bitmap_bytes`` bounds the bitmap and sampled scores, ``chunk_bytes`` the candidates,
    both together tables: queries are taken in blocks. None of it changes an index.
    """

    stride: int
    rank: int
    capacity: int
    hopeless: int
    short: int = 0
    lanes: int = 64
    bitmap_bytes: int = 2**30
    chunk_bytes: int = 3 * 2**27

    def __post_init__(self) -> None:
        least = min(self.stride, self.rank, self.capacity, self.hopeless, self.bitmap_bytes, self.chunk_bytes)
        if least < 1:
            raise ValueError(f"all numbers of a plan must be at least 1, they are {self}")
        if self.capacity > WIDEST:
            raise ValueError(f"capacity must be at most {WIDEST}, is {self.capacity}")
        if self.lanes < 16 or self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes must be a power of two from 16 on, are {self.lanes}")

    @classmethod
    def of(cls, topk: int, length: int) -> Plan:
        """The plan for ``topk`` of ``length`` keys.

        Raises:
            ValueError: a ``topk`` or length out of range.
        """
        check_topk(topk)
        if length > LONGEST:
            raise ValueError(f"at most {LONGEST} keys are supported, there are {length}")
        stride = max(-(-topk // WANTED), LEAST_STRIDE, -(-length // MOST_SAMPLES))
        capacity, hopeless = FULL * stride, FULL + round(6 * FULL**0.5)
        return cls(stride=stride, rank=RANK, capacity=capacity, hopeless=hopeless, short=SHORT * capacity)

    def rows(self, length: int) -> int:
        """Queries of a block, by the larger of their bitmap and sampled scores; a multiple of 64 where it can be."""
        each = max(length // 8, 4 * length // self.stride, 1)
        return max(1, self.bitmap_bytes // each // 64 * 64 or self.bitmap_bytes // each)
