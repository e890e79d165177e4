"""A point of a plan: one kernel at one shape, on all or on part of a GPU's SMs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Points whose hash falls below this share are held out: decided by the id, before anything is measured.
HELD_OUT = 0.3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """One measurement to make.

    Attributes:
        operation: a benchmark of ``benches``; ``row``: the one of its measurements that is timed.
        dtype: type of the inputs.
        shape: of the benchmark's case, the family of scores included where there is one.
        sms: SMs it may use; 0: all of them.
        estimate_s: about how long it takes with inputs, check, compilation and repetitions.
    """

    operation: str
    row: str
    dtype: str
    shape: Mapping[str, Any]
    sms: int = 0
    estimate_s: float = 0.0

    @property
    def id(self) -> str:
        """What it is called in plans and profiles; the same for the same measurement, whatever the plan."""
        shape = ",".join(f"{key}={value}" for key, value in self.shape.items())
        return f"{self.operation}/{self.row}/{self.dtype}/{shape}" + (f"@{self.sms}sms" if self.sms else "")

    @property
    def case(self) -> tuple[Any, ...]:
        """What points that are measured on the same inputs have in common."""
        return (self.operation, self.dtype, tuple(self.shape.items()), self.sms)

    @property
    def part(self) -> str:
        """``fit``, ``held_out``, or ``transfer`` where only part of the SMs is used."""
        return "transfer" if self.sms else part_of(self.id)


def part_of(identity: str) -> str:
    """``fit`` or ``held_out``, by the hash of an id alone."""
    share = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") / 2**64
    return "held_out" if share < HELD_OUT else "fit"
