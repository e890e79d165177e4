"""Launch of the rescoring kernel."""

from __future__ import annotations

import torch

from hyscale_kernels.replay.triton import rescore_kernel
from hyscale_kernels.scoring.inputs import Scored
from hyscale_kernels.scoring.tiles import Tile

# Four copies of a query of 32 heads.
GATHERED = Tile(columns=128, keys=64, warps=4, stages=3)


def rescore(
    scored: Scored,
    places: torch.Tensor,
    scores: torch.Tensor,
    counts: torch.Tensor | None = None,
) -> None:
    """Scores of each query and the keys at its places, with the bits of a score table.

    Args:
        places: int32 ``[n, width]``; scores: FP32 ``[n, width]``, written.
        counts: int32 ``[n]``, how many of the first places count. None: all that are not negative, whose score is 0.
    """
    n, heads, dim = scored.q.shape
    width = places.shape[1]
    if not n or not width or not scored.keys.shape[0]:
        scores.zero_()
        return
    tile = GATHERED.at(heads, dim, scored.dtype.itemsize)
    rescore_kernel[(n,)](
        scored.q,
        scored.keys,
        scored.weights,
        scored.key_scale,
        places,
        counts,
        scores,
        width,
        scored.keys.stride(0),
        HEADS=heads,
        DIM=dim,
        KEYS=tile.keys,
        SCALED=scored.key_scale is not None,
        COUNTED=counts is not None,
        IMPRECISE=None,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
