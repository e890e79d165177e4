"""Where the ranks of a parallel group lie: how many share a node, how many nodes they span.

Megatron-LM numbers ranks with tensor innermost, then context, data, pipeline; experts split the ranks of a
pipeline stage, expert-tensor innermost.
"""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, maximum, minimum
from hyscale_model.layers.operation import GroupName
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import Layout, Scenario


@dataclass(frozen=True, slots=True)
class Group:
    """``size`` ranks, ``local`` of them on each node they touch, neighbours ``stride`` ranks apart."""

    size: Number
    local: Number
    stride: Number = 1

    @property
    def nodes(self) -> Number:
        """Nodes the group spans."""
        return self.size / self.local


def stage_copies(layout: Layout) -> int:
    """Ranks of a pipeline that hold the same stage: two where micro-batches enter at both ends."""
    return 2 if layout.schedule == "dualpipe" and layout.pp > 1 else 1


def group(name: GroupName, case: Scenario, sizes: Sizes) -> Group:
    """The group of a parallel dimension.

    Gradients are exchanged over data and context ranks together (dp), those of experts over what their
    parallelism leaves of a pipeline stage (edp). Several instances of the distributed optimizer divide both, and
    exchange what they sum up over ranks of the same place (odp, oedp).
    """
    layout = case.layout
    per_node = case.cluster.gpus_per_node
    instances = layout.num_distributed_optimizer_instances
    replicas = sizes.dp * layout.cp / instances
    holders = replicas * layout.tp / (layout.ep * layout.etp)
    size, stride = {
        "tp": (layout.tp, 1),
        "cp": (layout.cp, layout.tp),
        "ep": (layout.ep, layout.etp),
        "etp": (layout.etp, 1),
        "dp": (replicas, layout.tp),
        "edp": (holders, layout.ep * layout.etp),
        "odp": (instances, layout.tp * replicas),
        "oedp": (instances, layout.tp * replicas),
        "pp": (layout.pp, layout.tp * layout.cp * sizes.dp),
    }[name]
    local = minimum(size, maximum(per_node / stride, 1))
    if name in ("dp", "edp"):
        # Both copies of a stage share their gradients; they lie on ranks of other stages.
        size = size * stage_copies(layout)
    return Group(size, local, stride)
