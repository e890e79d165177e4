"""What each measured kernel has to do: FLOP, bytes and further work, from its shape alone.

Units of work beside FLOP and bytes are those of the model's operations (``hyscale_model.layers``): a profile prices
an operation of the model by what it fitted for the same unit here. Sizes are those of the benchmarks of the same
names: n queries, L keys, V of them visible, H heads of width D, k selected.

    products         head scores that pass the CUDA cores, one a head and pair of query and key; logits: of attention
    crowded          products of so many heads that four copies of a query fill the registers
    scores           sums over heads, one a pair of query and key
    gathered_bytes   rows read by index; picks: how many rows
    atomics          FP32 additions to rows by index; shared_atomics: to rows that the query before added to too
    values           results written by a product of matrices
    words            32 keys marked by a bit each; slots: places that are sorted, filled up to a power of two
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hyscale_calibration.point import Point
from hyscale_calibration.work.gathered import GATHERED
from hyscale_calibration.work.library import LIBRARY
from hyscale_calibration.work.selection import SELECTION
from hyscale_calibration.work.unit import Shape, Work

__all__ = ["CHOOSING", "CHOSEN", "DESCRIBED", "Work", "families_of", "work_of"]

# Work of a measurement by the name of its row.
DESCRIBED: Mapping[str, Callable[[str, Shape], Work | None]] = {**LIBRARY, **SELECTION, **GATHERED}
# Steps of HyTopK that follow the filter; the model prices them as one family.
CHOOSING, CHOSEN = ("hytopk.compact", "hytopk.rescore", "hytopk.select"), "candidate_select"


def work_of(row: str, dtype: str, shape: Shape) -> Work | None:
    """The work of a measurement; None where nothing is fitted to it."""
    described = DESCRIBED.get(row)
    return None if described is None else described(dtype, shape)


def families_of(points: Iterable[Point]) -> frozenset[str]:
    """Families of kernels that measurements of these points give a law of."""
    points = list(points)
    found = {work.family for point in points if (work := work_of(point.row, point.dtype, point.shape)) is not None}
    return frozenset(found | ({CHOSEN} if {point.row for point in points} >= set(CHOOSING) else set()))
