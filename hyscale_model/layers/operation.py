"""What a layer computes and sends: work without time.

A layer is a few blocks in sequence; a block is a list of tasks in the order in which they are issued.
Rates turn operations into seconds, the network turns transfers into seconds, the step graph turns both
into the time of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hyscale_model.arrays import Number

Phase = Literal["forward", "recompute", "backward"]
TransferKind = Literal[
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "deepep", "send", "to_host", "from_host"
]
# Parallel dimensions; edp: data-parallel ranks of experts; odp, oedp: the same place in each instance of the
# distributed optimizer; host: the memory of the node.
GroupName = Literal["cp", "ep", "etp", "tp", "pp", "dp", "edp", "odp", "oedp", "host"]
# Names a dimensionless factor of the profile (overhead of an epilogue, overlap of neighbours) and gives its draws.
Factor: TypeAlias = Callable[[str], Number]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One kernel, or a run of kernels of one kind, on one rank.

    Attributes:
        family: kernel family whose rates apply.
        flops: multiply-adds on tensor cores, counted as two.
        hbm_bytes: fewest bytes that cross HBM (inputs once, outputs once).
        sm_work: work in the unit of the family's SM rate; None: the same as ``flops``.
        fp8: 1 where operands are FP8, else BF16.
        inverse_depth: mean of 1 over the length that is summed over, of the products of a matrix kernel; 0: a kernel
            whose rate does not depend on it.
        launches: kernels launched, one after another; ``host_launches``: by the host in all, where several streams take
            them at once; None: the same.
        units: further work by unit, as calibrations count it (see ``hyscale_calibration.work``); asked for only
            where a profile prices it, since most profiles do not.
        turns: SMs -> time of whole turns of them over work spread evenly; None: it spreads by itself.
        passed_bytes: the part of ``hbm_bytes`` that kernels before and after move, with nothing beside them.
    """

    family: str
    flops: Number = 0.0
    hbm_bytes: Number = 0.0
    sm_work: Number | None = None
    fp8: Number = 0.0
    inverse_depth: Number = 0.0
    launches: Number = 1
    host_launches: Number | None = None
    units: Callable[[], Mapping[str, Number]] | None = None
    turns: Callable[[int], Number] | None = None
    passed_bytes: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transfer:
    """One collective over a parallel group.

    Attributes:
        kind: the collective.
        group: parallel dimension it runs over.
        payload_bytes: all_gather, reduce_scatter and all_reduce: the whole gathered buffer; all_to_all, send, to_host
            and from_host: what one rank sends; deepep: one copy of every token.
        node_copies, rank_copies: deepep: to how many nodes, and to how many ranks, a token goes.
    """

    kind: TransferKind
    group: GroupName
    payload_bytes: Number
    node_copies: Number = 0.0
    rank_copies: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """An operation or transfer in a block, in issue order.

    Operations run on one compute stream in issue order, transfers on one stream per group. A transfer
    starts when the computation issued before it has finished. Computation waits at once for a
    ``blocking`` transfer; any other runs beside it until a task that names it in ``after``.
    """

    name: str
    term: str
    work: Operation | Transfer
    after: tuple[str, ...] = ()
    blocking: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a layer (attention, experts) with its three phases; neighbours depend on all of it."""

    name: str
    forward: tuple[Task, ...]
    recompute: tuple[Task, ...]
    backward: tuple[Task, ...]

    def phases(self) -> tuple[tuple[Phase, tuple[Task, ...]], ...]:
        """The three phases by name."""
        return (("forward", self.forward), ("recompute", self.recompute), ("backward", self.backward))
