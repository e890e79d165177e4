"""Which layers are measured, from the catalogue: one context-parallel rank of the paper's settings. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_calibration.layers.facts import one_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An attention layer of a model on one rank of many.

    Attributes:
        model: in the catalogue; layer: its kind of attention.
        length: tokens of the sequence; ranks: of context parallelism, in zigzag order.
    """

    model: str
    layer: str
    length: int
    ranks: int

    @property
    def name(self) -> str:
        """Such as ``glm-5.1 dsa 1048576/128``."""
        return f"{self.model} {self.layer} {self.length}/{self.ranks}"

    @property
    def rank(self) -> int:
        """The one that is measured: in the middle, where every query sees as many keys as it selects."""
        return self.ranks // 2

    @property
    def queries(self) -> int:
        """Tokens of the rank."""
        return self.length // self.ranks


def all_cases() -> tuple[Case, ...]:
    """Those of the catalogue, the most telling first."""
    return tuple(
        Case(model=row["model"], layer=row["layer"], length=row["sequence_length"], ranks=row["cp"])
        for row in one_rank()["rows"]
    )


def all_systems() -> tuple[str, ...]:
    """Systems that are compared."""
    return tuple(one_rank()["systems"])
