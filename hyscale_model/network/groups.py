"""Where the ranks of a parallel group lie: how many share a node, how many nodes they span.

Megatron-LM numbers ranks with tensor innermost, then context, data, pipeline; experts split the ranks of a
pipeline stage, expert-tensor innermost.
"""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, maximum, minimum
from hyscale_model.layers.operation import GroupName
from hyscale_model.layers.sizes import Sizes
from hyscale_model.scenario.schema import Scenario


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


def group(name: GroupName, case: Scenario, sizes: Sizes) -> Group:
    """The group of a parallel dimension.

    Gradients are exchanged over data and context ranks together (dp), those of experts over what their
    parallelism leaves of a pipeline stage (edp).
    """
    layout = case.layout
    per_node = case.cluster.gpus_per_node
    size, stride = {
        "tp": (layout.tp, 1),
        "cp": (layout.cp, layout.tp),
        "ep": (layout.ep, layout.etp),
        "etp": (layout.etp, 1),
        "dp": (sizes.dp * layout.cp, layout.tp),
        "edp": (sizes.dp * layout.cp * layout.tp / (layout.ep * layout.etp), layout.ep * layout.etp),
        "pp": (layout.pp, layout.tp * layout.cp * sizes.dp),
    }[name]
    local = minimum(size, maximum(per_node / stride, 1))
    return Group(size, local, stride)
