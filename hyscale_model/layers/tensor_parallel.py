"""Sequence-parallel exchanges around a tensor-parallel block: all-gather before, reduce-scatter after."""

from __future__ import annotations

from hyscale_model.layers.operation import Task, Transfer
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario


def gather_tokens(case: Scenario, sizes: Sizes, block: str) -> tuple[Task, ...]:
    """All-gather of a block's input tokens; costs nothing at tp = 1."""
    payload = BF16_BYTES * sizes.tokens * case.model.hidden_size
    work = Transfer(kind="all_gather", group="tp", payload_bytes=payload)
    return (Task(name=f"tp.gather.{block}", term="tp_communication_exposed", work=work),) if _split(case) else ()


def scatter_tokens(case: Scenario, sizes: Sizes, block: str) -> tuple[Task, ...]:
    """Reduce-scatter of a block's output tokens; costs nothing at tp = 1."""
    payload = BF16_BYTES * sizes.tokens * case.model.hidden_size
    work = Transfer(kind="reduce_scatter", group="tp", payload_bytes=payload)
    return (Task(name=f"tp.scatter.{block}", term="tp_communication_exposed", work=work),) if _split(case) else ()


def _split(case: Scenario) -> bool:
    tp = case.layout.tp
    return not isinstance(tp, int) or tp > 1
