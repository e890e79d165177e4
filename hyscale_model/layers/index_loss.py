"""The sparse index loss: KL between attention summed over heads and the indexer's softmax, on the selected set.

Floors per rank with n queries, h attention heads of key width u, k selected keys, H index heads of width D:
    teacher    2 x 2 n h k u FLOP: softmax statistics first, then probabilities (Megatron-Core)
    KL         scores, indices and teacher read, gradients written, and once more with those of the loss
    backward   3 x 2 n k H D FLOP (scores again, query and key gradients), n k D atomic adds to key gradients, FP32 sums
               of the L keys zeroed and rounded
This project's KL is one kernel with its gradients, which the backward multiplies by those of the losses; a teacher of
tokens is added up by entry first, and FP32 gradients of queries are rounded in a pass of their own.
Inputs of the indexer are detached, so nothing flows on to the hidden state.
"""

from __future__ import annotations

from hyscale_model.arrays import Number, maximum
from hyscale_model.families.anatomy import Core
from hyscale_model.layers.core import padded_rows
from hyscale_model.layers.operation import Factor, Operation, Task
from hyscale_model.layers.selection import Selector, crowded
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, OWN_BACKEND
from hyscale_model.layers.tensor_parallel import exchange
from hyscale_model.scenario.schema import Scenario

TEACHER_PASSES = 2
# Heads and rows that the teacher without a kernel of its own takes at a time (Megatron-Core), and passes over its
# scores: product, mask, softmax, sum over heads.
HEADS_AT_ONCE, ROWS_AT_ONCE = 16, 512
SCORE_PASSES = 6
KL_PASSES, KL_LAUNCHES = 6, 4
# Of them those of the backward: gradients read and written.
SLOPE_PASSES = 2
ROUNDED_BYTES = FP32_BYTES + BF16_BYTES


def index_loss_tasks(selector: Selector, core: Core) -> tuple[Task, ...]:
    """Teacher and KL with its gradient to the k kept scores, once for each layer and micro-batch."""
    case, sizes, rows = selector.case, selector.sizes, selector.rows
    heads = core.heads / case.layout.tp
    shared = heads / max(core.groups / case.layout.tp, 1)
    attended = rows.selected * core.entry_tokens
    kept = rows.queries * rows.selected
    keys = sizes.held_tokens * core.gathered_values
    if case.training.index_teacher == "chunked":
        teacher = _chunked(sizes.tokens, heads, attended, core, case)
    else:
        teacher = Operation(
            family="index_teacher",
            flops=TEACHER_PASSES * 2 * sizes.tokens * heads * attended * core.key_width * padded_rows(shared) / shared,
            hbm_bytes=TEACHER_PASSES * BF16_BYTES * (sizes.tokens * heads * core.key_width + keys) + FP32_BYTES * kept,
            launches=TEACHER_PASSES,
        )
    own = selector.system.backend == OWN_BACKEND
    # This project's attention leaves the teacher itself, of tokens.
    made = () if own else (Task(name="index_loss.teacher", term="index_loss", work=teacher),)
    passes = FP32_BYTES * (KL_PASSES - (SLOPE_PASSES if own else 0)) * kept
    if own and core.entry_tokens > 1:
        passes = passes + FP32_BYTES * (sizes.tokens * attended + kept)
    divergence = Operation(family="elementwise", hbm_bytes=passes, launches=KL_LAUNCHES)
    return (
        *made,
        # Probabilities are summed over the heads of all tensor ranks.
        *exchange("tp.teacher", "reduce_scatter", case, FP32_BYTES * sizes.tokens * rows.selected),
        Task(name="index_loss.kl", term="index_loss", work=divergence),
    )


def _chunked(tokens: Number, heads: Number, attended: Number, core: Core, case: Scenario) -> Operation:
    """The teacher without a kernel of its own: keys gathered, turned to FP32 and multiplied for 16 heads at a time.

    A gathered key value is read and written in BF16, read and written again as FP32, and read by the product: 14 bytes
    for each chunk of heads; scores pass through memory ``SCORE_PASSES`` times in FP32. Products are FP32, without
    tensor cores.
    """
    gathered = tokens * attended * core.key_width * maximum(core.groups / case.layout.tp, 1)
    chunks = maximum(heads / HEADS_AT_ONCE, 1)
    copied = 2 * BF16_BYTES + BF16_BYTES + 2 * FP32_BYTES
    scores = FP32_BYTES * SCORE_PASSES * tokens * heads * attended
    rows = maximum(tokens / ROWS_AT_ONCE, 1)
    return Operation(
        family="index_teacher.chunked",
        sm_work=2 * tokens * heads * attended * core.key_width,
        hbm_bytes=copied * gathered * chunks + scores,
        launches=8 * rows * chunks,
    )


def index_backward_tasks(selector: Selector, factor: Factor) -> tuple[Task, ...]:
    """Gradients of index queries, keys and head weights through the k kept scores."""
    rows, width, heads = selector.rows, selector.index.head_dim, selector.index.heads
    kept, overlap = rows.queries * rows.selected, factor("pair_overlap")
    passed = (FP32_BYTES + ROUNDED_BYTES) * rows.held_keys * width
    read = BF16_BYTES * width * (rows.queries * heads + rows.held_keys) + kept * (INT32_BYTES + FP32_BYTES)
    work = Operation(
        family="index_backward",
        flops=3 * selector.flops(rows.queries, rows.selected),
        sm_work=kept * width,
        hbm_bytes=passed + read,
        launches=2,
        units=lambda: {
            "products": kept * selector.index.heads,
            "crowded": kept * crowded(selector.index.heads),
            "gathered_bytes": kept * width * BF16_BYTES,
            "scores": kept,
            # Neighbours in a text select alike; what both selected is read, and added to, in the cache.
            "fresh_bytes": kept * width * BF16_BYTES * (1 - overlap),
            "atomics": kept * width * (1 - overlap),
            "shared_atomics": kept * width * overlap,
        },
        passed_bytes=passed,
    )
    through = Task(name="index_loss.backward", term="index_loss", work=work)
    if selector.system.backend != OWN_BACKEND:
        return (through,)
    slopes = Operation(family="elementwise", hbm_bytes=SLOPE_PASSES * FP32_BYTES * kept, launches=2)
    rounded = Operation(family="elementwise", hbm_bytes=ROUNDED_BYTES * rows.queries * heads * width)
    return (
        Task(name="index_loss.slopes", term="index_loss", work=slopes),
        through,
        Task(name="index_loss.rounded", term="index_loss", work=rounded),
    )
