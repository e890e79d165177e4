"""What each measured kernel has to do: FLOP, bytes and further work, from its shape alone.

Units of work beside FLOP and bytes are those of the model's operations (``hyscale_model.layers``): a profile prices
an operation of the model by what it fitted for the same unit here. Sizes are those of the benchmarks of the same
names: n queries, L keys, V of them visible, H heads of width D, k selected.

    products         head scores that pass the CUDA cores, one a head and pair of query and key; logits: of attention
    plain_logits     of kernels in Triton where there are none in Gluon; plain_sums: of those that add to keys together
    wide             logits, once for each column of a head's keys and values over those that usual kernels take
    crowded          products of so many heads that four copies of a query fill the registers
    scores           sums over heads, one a pair of query and key
    loaded_bytes     queries that programs load before they score, each its own
    gathered_bytes   rows read by index; fresh_bytes: of them those that the query before did not read too
    picks            rows, or single scores, that are read by index
    atomics          FP32 additions to rows by index; shared_atomics: to rows that the query before added to too
    visible_bytes    of a table, those that queries see; masked_bytes: those that they do not
    values           results written by a product of matrices
    reread_bytes     read again, after a cache has lost them
    rounds           marked keys taken from all words at a time; steps: one after another, over rows side by side
    lines            of memory that the places of taken keys are stored to
    slots            places that are sorted, filled up to a power of two; searched: for the one the selection ends at
    rows             begun, or sorted, over those side by side
    again            keys that a single program reads because samples of a row misled
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from hyscale_calibration.point import Point
from hyscale_calibration.work.gathered import GATHERED
from hyscale_calibration.work.library import LIBRARY
from hyscale_calibration.work.selection import CHOOSING, CHOSEN, SELECTION, chosen
from hyscale_calibration.work.unit import Shape, Work

__all__ = ["CHOOSING", "CHOSEN", "DESCRIBED", "Work", "chosen", "families_of", "work_of"]

# Work of a measurement by the name of its row.
DESCRIBED: Mapping[str, Callable[[str, Shape], Work | None]] = {**LIBRARY, **SELECTION, **GATHERED}


def work_of(row: str, dtype: str, shape: Shape) -> Work | None:
    """The work of a measurement; None where nothing is fitted to it."""
    return _described(row, dtype, tuple(sorted(shape.items())))


# Rows of a shape are counted one by one, and plans, fits and comparisons ask for the same shapes again.
@lru_cache(maxsize=4096)
def _described(row: str, dtype: str, shape: tuple[tuple[str, Any], ...]) -> Work | None:
    described = DESCRIBED.get(row)
    return None if described is None else described(dtype, dict(shape))


def families_of(points: Iterable[Point]) -> frozenset[str]:
    """Families of kernels that measurements of these points give a law of."""
    points = list(points)
    found = {work.family for point in points if (work := work_of(point.row, point.dtype, point.shape)) is not None}
    return frozenset(found | ({CHOSEN} if {point.row for point in points} >= set(CHOOSING) else set()))
