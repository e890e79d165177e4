"""What this project's sparse attention holds between the launches of its backward.

A launch takes as many tasks, one a query and block of heads, as leave ``LEFT_BYTES`` for the kernel of keys: shares and
slopes of every head and slot, BF16. The next launch's are made before those of the last are gone, and the last launch,
which has the tasks that remain, leaves its own until sums are rounded (hyscale_kernels/sparse_attention/gradients.py).
"""

from __future__ import annotations

import math

from hyscale_model.arrays import Number, ceil_div, maximum, minimum, where
from hyscale_model.families.anatomy import Core
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.layers.tiles import TOGETHER

# What programs of one launch leave to those of the next, at most.
LEFT_BYTES = 2**30
# Heads of a task, at least and at most, and slots that keys are filled up to a multiple of (tiles.py there).
LEAST_HEADS, MOST_HEADS = 16, 64
SLOTS = 128


def between_launches(sizes: Sizes, core: Core, tp: Number, together: bool) -> tuple[Number, Number]:
    """Bytes of two launches at once, or of all there are, and of the last one.

    Args:
        tp: tensor ranks that share the heads; together: whether queries share a pass, which no launch parts.
    """
    groups = maximum(core.groups / tp, 1)
    heads = maximum(core.heads / tp / groups, 1)
    rows = where(heads > MOST_HEADS / 2, MOST_HEADS, where(heads > LEAST_HEADS, MOST_HEADS // 2, LEAST_HEADS))
    keys = core.topk * core.entry_tokens + core.window
    task = 2 * BF16_BYTES * rows * math.ceil(keys / SLOTS) * SLOTS
    blocks = groups * ceil_div(heads, rows)
    unit = blocks * (TOGETHER if together else 1)
    tasks = sizes.tokens * blocks
    launch = maximum(LEFT_BYTES // task // unit * unit, unit)
    last = tasks - (ceil_div(tasks, launch) - 1) * launch
    return minimum(tasks, 2 * launch) * task, last * task
