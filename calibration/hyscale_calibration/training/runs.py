"""What is trained: systems of the catalogue, by kernels whose bits do not depend on the order of additions or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hyscale_calibration.layers.systems import Strategy, system_named

# Systems beside those of the catalogue: what they are like, and what differs.
OWN: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hyscale-one-query": ("hyscale", {"sparse_attention": "per_query"}),
}
# What stands behind a system in the name of a run: kernels add in any order; a deterministic run pairs queries as its
# system does; it repeats another run.
ATOMIC, PAIRS, AGAIN = "atomic", "pairs", "again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One model that is trained.

    Attributes:
        name: ``<system>``, with ``/pairs`` or ``/atomic`` and ``/again`` behind it.
        system: how it selects, attends and recomputes.
        deterministic: the same bits every time; of equal scores the lower positions are selected.
        pairs: pair queries although it is deterministic, where its system does.
    """

    name: str
    system: Strategy
    deterministic: bool
    pairs: bool


# Deterministic runs, the first two of which must agree to the bit; then as systems are used, one of them twice to see
# what chance does.
RUNS = (
    "megatron",
    "hyscale",
    "hyscale/pairs",
    "megatron/atomic",
    "megatron/atomic/again",
    "hyscale-one-query/atomic",
    "hyscale/atomic",
)


def run_named(name: str) -> Run:
    """The run of a name.

    Raises:
        ValueError: there is no such system, or something else stands behind it.
    """
    system, *marks = name.split("/")
    known = (ATOMIC, PAIRS, AGAIN)
    unknown = [mark for mark in marks if mark not in known]
    if unknown:
        raise ValueError(f"the run {name!r} has {unknown[0]!r} behind its system, there are {', '.join(known)}")
    base, changes = OWN.get(system, (system, {}))
    strategy = replace(system_named(base), name=system, **changes)
    return Run(name=name, system=strategy, deterministic=ATOMIC not in marks, pairs=PAIRS in marks)
