"""The attention of a DSA layer in three blocks: projections in, core (selection, sparse attention, index loss), out.

Keys and values are one latent of r + rope values a token, gathered over context ranks; queries are absorbed into
its space, so attention is multi-query over k selected latents (DeepSeek-V3.2-Exp report; absorbed MLA).
"""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number, equals, where
from hyscale_model.layers.index_loss import index_backward_tasks, index_loss_tasks
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.operation import Block, Factor, Operation, Task, Transfer
from hyscale_model.layers.selection import KEEPS_INDICES, recomputed_selection, selection_tasks
from hyscale_model.layers.sizes import BF16_BYTES, INT32_BYTES, Sizes, index_key_bytes
from hyscale_model.layers.sparse_attention import sparse_attention
from hyscale_model.layers.tensor_parallel import gather_tokens, scatter_tokens
from hyscale_model.scenario.schema import Scenario


def gemm(
    name: str, term: str, tokens: Number, inputs: Number, outputs: Number, fp8: Number, backward: bool = False
) -> Task:
    """A projection of ``tokens`` rows; its backward is two products (input and weight gradient) of the same size."""
    products = 2 if backward else 1
    moved = BF16_BYTES * (tokens * (inputs + outputs) + inputs * outputs)
    work = Operation(
        family="gemm",
        flops=products * 2 * tokens * inputs * outputs,
        hbm_bytes=products * moved,
        fp8=fp8,
        launches=products,
    )
    return Task(name=name, term=term, work=work)


def elementwise(name: str, values: Number, term: str = "other_compute", launches: int = 1) -> Task:
    """A pass that reads and writes ``values`` BF16 values in all."""
    return Task(
        name=name, term=term, work=Operation(family="elementwise", hbm_bytes=BF16_BYTES * values, launches=launches)
    )


# Switches of a system that the parts of the core depend on; the rest of a part follows from layout and training.
SELECTION_SWITCHES = ("selection", "table_rows", "table_topk", "causal_skip")
CORE_SWITCHES = ("backend", "sparse_attention")


def input_block(case: Scenario, sizes: Sizes) -> Block:
    """Norm, MLA projections into latent space and index projections: the same for every system."""
    model, tokens, fp8 = case.model, sizes.tokens, _fp8(case)
    heads = model.num_attention_heads / case.layout.tp
    hidden, latent = model.hidden_size, model.kv_lora_rank + model.qk_rope_head_dim
    key = model.qk_nope_head_dim + model.qk_rope_head_dim
    term = "projections"
    forward = (
        elementwise("attention.norm", 2 * sizes.queries * hidden),
        *gather_tokens(case, sizes, "attention"),
        gemm("projection.q_down", term, tokens, hidden, model.q_lora_rank, fp8),
        gemm("projection.kv_down", term, tokens, hidden, latent, fp8),
        elementwise("projection.norms", 2 * tokens * (model.q_lora_rank + latent), launches=3),
        gemm("projection.q_up", term, tokens, model.q_lora_rank, heads * key, fp8),
        _absorb("projection.q_absorb", case, sizes, model.qk_nope_head_dim, fp8),
        elementwise("projection.rope", 2 * tokens * heads * model.qk_rope_head_dim),
        *_index_projections(case, sizes),
    )
    backward = (
        _absorb("projection.q_absorb", case, sizes, model.qk_nope_head_dim, fp8, backward=True),
        gemm("projection.q_up", term, tokens, model.q_lora_rank, heads * key, fp8, backward=True),
        elementwise("projection.norms_backward", 3 * tokens * (model.q_lora_rank + latent), launches=3),
        gemm("projection.q_down", term, tokens, hidden, model.q_lora_rank, fp8, backward=True),
        gemm("projection.kv_down", term, tokens, hidden, latent, fp8, backward=True),
        *scatter_tokens(case, sizes, "attention_backward"),
        elementwise("attention.norm_backward", 3 * sizes.queries * hidden),
    )
    return Block(name="attention_input", forward=forward, recompute=forward, backward=backward)


def core_block(case: Scenario, sizes: Sizes, factor: Factor, memo: Memo) -> Block:
    """Gathers, selection, sparse attention and index loss; ``memo`` holds parts that other systems share."""
    with_loss = case.training.index_loss == "sparse"
    gathers = memo.part("gathers", case, ("cp_overlap",), lambda: _gathers(case, sizes))
    selection = memo.part("selection", case, SELECTION_SWITCHES, lambda: selection_tasks(case, sizes, factor))
    attend, backward = memo.part("core", case, CORE_SWITCHES, lambda: _core(case, sizes, factor, with_loss))
    teacher = memo.part("index loss", case, (), lambda: index_loss_tasks(case, sizes)) if with_loss else ()
    # The first forward of a checkpointed layer runs without gradients, and the loss is computed only with them:
    # Megatron-Core's DSAttention asks for torch.is_grad_enabled().
    checkpointed = case.training.recompute == "full"
    store, load = _offload(case, sizes) if checkpointed else ((), ())
    return Block(
        name="attention_core",
        forward=(*gathers, *selection, *store, *attend, *(() if checkpointed else teacher)),
        recompute=(*load, *gathers, *recomputed_selection(case, sizes, selection), *attend, *teacher),
        backward=backward,
    )


def _offload(case: Scenario, sizes: Sizes) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Copies of the kept selection to host memory after the forward selection, and back before it is needed."""
    system = case.systems[0]
    if system.index_storage == "device" or system.recompute_selection not in KEEPS_INDICES:
        return (), ()
    kept = INT32_BYTES * sizes.queries * case.model.index_topk
    work = Transfer(kind="copy", group="host", payload_bytes=kept)
    store = Task(name="offload.store", term="offload", work=work, blocking=False)
    load = Task(name="offload.load", term="offload", work=work, blocking=False)
    return (store,), (load,)


def output_block(case: Scenario, sizes: Sizes) -> Block:
    """From latent space to the residual stream: the same for every system."""
    model, fp8 = case.model, _fp8(case)
    width, hidden = model.num_attention_heads / case.layout.tp * model.v_head_dim, model.hidden_size
    forward = (
        _absorb("projection.v_absorb", case, sizes, model.v_head_dim, fp8),
        gemm("projection.output", "projections", sizes.tokens, width, hidden, fp8),
        *scatter_tokens(case, sizes, "attention"),
        elementwise("attention.residual", 3 * sizes.queries * hidden),
    )
    backward = (
        elementwise("attention.residual_backward", 3 * sizes.queries * hidden),
        *gather_tokens(case, sizes, "attention_backward"),
        gemm("projection.output", "projections", sizes.tokens, width, hidden, fp8, backward=True),
        _absorb("projection.v_absorb", case, sizes, model.v_head_dim, fp8, backward=True),
    )
    return Block(name="attention_output", forward=forward, recompute=forward, backward=backward)


def _fp8(case: Scenario) -> float:
    return float(case.training.precision == "fp8")


def _core(case: Scenario, sizes: Sizes, factor: Factor, with_loss: bool) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Reordering and attention of forward and recomputation, and all tasks of the core's backward."""
    model = case.model
    latent = model.kv_lora_rank + model.qk_rope_head_dim
    forward, backward = sparse_attention(case, sizes, factor)
    attend = (
        *_reorder("cp.latent_reorder", case, sizes, latent, after=("cp.latent",)),
        Task(
            name="sparse_attention.forward", term="sparse_attention", work=forward, after=("cp.latent", "offload.load")
        ),
    )
    return attend, (
        Task(name="sparse_attention.backward", term="sparse_attention", work=backward),
        *_reorder("cp.latent_gradient_reorder", case, sizes, latent),
        _scatter("cp.latent_gradient", case, sizes, latent),
        *(_index_backward(case, sizes) if with_loss else ()),
    )


def _reorder(name: str, case: Scenario, sizes: Sizes, width: Number, after: tuple[str, ...] = ()) -> tuple[Task, ...]:
    """Puts a gathered sequence of ``width`` BF16 values a token from zigzag rank order into sequence order."""
    values = 2 * sizes.held_keys * width
    zigzag = equals(case.layout.cp_order, "zigzag") * where(case.layout.cp > 1, 1.0, 0.0)
    if not isinstance(zigzag, np.ndarray) and not zigzag:
        return ()
    work = Operation(family="elementwise", hbm_bytes=BF16_BYTES * values * zigzag, launches=zigzag)
    return (Task(name=name, term="other_compute", work=work, after=after),)


def _absorb(name: str, case: Scenario, sizes: Sizes, width: Number, fp8: Number, backward: bool = False) -> Task:
    """Per-head product between head space and latent space: n heads r width x 2 FLOP."""
    model = case.model
    heads = model.num_attention_heads / case.layout.tp
    products = 2 if backward else 1
    flops = products * 2 * sizes.tokens * heads * model.kv_lora_rank * width
    moved = products * BF16_BYTES * sizes.tokens * heads * (model.kv_lora_rank + width)
    return Task(
        name=name,
        term="projections",
        work=Operation(family="gemm", flops=flops, hbm_bytes=moved, fp8=fp8, launches=products),
    )


def _index_projections(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    model, rows = case.model, sizes.queries
    query = model.index_n_heads * model.index_head_dim
    term = "index_projections"
    return (
        gemm("index.query", term, rows, model.q_lora_rank, query, 0.0),
        gemm("index.key", term, rows, model.hidden_size, model.index_head_dim, 0.0),
        gemm("index.weights", term, rows, model.hidden_size, model.index_n_heads, 0.0),
        elementwise("index.norm_rope", 2 * rows * (query + model.index_head_dim), term, launches=3),
    )


def _gathers(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """All-gathers over context ranks; scoring needs the index keys, only attention needs the latents."""
    latent, index = _gathered_bytes(case, sizes)
    term = "cp_communication_exposed"
    overlap = case.systems[0].cp_overlap == "behind_selection"
    return (
        Task(name="cp.index_keys", term=term, work=Transfer(kind="all_gather", group="cp", payload_bytes=index)),
        Task(
            name="cp.latent",
            term=term,
            work=Transfer(kind="all_gather", group="cp", payload_bytes=latent),
            blocking=not overlap,
        ),
        *_reorder("cp.index_key_reorder", case, sizes, case.model.index_head_dim),
    )


def _gathered_bytes(case: Scenario, sizes: Sizes) -> tuple[Number, Number]:
    model, tokens = case.model, sizes.held_keys
    latent = tokens * (model.kv_lora_rank + model.qk_rope_head_dim) * BF16_BYTES
    return latent, tokens * index_key_bytes(model.index_head_dim, sizes.fp8_index)


def gathered_bytes(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of latents and index keys of the whole sequence on one rank."""
    latent, index = _gathered_bytes(case, sizes)
    return latent + index


def _index_backward(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """Through the kept scores to the index projections; their inputs are detached, so weight gradients only."""
    model, rows = case.model, sizes.queries
    query = model.index_n_heads * model.index_head_dim
    return (
        *index_backward_tasks(case, sizes),
        *_reorder("cp.index_key_gradient_reorder", case, sizes, model.index_head_dim),
        _scatter("cp.index_key_gradient", case, sizes, model.index_head_dim),
        gemm("index.query.weight_gradient", "index_loss", rows, model.q_lora_rank, query, 0.0),
        gemm("index.key.weight_gradient", "index_loss", rows, model.hidden_size, model.index_head_dim, 0.0),
        gemm("index.weights.weight_gradient", "index_loss", rows, model.hidden_size, model.index_n_heads, 0.0),
    )


def _scatter(name: str, case: Scenario, sizes: Sizes, width: Number) -> Task:
    """Reduce-scatter of a BF16 gradient of the gathered sequence, ``width`` values a token."""
    payload = BF16_BYTES * sizes.held_keys * width
    return Task(
        name=name,
        term="cp_communication_exposed",
        work=Transfer(kind="reduce_scatter", group="cp", payload_bytes=payload),
    )
