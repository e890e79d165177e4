"""The host that launches kernels: a pass takes no less than the host needs to issue it.

A pass of a micro-batch issues one kernel after another, L of them (a collective is one), each for ``host_launch_s``;
the host runs ahead of the GPU within the pass, so the pass takes max(device, L x launch). CUDA graphs issue what they
hold at once: the whole step with ``full_iteration``, else each captured module of a layer as one (Megatron-LM
--cuda-graph-impl, --cuda-graph-modules; no module named: whole layers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.layers.operation import Block, Operation, Task
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Training
from hyscale_model.step.pipeline import Structure
from hyscale_model.step.price import Priced, running_phases

# Module -> beginnings of the names of its blocks, and of its tasks where it is a part of a block.
ATTENTION = (".input", ".core", ".output")
ROUTER: Mapping[str, tuple[str, ...]] = {
    "moe_router": ("moe.norm", "moe.router", "moe.routing"),
    "moe_preprocess": ("moe.permute",),
}
WHOLE: Mapping[str, str] = {"mlp": "dense_ffn", "moe": "moe"}


def launches(block: Block, tasks: Sequence[Task], training: Training) -> Number:
    """Kernels and graphs that the host launches for the tasks of one phase of a block."""
    if training.cuda_graph_impl == "full_iteration":
        return 0
    total: Number = 0
    graphs = set()
    for task in tasks:
        module = captured_by(block.name, task.name, training)
        if module is not None:
            graphs.add(module)
            continue
        work = task.work
        if not isinstance(work, Operation):
            total = total + 1
        else:
            total = total + (work.launches if work.host_launches is None else work.host_launches)
    return total + len(graphs)


def captured_by(block: str, task: str, training: Training) -> str | None:
    """The module whose graph holds a task; None where it is launched on its own."""
    if training.cuda_graph_impl == "none":
        return None
    modules = training.cuda_graph_modules
    if block.endswith(ATTENTION):
        return "attn" if not modules or "attn" in modules else None
    for name, held in WHOLE.items():
        if block == held and (not modules or name in modules):
            return name
    return next((name for name in modules if name in ROUTER and task.startswith(ROUTER[name])), None)


def _counted(
    block: Block, training: Training, known: dict[tuple[int, int], tuple[Number, Number]]
) -> tuple[Number, Number]:
    """Launches of a block's forward, and of its other phases."""
    key = (id(block), id(training))
    if key not in known:
        counted = {phase: launches(block, tasks, training) for phase, tasks in running_phases(block, training)}
        ahead = counted.pop("forward", 0)
        known[key] = ahead, sum(counted.values())
    return known[key]


def _numbers(rows: Sequence[Sequence[Number]], shape: tuple[int, int]) -> np.ndarray:
    """Numbers, some of which may vary over points or draws, as an array that broadcasts to (rows, columns, *shape)."""
    if not any(isinstance(value, np.ndarray) for row in rows for value in row):
        return np.array(rows, dtype=float)[:, :, None, None]
    return np.stack([np.stack([np.broadcast_to(value, shape) for value in row]) for row in rows])


class Host:
    """Seconds that the host needs for each block of every case, over the flat axis of (case, point, draw).

    Attributes:
        forward: shape (blocks, flat); ``backward``: of all other phases.
    """

    def __init__(self, priced: Priced, rates: Rates, shape: tuple[int, int]) -> None:
        each = np.broadcast_to(rates.factor("host_launch_s") * rates.gpu.host_slowdown, shape)
        # Blocks that systems share are counted once.
        known: dict[tuple[int, int], tuple[Number, Number]] = {}
        rows = [
            [_counted(case.blocks[row], case.training, known) for case in priced.cases]
            for row in range(len(priced.cases[0].blocks))
        ]
        self.forward, self.backward = (
            (_numbers([[pair[phase] for pair in row] for row in rows], shape) * each).reshape(len(rows), -1)
            for phase in (0, 1)
        )

    def waits(
        self, group: Structure, forward: np.ndarray, backward: np.ndarray, at: slice | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Seconds that each virtual stage's passes wait for the host, shape (virtual stages, n).

        Args:
            group: the stages.
            forward: seconds of each block on the device, shape (blocks, n); ``backward`` likewise.
            at: the columns of the group on the flat axis.
        """
        pairs = ((self.forward, forward), (self.backward, backward))
        ahead, back = (np.maximum(group.counts @ (host[:, at] - device), 0.0) for host, device in pairs)
        return ahead, back
