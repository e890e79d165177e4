"""Launch of the forward, and what launches have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import triton
import triton.language as tl

from hyscale_kernels.sparse_attention.hopper import FORWARD_KEYS, launch, use_gluon
from hyscale_kernels.sparse_attention.inputs import Attention
from hyscale_kernels.sparse_attention.tiles import ADDED_TILES, FORWARD, LEFT_BYTES, Tile
from hyscale_kernels.sparse_attention.triton.forward import forward_kernel, probabilities_kernel
from hyscale_kernels.sparse_attention.triton.rows import LOG2E

# The interpreter multiplies the bits of BF16 as integers, and cuts FP32 off where it should round.
FACTOR = tl.float32 if triton.knobs.runtime.interpret else tl.bfloat16
FACTOR_TYPE = torch.float32 if triton.knobs.runtime.interpret else torch.bfloat16


def attend(
    given: Attention,
    probabilities: bool,
    impl: str | None = None,
    tile: Tile = FORWARD,
    left_bytes: int = LEFT_BYTES,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Output ``[n, heads, value_width]``, logarithms FP32 ``[n, heads]`` and, if asked for, sums over heads.

    The latter are those of the probabilities of each index, FP32 in the shape of the indices of ``given``. ``impl``
    None: by what is fastest here.

    Raises:
        ValueError: Gluon where it cannot run.
    """
    fast = use_gluon(impl, given)
    n, heads, _ = given.q.shape
    k = given.indices.shape[2]
    device = given.q.device
    out = given.q.new_empty(n, heads, given.value_width, dtype=FACTOR_TYPE)
    lse = torch.empty(n, heads, device=device)
    tile = tile.at(given.group_heads)
    if fast:
        tile = replace(tile, keys=FORWARD_KEYS)
    blocks = given.blocks(tile.heads)
    sums = torch.zeros(n * blocks, k, device=device) if probabilities else None
    if not n or not k or not given.keys.shape[0]:
        return (
            given.q.new_zeros(out.shape),
            lse.fill_(-torch.inf),
            None if sums is None else _by_index(sums, given, blocks),
        )
    tiles = triton.cdiv(k, tile.keys)
    kept = tile.heads * tiles * tile.keys * FACTOR_TYPE.itemsize
    for first, tasks in launches(n * blocks, kept, left_bytes if probabilities else None):
        weights = divisors = None
        if probabilities:
            weights = torch.empty(tasks, tile.heads, tiles * tile.keys, dtype=FACTOR_TYPE, device=device)
            divisors = torch.empty(tasks, tiles + 1, tile.heads, device=device)
        forward(given, out, lse, weights, divisors, first, tasks, None if fast else tile)
        if sums is not None:
            probabilities_kernel[(tasks, triton.cdiv(tiles, ADDED_TILES))](
                weights, divisors, sums[first:], k, HEADS=tile.heads, KEYS=tile.keys, TILES=ADDED_TILES
            )
    return out.to(given.q.dtype), lse, None if sums is None else _by_index(sums, given, blocks)


def forward(
    given: Attention,
    out: torch.Tensor,
    lse: torch.Tensor,
    weights: torch.Tensor | None,
    divisors: torch.Tensor | None,
    first: int,
    tasks: int,
    tile: Tile | None,
) -> None:
    """Launch tasks from the first on, in Gluon if there is no tile."""
    if tile is None:
        from hyscale_kernels.sparse_attention.gluon.forward import forward_kernel as gluon_kernel

        gluon_kernel[(tasks,)](
            given.q,
            given.keys,
            given.indices,
            out,
            lse,
            weights,
            divisors,
            first,
            given.softmax_scale * LOG2E.value,
            given.indices.shape[2],
            WEIGHTS=weights is not None,
            **launch(given, FORWARD_KEYS),
        )
        return
    forward_kernel[(tasks,)](
        given.q,
        given.keys,
        given.value_like,
        given.indices,
        given.sinks,
        out,
        lse,
        weights,
        divisors,
        first,
        given.softmax_scale * LOG2E.value,
        given.indices.shape[2],
        **given.strides(),
        **given.constants(),
        WEIGHTS=weights is not None,
        HEADS=tile.heads,
        KEYS=tile.keys,
        FACTOR=FACTOR,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def launches(tasks: int, kept: int, left_bytes: int | None, together: int = 1) -> Iterator[tuple[int, int]]:
    """First task and number of tasks of each launch, whose buffers of ``kept`` bytes a task are no larger than told.

    ``together``: tasks that no border may part.
    """
    size = tasks if left_bytes is None else max(1, left_bytes // kept // together) * together
    for first in range(0, tasks, size):
        yield first, min(size, tasks - first)


def _by_index(sums: torch.Tensor, given: Attention, blocks: int) -> torch.Tensor:
    """Sums of programs ``[n * blocks, k]`` added up over the programs that have the same indices."""
    n, lists, k = given.indices.shape
    return sums if blocks == lists == 1 else sums.view(n, lists, blocks // lists, k).sum(2)
