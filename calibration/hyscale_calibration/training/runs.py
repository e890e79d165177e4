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
# What a name ends with whose kernels add in any order.
ATOMIC = "/atomic"
# A run that is another's repetition.
AGAIN = "/again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One model that is trained.

    Attributes:
        name: ``<system>`` or ``<system>/atomic``, with ``/again`` behind it for a repetition.
        system: how it selects, attends and recomputes.
        deterministic: the same bits every time; of equal scores the lower positions are selected.
    """

    name: str
    system: Strategy
    deterministic: bool


# Deterministic, which must agree; then as they are used, one of them twice to see what chance does.
RUNS = (
    "megatron",
    "hyscale-one-query",
    "hyscale",
    "megatron/atomic",
    "megatron/atomic/again",
    "hyscale-one-query/atomic",
    "hyscale/atomic",
)


def run_named(name: str) -> Run:
    """The run of a name.

    Raises:
        ValueError: there is no such system.
    """
    plain = name.removesuffix(AGAIN)
    system = plain.removesuffix(ATOMIC)
    base, changes = OWN.get(system, (system, {}))
    strategy = replace(system_named(base), name=system, **changes)
    return Run(name=name, system=strategy, deterministic=system == plain)
