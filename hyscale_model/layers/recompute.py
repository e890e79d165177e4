"""What recomputation runs again before a block's backward: all of it, the modules named, or nothing.

Modules are those of Megatron-LM's ``--recompute-modules``; each is a set of tasks of the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from hyscale_model.layers.operation import Block, Task
from hyscale_model.scenario.schema import Training

# Module -> beginnings of the names of its tasks.
MODULE_TASKS: Mapping[str, tuple[str, ...]] = {
    "core_attn": ("dense_attention.forward", "sparse_attention.forward", "linear_attention.forward"),
    "layernorm": ("attention.norm", "ffn.norm", "moe.norm"),
    "mla_up_proj": ("projection.q_up", "projection.kv_up", "projection.passes"),
    "mlp": ("ffn.up", "ffn.activation", "ffn.down", "tp.gather.ffn", "tp.scatter.ffn"),
    "moe": ("moe.", "tp.gather.shared", "tp.scatter.shared"),
    "moe_act": ("moe.activation",),
    "shared_experts": ("moe.shared.", "tp.gather.shared", "tp.scatter.shared"),
}
# A checkpointed mixture of experts starts from the normalised input, and its residual needs no output.
_OUTSIDE = ("moe.norm", "moe.residual")


def recompute_key(training: Training) -> tuple[str, ...]:
    """What blocks must agree in to be recomputed alike."""
    names = training.recompute_modules if training.recompute == "selective" else ()
    return (training.recompute, *sorted(names))


def recompute_tasks(block: Block, training: Training) -> tuple[Task, ...]:
    """Tasks that run again, in order."""
    if training.recompute == "full":
        return block.recompute
    if training.recompute == "none":
        return ()
    prefixes = tuple(prefix for name in training.recompute_modules for prefix in MODULE_TASKS[name])
    normed = "layernorm" in training.recompute_modules
    return tuple(
        task
        for task in block.forward
        if task.name.startswith(prefixes) and (task.name not in _OUTSIDE or (normed and task.name == "moe.norm"))
    )
