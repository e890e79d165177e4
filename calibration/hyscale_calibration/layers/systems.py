"""How a system selects, attends and recomputes: the switches of the model's systems that a layer follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyscale_calibration.layers.facts import values_of

# What layers can do, by switch. Other switches of a system are of kernels of others, or of what is around a layer.
_BUILT: dict[str, tuple[Any, ...]] = {
    "selection": ("score_table", "hytopk"),
    "table_topk": ("torch", "radix"),
    "recompute_selection": ("rerun", "skip", "replay"),
    "sparse_attention": ("per_query", "query_pairs"),
    "cp_overlap": ("none", "behind_selection"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Switches of a system, as in the catalogue.

    Attributes:
        selection: ``score_table`` or ``hytopk``.
        table_rows: queries a table has rows for at a time, or ``all``; table_topk: ``torch`` or ``radix``.
        recompute_selection: ``rerun``: select again; ``skip``: keep indices and their scores; ``replay``: keep indices
            and score those keys again.
        sparse_attention: ``per_query`` or ``query_pairs``.
        cp_overlap: ``none``, or ``behind_selection``: latents of other ranks come while keys are selected.
    """

    name: str
    selection: str
    table_rows: int | str
    table_topk: str
    recompute_selection: str
    sparse_attention: str
    cp_overlap: str

    @property
    def keeps(self) -> bool:
        """Whether a recomputation is given the selection of its forward."""
        return self.recompute_selection != "rerun"

    @property
    def hides_gathers(self) -> bool:
        """Whether what attention alone needs of other ranks comes beside the selection."""
        return self.cp_overlap == "behind_selection"


def system_named(name: str) -> Strategy:
    """The switches of a system of the catalogue.

    Raises:
        ValueError: there is no such system, or it does what no layer here can.
    """
    values = values_of("systems", name)
    for switch, built in _BUILT.items():
        if values[switch] not in built:
            raise ValueError(f"{switch} of {name} is {values[switch]!r}, layers can {', '.join(built)}")
    return Strategy(name=name, table_rows=values["table_rows"], **{switch: values[switch] for switch in _BUILT})
