"""Sparse attention over k selected latents, absorbed MLA form, one query or pairs of queries a program.

Floors per rank with n queries, h heads, k selected keys, latent r and rope dimension p:
    forward   2 n h k (2 r + p) FLOP, n k (r + p) gathered values
    backward  2.5 times the forward FLOP (scores again, then gradients of probabilities, queries, keys and values)

Pairs: two neighbouring queries read the union of their keys, (2 - overlap) k of 2 k. Keys read and key gradients
added fall to (2 - overlap) / 2; products rise to (2 - overlap), since each query also meets the other's keys.
The products of a pair are masked, not skipped. Pairs are used in the backward pass, where keys read and gradients
added bind, and only where they shrink the work on the SMs; the forward pass gathers for less than its products.
"""

from __future__ import annotations

from hyscale_model.arrays import Number, minimum, where
from hyscale_model.layers.operation import Factor, Operation
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario

BACKWARD_OVER_FORWARD = 2.5


def attention_flops(case: Scenario, sizes: Sizes) -> Number:
    """2 n h k (2 r + p), the useful FLOP of one forward."""
    model = case.model
    heads = model.num_attention_heads / case.layout.tp
    return 2 * sizes.tokens * heads * sizes.selected * (2 * model.kv_lora_rank + model.qk_rope_head_dim)


def sparse_attention(case: Scenario, sizes: Sizes, factor: Factor) -> tuple[Operation, Operation]:
    """Forward and backward of the attention core under the system's backend and grouping."""
    system, model = case.systems[0], case.model
    heads = model.num_attention_heads / case.layout.tp
    flops = attention_flops(case, sizes)
    width = model.kv_lora_rank + model.qk_rope_head_dim
    rows = sizes.tokens * heads * BF16_BYTES * (width + model.kv_lora_rank)
    latents = sizes.held_keys * width * BF16_BYTES
    indices = sizes.tokens * sizes.selected * INT32_BYTES
    forward = Operation(
        family=f"sparse_attention_forward.{system.backend}", flops=flops, hbm_bytes=rows + latents + indices, launches=1
    )
    back_flops = BACKWARD_OVER_FORWARD * flops
    back_tensor, back_sm = back_flops, back_flops
    if system.sparse_attention == "query_pairs":
        union = 2.0 - factor("pair_overlap")
        keys_part = factor("backward_key_share")
        # Groups whose work on the SMs pairs would not shrink are run one query at a time.
        ratio = keys_part * union / 2 + (1 - keys_part) * union
        back_tensor = back_flops * where(ratio < 1, union, 1.0)
        back_sm = back_flops * minimum(ratio, 1.0)
    backward = Operation(
        family=f"sparse_attention_backward.{system.backend}",
        flops=back_tensor,
        sm_work=back_sm,
        # FP32 key gradients of the whole sequence are zeroed, added to (read and written) and cast to BF16.
        hbm_bytes=2 * rows + latents * (1 + (FP32_BYTES + 3 * FP32_BYTES + BF16_BYTES) / BF16_BYTES) + indices,
        launches=3,
    )
    return forward, backward
