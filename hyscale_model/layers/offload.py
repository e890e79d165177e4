"""Activations that go to host memory after a forward pass and come back before its backward.

Megatron-LM's ``--cpu-offloading-num-layers`` offloads that many of a rank's layers and spreads the copies over all of
them (Transformer Engine's cpu_offload), so every layer sends its share f of what it keeps. A copy runs beside the
computation of a neighbour: what a block keeps goes out beside the next block's forward and comes in beside the backward
of the block behind it, which in a row of alike layers is beside its own. Megatron-LM offers it without pipelining; here
it may be had with any layout, as with its ``--fine-grained-activation-offloading``.
"""

from __future__ import annotations

from dataclasses import replace

from hyscale_model.arrays import Number
from hyscale_model.layers.operation import Block, Task, Transfer
from hyscale_model.scenario.schema import Scenario

# The layer whose activations leave and the one whose come back.
BUFFERED_LAYERS = 2


def offloaded_share(case: Scenario) -> float:
    """Share of what a rank's layers keep that lies in host memory."""
    layers = case.training.cpu_offloading_num_layers
    return min(layers * case.layout.pp / case.model.num_hidden_layers, 1.0)


def with_offload(block: Block, case: Scenario, kept_bytes: Number) -> Block:
    """The block with the copies of its share of ``kept_bytes``; the block itself where nothing is offloaded."""
    share = offloaded_share(case)
    if not share:
        return block
    out = Transfer(kind="to_host", group="host", payload_bytes=share * kept_bytes)
    store = Task(name="offload.activations_out", term="offload", work=out, blocking=False)
    load = replace(store, name="offload.activations_in", work=replace(out, kind="from_host"))
    return replace(block, forward=(store, *block.forward), backward=(load, *block.backward))
