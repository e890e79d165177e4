"""The sparse index loss: KL between attention summed over heads and the indexer's softmax, on the selected set.

Floors per rank with n queries, h attention heads, k selected keys, H index heads of width D:
    teacher    2 x 2 n h k (r + p) FLOP: softmax statistics first, then probabilities (Megatron-Core)
    KL         a few passes over n k FP32 values
    backward   3 x 2 n k H D FLOP (scores again, query and key gradients), n k D atomic adds to key gradients
Inputs of the indexer are detached, so nothing flows on to the hidden state.
"""

from __future__ import annotations

from hyscale_model.layers.operation import Operation, Task
from hyscale_model.layers.selection import score_flops
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, Sizes
from hyscale_model.layers.tensor_parallel import exchange
from hyscale_model.scenario.schema import Scenario

TEACHER_PASSES = 2
KL_PASSES = 6


def index_loss_tasks(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """Teacher and KL with its gradient to the k kept scores, as forward and recomputation run them."""
    model = case.model
    heads = model.num_attention_heads / case.layout.tp
    width = model.kv_lora_rank + model.qk_rope_head_dim
    kept = sizes.queries * sizes.selected
    teacher = Operation(
        family="index_teacher",
        flops=TEACHER_PASSES * 2 * sizes.tokens * heads * sizes.selected * width,
        hbm_bytes=TEACHER_PASSES * BF16_BYTES * (sizes.tokens * heads * width + sizes.held_keys * width)
        + FP32_BYTES * kept,
        launches=TEACHER_PASSES,
    )
    divergence = Operation(family="elementwise", hbm_bytes=KL_PASSES * FP32_BYTES * kept, launches=4)
    return (
        Task(name="index_loss.teacher", term="index_loss", work=teacher),
        # Probabilities are summed over the heads of all tensor ranks.
        *exchange("tp.teacher", "reduce_scatter", case, FP32_BYTES * sizes.tokens * sizes.selected),
        Task(name="index_loss.kl", term="index_loss", work=divergence),
    )


def index_backward_tasks(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """Gradients of index queries, keys and head weights through the k kept scores."""
    model = case.model
    kept = sizes.queries * sizes.selected
    work = Operation(
        family="index_backward",
        flops=3 * score_flops(sizes.queries, sizes.selected, case),
        sm_work=kept * model.index_head_dim,
        hbm_bytes=2 * FP32_BYTES * sizes.held_keys * model.index_head_dim + kept * (INT32_BYTES + FP32_BYTES),
        launches=2,
    )
    return (Task(name="index_loss.backward", term="index_loss", work=work),)
