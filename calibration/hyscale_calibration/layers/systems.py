"""How a system selects, attends and recomputes: the switches of the model's systems that a layer follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyscale_calibration.layers.facts import values_of

# What layers can do, by switch. Other switches of a system are of communication, or of kernels of others.
_BUILT: dict[str, tuple[Any, ...]] = {
    "selection": ("score_table", "hytopk"),
    "table_topk": ("torch", "radix"),
    "recompute_selection": ("rerun", "skip", "replay"),
    "sparse_attention": ("per_query", "query_pairs"),
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
    """

    name: str
    selection: str
    table_rows: int | str
    table_topk: str
    recompute_selection: str
    sparse_attention: str

    @property
    def keeps(self) -> bool:
        """Whether a recomputation is given the selection of its forward."""
        return self.recompute_selection != "rerun"


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
