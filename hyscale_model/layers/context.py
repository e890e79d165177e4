"""What context ranks exchange around a core: all-gather, ring, or all-to-all (DeepSpeed Ulysses, arXiv 2309.14509).

With T tokens a rank, c ranks, a query heads of width u, g key-value heads of widths u and v on a tensor rank, BF16:

    allgather   keys and values of the sequence before the core, reduce-scatter of their gradients after its backward
    ring        the same bytes in c - 1 sends beside the core, twice as many in the backward (keys, values and their
                gradients travel together); what the core does not hide is exposed
    alltoall    every rank trades tokens for heads: 2 T (a u + g (u + v)) in, 2 T a v out, and as much backward
"""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number, equals, maximum, where
from hyscale_model.families.anatomy import Core
from hyscale_model.layers.operation import Operation, Task, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario

TERM = "cp_communication_exposed"


def exchanged_values(case: Scenario, core: Core) -> Number:
    """Values a token contributes to what a rank gathers: its share of the key-value heads."""
    return core.gathered_values * maximum(core.groups / case.layout.tp, 1) / core.groups


def reorder(name: str, case: Scenario, sizes: Sizes, width: Number, after: tuple[str, ...] = ()) -> tuple[Task, ...]:
    """Puts a gathered sequence of ``width`` BF16 values a token from zigzag rank order into sequence order."""
    zigzag = equals(case.layout.cp_order, "zigzag") * where(case.layout.cp > 1, 1.0, 0.0)
    if not isinstance(width, np.ndarray) and not width:
        return ()
    if not isinstance(zigzag, np.ndarray) and not zigzag:
        return ()
    moved = 2 * BF16_BYTES * sizes.held_tokens * width
    work = Operation(family="elementwise", hbm_bytes=moved * zigzag, launches=zigzag)
    return (Task(name=name, term="other_compute", work=work, after=after),)


def scatter(name: str, case: Scenario, sizes: Sizes, width: Number) -> tuple[Task, ...]:
    """Zigzag order again, and reduce-scatter of a BF16 gradient of the gathered sequence."""
    if not isinstance(width, np.ndarray) and not width:
        return ()
    work = Transfer(kind="reduce_scatter", group="cp", payload_bytes=BF16_BYTES * sizes.held_tokens * width)
    return (*reorder(f"{name}_reorder", case, sizes, width), Task(name=name, term=TERM, work=work))


def before_core(case: Scenario, sizes: Sizes, core: Core, backward: bool) -> tuple[Task, ...]:
    """What a core needs of other ranks by ring or all-to-all; ``backward``: for its backward pass."""
    if case.layout.cp_kind == "ring":
        values = (2 if backward else 1) * exchanged_values(case, core)
        work = Transfer(kind="all_gather", group="cp", payload_bytes=BF16_BYTES * sizes.held_tokens * values)
        return (Task(name="cp.ring", term=TERM, work=work, blocking=False),)
    if backward:
        return _trade("cp.gradient_in", sizes, _output_values(case, core))
    return _trade("cp.trade_in", sizes, _operand_values(case, core))


def after_core(case: Scenario, sizes: Sizes, core: Core, backward: bool) -> tuple[Task, ...]:
    """What other ranks need of a core by all-to-all; nothing by ring."""
    if case.layout.cp_kind == "ring":
        return ()
    if backward:
        return _trade("cp.gradient_out", sizes, _operand_values(case, core))
    return _trade("cp.trade_out", sizes, _output_values(case, core))


def _operand_values(case: Scenario, core: Core) -> Number:
    groups = maximum(core.groups / case.layout.tp, 1)
    return core.heads / case.layout.tp * core.key_width + groups * (core.key_width + core.value_width)


def _output_values(case: Scenario, core: Core) -> Number:
    return core.heads / case.layout.tp * core.value_width


def _trade(name: str, sizes: Sizes, values: Number) -> tuple[Task, ...]:
    work = Transfer(kind="all_to_all", group="cp", payload_bytes=BF16_BYTES * sizes.tokens * values)
    moved = Operation(family="elementwise", hbm_bytes=2 * BF16_BYTES * sizes.tokens * values)
    return (
        Task(name=f"{name}.arrange", term="other_compute", work=moved),
        Task(name=name, term=TERM, work=work),
    )
