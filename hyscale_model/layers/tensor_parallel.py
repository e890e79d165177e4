"""Exchanges between tensor ranks; they cost nothing at tp = 1."""

from __future__ import annotations

from hyscale_model.arrays import Number
from hyscale_model.layers.operation import Task, Transfer, TransferKind
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario


def gather_tokens(sizes: Sizes, case: Scenario, hidden: int, block: str) -> tuple[Task, ...]:
    """All-gather of a block's input tokens (sequence parallelism)."""
    return exchange(f"tp.gather.{block}", "all_gather", case, BF16_BYTES * sizes.tokens * hidden)


def gather_again(sizes: Sizes, case: Scenario, hidden: int, block: str) -> tuple[Task, ...]:
    """All-gather of the same tokens for weight gradients, beside the product that gives input gradients.

    A rank keeps its shard of a block's input alone (Transformer Engine's LayerNormLinear). Without sequence
    parallelism it has all of them.
    """
    if not case.layout.sequence_parallel:
        return ()
    return exchange(f"tp.again.{block}", "all_gather", case, BF16_BYTES * sizes.tokens * hidden, blocking=False)


def scatter_tokens(sizes: Sizes, case: Scenario, hidden: int, block: str) -> tuple[Task, ...]:
    """Reduce-scatter of a block's output tokens (sequence parallelism)."""
    return exchange(f"tp.scatter.{block}", "reduce_scatter", case, BF16_BYTES * sizes.tokens * hidden)


def exchange(name: str, kind: TransferKind, case: Scenario, payload: Number, blocking: bool = True) -> tuple[Task, ...]:
    """A collective over tensor ranks."""
    tp = case.layout.tp
    if isinstance(tp, int) and tp == 1:
        return ()
    work = Transfer(kind=kind, group="tp", payload_bytes=payload)
    return (Task(name=name, term="tp_communication_exposed", work=work, blocking=blocking),)
