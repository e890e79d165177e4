"""What a warp does that collects marked keys of a row, and how often samples mislead about how many there are.

HyTopK and this project's top-k of a table mark the keys of a row that reach a threshold, a bit a key, and copy them out
``WORDS`` words at a time: in each round every word that has one gives up its lowest bit. Needs numpy alone.
"""

from __future__ import annotations

from math import comb, lgamma
from statistics import NormalDist

import numpy as np

from hyscale_model.arrays import Number

# Words of 32 keys that a warp empties together: so many of each lane, neighbours by four.
WORDS, LANES, NEIGHBOURS = 256, 32, 4
# Keys of those words, and rows that an SM collects side by side: as many programs as it holds.
PIECE, COLLECTED_AT_ONCE = 32 * WORDS, 32
# Places of 4 bytes that a line of 128 bytes has.
LINE = 32
# Of data clustered in position: keys of a cluster, and the share of a key's spread that is its cluster's.
CLUSTER, ALIKE = 512, 1 / 1.09
# This project's top-k of a table (``top_k.api``): samples of a row, candidates aimed at and kept over those selected.
ROW_SAMPLES, AIM, CAPACITY, LEAST_CAPACITY = 4096, 3, 6, 4096
# Candidates that an SM sorts at once, with their places in registers.
SORTED_AT_ONCE = 8192

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_BITS = np.arange(32)
_WAYS = np.array([comb(32, each) for each in range(32)], dtype=float)


def emptied(share: Number, clustered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """What emptying ``WORDS`` words takes of which ``share [...]`` of the keys are marked, in the mean.

    Marks of keys are independent; ``clustered``: of keys alike within clusters, a normal score ``ALIKE`` of whose
    variance a cluster shares.

    Returns:
        Rounds ``[...]``, as many as the word with most bits has: sum over m of 1 - P(a word has m bits at most)^WORDS.
        Lines ``[...]`` of memory that a warp's stores of places touch: of each store one for a lane at most, and no
        more than the lines that the places of its words lie in.
    """
    marked, place = np.unique(np.clip(share, 0.0, 1.0), return_inverse=True)
    local = _by_cluster(marked) if clustered else marked
    below = _at_most(local)
    spanned = LANES * NEIGHBOURS * 32 * local / LINE + 1
    lines = WORDS / LANES * np.minimum(LANES * (1 - below), spanned[..., None]).sum(-1)
    if clustered:
        lines = lines @ _WEIGHTS
        below = np.einsum("zcm,c->zm", below ** (CLUSTER // 32), _WEIGHTS) ** (PIECE // CLUSTER)
    else:
        below = below**WORDS
    rounds = (1 - below).sum(-1)
    return rounds[place].reshape(np.shape(share)), lines[place].reshape(np.shape(share))


def _by_cluster(share: np.ndarray) -> np.ndarray:
    """Share that is marked in clusters at each node of their normal score, ``[shares, nodes]``."""
    normal = NormalDist()
    level = np.array([normal.inv_cdf(1 - min(max(each, 1e-12), 1 - 1e-12)) for each in share.tolist()])
    within = (ALIKE**0.5 * _NODES - level[:, None]) / (1 - ALIKE) ** 0.5
    result: np.ndarray = np.vectorize(normal.cdf)(within)
    return result


def _at_most(share: np.ndarray) -> np.ndarray:
    """P(a word has m bits at most), ``[..., 32]`` for m of 0 to 31."""
    share = share[..., None]
    result: np.ndarray = np.minimum(np.cumsum(_WAYS * share**_BITS * (1 - share) ** (32 - _BITS), axis=-1), 1.0)
    return result


def fewer(rank: Number, mean: Number) -> np.ndarray:
    """P(fewer than ``rank`` events) where ``mean`` are due, independent of each other; shapes broadcast."""
    rank, mean = np.broadcast_arrays(np.asarray(rank, dtype=float), np.asarray(mean, dtype=float))
    pairs, place = np.unique(np.stack([rank.ravel(), mean.ravel()]), axis=1, return_inverse=True)
    found = np.array([_poisson(int(each), float(due)) for each, due in pairs.T])
    return found[place.ravel()].reshape(rank.shape)


def _poisson(rank: int, mean: float) -> float:
    if rank <= 0:
        return 0.0
    if mean <= 0:
        return 1.0
    logarithms = np.array([lgamma(each + 1) for each in range(rank)])
    return float(np.exp(np.arange(rank) * np.log(mean) - mean - logarithms).sum())


def row_units(visible: Number, topk: int, width: Number, clustered: bool = False) -> dict[str, np.ndarray]:
    """Work of this project's top-k on a row of a table of which ``visible [...]`` scores are seen, ``[...]`` each.

    The table has ``width`` columns, ``topk`` of a row are selected; ``clustered`` as in ``emptied``.

    rounds, lines of collecting what reaches the threshold; steps: rounds one after another, over rows side by side;
    picks: single scores that are read; slots of candidates sorted; rows sorted, over those side by side; missed: the
    chance that samples mislead, so that a single program reads the row again.
    """
    visible = np.asarray(visible, dtype=float)
    room = np.minimum(max(LEAST_CAPACITY, CAPACITY * topk), width)
    judged = visible > room
    aim = AIM * room // CAPACITY
    reached = np.where(judged, aim, visible)
    pieces = np.ceil(visible / PIECE)
    rounds, lines = emptied(reached / np.maximum(visible, 1), clustered)
    slots = 2.0 ** np.ceil(np.log2(np.maximum(room, 16)))
    # Samples due above the threshold: how many keys reach it is as uncertain as their number.
    rank = np.where(judged, np.maximum(aim * ROW_SAMPLES // np.maximum(visible, 1), 1), 0)
    wide = np.where(judged, fewer(rank, rank * slots / 2 / aim), reached > slots / 2)
    missed = np.maximum(fewer(rank, rank * room / aim) + 1 - fewer(rank, rank * topk / aim), 0.0)
    return {
        "rounds": pieces * (1 + rounds),
        "lines": visible / PIECE * lines,
        "steps": pieces * (1 + rounds) / COLLECTED_AT_ONCE,
        "picks": judged * ROW_SAMPLES + reached,
        "slots": slots / 2 * (1 + wide),
        "rows": 1 / np.maximum(1, SORTED_AT_ONCE // slots) + 0 * visible,
        "missed": np.where(judged, missed, 0.0),
    }
