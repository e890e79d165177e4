"""The attention core: over selected keys, over all visible keys, or a linear recurrence.

Floors per rank with n queries, h heads that share g key-value heads, a attended keys, key and value widths u and v:
    forward    2 n h a (u + v) FLOP, n g a (u + v) gathered values (u where keys and values are one)
    backward   2.5 times the forward FLOP (scores again, then gradients of probabilities, queries, keys and values)
A tile of the tensor cores has 64 rows, or 16 at a lower rate; heads that share a key fill them, so a sparse core with
few heads a key pads its products.

Pairs of queries: two neighbours read the union of their keys, (2 - overlap) a of 2 a. Keys read and key gradients added
fall to (2 - overlap) / 2; products rise to (2 - overlap), as each query also meets the other's keys, masked but not
skipped; rows of a key double, which pads less. Pairs are used in a direction only where they shrink work on the SMs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hyscale_model.arrays import Number, maximum, minimum, where
from hyscale_model.families.anatomy import Core
from hyscale_model.families.tokens import recurrence_flops
from hyscale_model.layers.context import exchanged_values
from hyscale_model.layers.operation import Factor, Operation
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, OWN_BACKEND, Sizes, mean_attended
from hyscale_model.layers.tiles import FEW_HEADS, GLUON_HEADS, TOGETHER, TOGETHER_UP_TO, union_of
from hyscale_model.scenario.schema import Scenario

BACKWARD_OVER_FORWARD = 2.5
# The backward of a gated delta rule over its forward (FLA kernels; states again, then five gradients).
RECURRENCE_BACKWARD = 2.5
# Rows of a warp-group product, rows of a warp product, and the rate of the latter over that of the former on Hopper.
WARP_GROUP_ROWS = 64
WARP_ROWS = 16
WARP_RATE = 0.6
# Of this project's kernels (hyscale_kernels/sparse_attention): the forward leaves the teacher of the index loss, BF16
# weights of every head, written by one kernel and added up by another. The backward has a kernel of queries, and one of
# keys, which adds once for queries that share a pass over the union of their keys.
WEIGHT_BYTES = 2 * BF16_BYTES
# Key and value widths together above which backward takes slower kernels.
USUAL_WIDTHS = 256


def padded_rows(rows: float) -> float:
    """Rows whose time a product of ``rows`` rows takes, by the better of the two instructions."""
    wide = math.ceil(rows / WARP_GROUP_ROWS) * WARP_GROUP_ROWS
    narrow = math.ceil(rows / WARP_ROWS) * WARP_ROWS / WARP_RATE
    return min(wide, narrow)


@dataclass(frozen=True, slots=True)
class CorePair:
    """The forward and the backward operation of a core, and the term they count in.

    ``taught``: a forward that also leaves the teacher of the index loss, of backends whose kernel can.
    """

    forward: Operation
    backward: Operation
    term: str
    taught: Operation | None = None


def core_operations(case: Scenario, sizes: Sizes, core: Core, factor: Factor) -> CorePair:
    """Both directions under the system's backend and grouping."""
    if core.form == "linear":
        return _linear(case, sizes, core)
    return _sparse(case, sizes, core, factor) if core.topk else _dense(case, sizes, core)


def attention_flops(case: Scenario, sizes: Sizes, core: Core) -> Number:
    """2 n h a (u + v), the useful FLOP of one forward on one tensor rank."""
    return sizes.tokens * core.flops_per_key / case.layout.tp * mean_attended(sizes, core)


def _traffic(case: Scenario, sizes: Sizes, core: Core) -> tuple[Number, Number]:
    """Bytes of queries and outputs, and of the keys and values of the whole sequence, BF16."""
    rows = sizes.tokens * core.heads / case.layout.tp * BF16_BYTES * (core.key_width + core.value_width)
    return rows, sizes.held_tokens * exchanged_values(case, core) * BF16_BYTES


def _sparse(case: Scenario, sizes: Sizes, core: Core, factor: Factor) -> CorePair:
    system, tp = case.systems[0], case.layout.tp
    flops = attention_flops(case, sizes, core)
    rows = max(core.heads / tp, 1) / max(core.groups / tp, 1)
    padded = flops * padded_rows(rows) / rows
    traffic, keys = _traffic(case, sizes, core)
    indices = sizes.tokens * core.topk * INT32_BYTES
    union = 2.0 - factor("pair_overlap")
    pairs = system.sparse_attention == "query_pairs"
    # Products of a pair over those of two single queries.
    more = union * padded_rows(2 * rows) / (2 * padded_rows(rows))
    tensor, sm = padded, padded
    own, added = system.backend == OWN_BACKEND, 1.0
    family, launches = f"sparse_attention_backward.{system.backend}", 4 if own else 3
    if pairs and not own and padded_rows(rows) > rows:
        # Rows that were padding hold the second query: its products come with the keys.
        tensor, sm = padded * minimum(more, 1.0), padded * minimum(more, 1.0)
    forward = Operation(
        family=f"sparse_attention_forward.{system.backend}",
        flops=tensor,
        sm_work=sm,
        hbm_bytes=traffic + keys + indices,
        units=lambda: _kept(case, sizes, core, factor("pair_overlap")),
    )
    back = BACKWARD_OVER_FORWARD * padded
    back_tensor, back_sm = back, back
    if pairs and own and shares_pass(core, tp):
        # Kernels of their own; two merges of lists, and where each query has the keys.
        family, launches = "sparse_attention_backward_pairs", launches + 5
        together = union_of(TOGETHER, factor("pair_overlap"))
        shares = where(together <= TOGETHER_UP_TO, 1.0, 0.0)
        added = 1 - shares * (1 - together / TOGETHER)
        # Products of gradients of keys and values, D + V of 3 D + 2 V.
        of_keys = (core.key_width + core.value_width) / (3 * core.key_width + 2 * core.value_width)
        back_tensor = back_sm = back * (1 + shares * of_keys * (together - 1))
    elif pairs and not own:
        share = factor("backward_key_share")
        ratio = share * union / 2 + (1 - share) * more
        back_tensor = back * where(ratio < 1, more, 1.0)
        back_sm = back * minimum(ratio, 1.0)
    # FP32 key gradients of the whole sequence are zeroed, added to (read and written) and cast to BF16.
    zeroed_and_cast = keys * (2 * FP32_BYTES + BF16_BYTES) / BF16_BYTES
    moved = 2 * traffic + keys + indices + zeroed_and_cast
    if own:
        # Additions are a unit of their own; the kernel of queries leaves p and dz to that of keys.
        moved = moved + 2 * WEIGHT_BYTES * sizes.tokens * mean_attended(sizes, core) * core.heads / tp
    else:
        moved = moved + 2 * keys * FP32_BYTES / BF16_BYTES
    backward = Operation(
        family=family,
        flops=back_tensor,
        sm_work=back_sm,
        hbm_bytes=moved,
        launches=launches,
        units=lambda: _kept(case, sizes, core, factor("pair_overlap"), added),
        passed_bytes=zeroed_and_cast,
    )
    return CorePair(forward, backward, "sparse_attention", _taught(case, sizes, core, forward) if own else None)


def in_gluon(core: Core, tp: Number) -> bool:
    """Whether this project's kernels are those in Gluon: a latent for all heads, whose first columns are its value."""
    return core.groups == 1 and core.key_width > core.value_width and core.heads / tp % GLUON_HEADS == 0


def shares_pass(core: Core, tp: Number) -> bool:
    """Whether queries together save more than they cost: in Gluon, where values are columns of keys, or few heads."""
    return sums_in_gluon(core, tp) or core.heads / core.groups <= FEW_HEADS


def sums_in_gluon(core: Core, tp: Number) -> bool:
    """Whether queries together add to keys by the kernel in Gluon, for keys that are their values, sinks too."""
    return core.groups == 1 and core.heads / tp % GLUON_HEADS == 0


def _taught(case: Scenario, sizes: Sizes, core: Core, forward: Operation) -> Operation:
    """The forward that leaves probabilities summed over heads, FP32."""
    kept = sizes.tokens * mean_attended(sizes, core)
    return replace(
        forward,
        family="sparse_attention_probabilities",
        hbm_bytes=forward.hbm_bytes + kept * (WEIGHT_BYTES * core.heads / case.layout.tp + FP32_BYTES),
        launches=2,
    )


def _kept(case: Scenario, sizes: Sizes, core: Core, overlap: Number, added: Number = 1.0) -> dict[str, Number]:
    """Logits of all heads, bytes of gathered keys, additions to their gradients.

    Of one query at a time, but for the share of additions that queries together make, ``added``.
    """
    kept = sizes.tokens * mean_attended(sizes, core)
    # A value that is part of its key is not gathered again.
    width = core.key_width if core.groups == 1 else core.groups / case.layout.tp * (core.key_width + core.value_width)
    return {
        "logits": kept * core.heads / case.layout.tp,
        # Of kernels in Triton, where there are none in Gluon.
        "plain_logits": 0.0 if in_gluon(core, case.layout.tp) else kept * core.heads / case.layout.tp,
        "plain_sums": 0.0 if sums_in_gluon(core, case.layout.tp) else kept * core.heads / case.layout.tp,
        "gathered_bytes": kept * width * BF16_BYTES,
        # Neighbours in a text select alike; what both selected is read, and added to, in the cache.
        "fresh_bytes": kept * width * BF16_BYTES * (1 - overlap),
        "rows": sizes.tokens * maximum(1.0, core.heads / case.layout.tp / GLUON_HEADS),
        "atomics": added * kept * width * (1 - overlap),
        "shared_atomics": added * kept * width * overlap,
    }


# Bytes of a query, key and head that unfused kernels move, 16-bit scores: written, read and written by the masked
# softmax, read by the product with the values; with dropout read and written again with a mask of one byte. Backward:
# gradients of probabilities and scores written and read by the same kernels, probabilities read again.
UNFUSED_TRAFFIC = {False: (8, 14), True: (13, 19)}


def _unfused(case: Scenario, sizes: Sizes, core: Core, dropout: bool) -> CorePair:
    """Two batched products over all keys, visible or not, with the softmax between them in memory."""
    keys = sizes.mean_length()
    flops = sizes.tokens * core.flops_per_key / case.layout.tp * keys
    scores = sizes.tokens * core.heads / case.layout.tp * keys
    forward, backward = UNFUSED_TRAFFIC[dropout]
    # The products of scores and the passes over them do not overlap: they are kernels of their own.
    return CorePair(
        Operation(family="unfused_attention", flops=flops, hbm_bytes=forward * scores, launches=5),
        Operation(family="unfused_attention", flops=2 * flops, hbm_bytes=backward * scores, launches=8),
        "dense_attention",
    )


def _dense(case: Scenario, sizes: Sizes, core: Core) -> CorePair:
    if case.training.attention_backend == "unfused":
        return _unfused(case, sizes, core, dropout=core.dropout)
    flops = attention_flops(case, sizes, core)
    traffic, keys = _traffic(case, sizes, core)
    # Compressed entries are one head that all query heads share, wider than common attention kernels take.
    kind = "compressed" if core.ratio > 1 or core.window else "dense"

    def units() -> dict[str, Number]:
        logits = sizes.tokens * core.heads / case.layout.tp * mean_attended(sizes, core)
        return {"logits": logits, "wide": logits * max(core.key_width + core.value_width - USUAL_WIDTHS, 0)}

    return CorePair(
        Operation(family=f"{kind}_attention_forward", flops=flops, hbm_bytes=traffic + keys, units=units),
        Operation(
            family=f"{kind}_attention_backward",
            flops=BACKWARD_OVER_FORWARD * flops,
            hbm_bytes=2 * traffic + 3 * keys,
            launches=2,
            units=units,
        ),
        "dense_attention",
    )


def _linear(case: Scenario, sizes: Sizes, core: Core) -> CorePair:
    flops = sizes.tokens * recurrence_flops(core) / case.layout.tp
    moved = 4 * sizes.tokens * core.heads / case.layout.tp * core.value_width * BF16_BYTES
    return CorePair(
        Operation(family="gated_delta_rule", sm_work=flops, hbm_bytes=moved, launches=4),
        Operation(family="gated_delta_rule", sm_work=RECURRENCE_BACKWARD * flops, hbm_bytes=2 * moved, launches=6),
        "linear_attention",
    )
