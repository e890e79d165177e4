"""An attention layer in three blocks: projections in, core (selection, attention, index loss), projections out.

Keys and values are gathered over context ranks. In absorbed form (DSA) they are one latent, queries are absorbed into
its space, and attention is multi-query over k selected latents (DeepSeek-V3.2-Exp report).
"""

from __future__ import annotations

from hyscale_model.arrays import Number
from hyscale_model.families.anatomy import Attention, Projection
from hyscale_model.layers.common import cast, elementwise, projection
from hyscale_model.layers.context import after_core, before_core, exchanged_values, reorder, scatter
from hyscale_model.layers.core import core_operations
from hyscale_model.layers.index_loss import index_backward_tasks, index_loss_tasks
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.operation import Block, Factor, Task, Transfer
from hyscale_model.layers.selection import KEEPS_INDICES, Selector, recomputed_selection, selection_tasks
from hyscale_model.layers.sizes import BF16_BYTES, INT32_BYTES, Sizes, index_key_bytes
from hyscale_model.layers.tensor_parallel import gather_again, gather_tokens, scatter_tokens
from hyscale_model.scenario.schema import Scenario

# Switches of a system that the parts of the core depend on; the rest of a part follows from layout and training.
SELECTION_SWITCHES = ("selection", "table_rows", "table_topk", "causal_skip")
LOSS_SWITCHES = ("backend", "causal_skip")
CORE_SWITCHES = ("backend", "sparse_attention", "causal_skip")


def input_block(case: Scenario, sizes: Sizes, attention: Attention, hidden: int) -> Block:
    """Norm, projections before the core and those of the indexer: the same for every system."""
    tp, fp8 = case.layout.tp, _fp8(case)
    passed = sizes.tokens * attention.passed_values / tp
    forward = (
        elementwise("attention.norm", 2 * sizes.queries * hidden),
        *gather_tokens(sizes, case, hidden, "attention"),
        *cast("projection.inputs", "projections", sizes.tokens * _read_values(attention, hidden), fp8),
        *(projection(each, "projections", sizes.tokens, tp, fp8, prefix="projection") for each in attention.before),
        elementwise("projection.passes", passed, launches=4),
        *_index_projections(sizes, attention),
    )
    backward = (
        *gather_again(sizes, case, hidden, "attention"),
        elementwise("projection.passes_backward", 1.5 * passed, launches=4),
        *cast("projection.gradients", "projections", sizes.tokens * _given_values(attention.before, tp), fp8),
        *(
            projection(each, "projections", sizes.tokens, tp, fp8, prefix="projection", products=2)
            for each in reversed(attention.before)
        ),
        *scatter_tokens(sizes, case, hidden, "attention_backward"),
        elementwise("attention.norm_backward", 3 * sizes.queries * hidden),
    )
    return Block(name=f"{attention.kind}.input", forward=forward, recompute=forward, backward=backward)


def core_block(case: Scenario, sizes: Sizes, attention: Attention, factor: Factor, memo: Memo) -> Block:
    """Gathers, selection, attention and index loss; ``memo`` holds parts that other systems share."""
    name, index = attention.kind, attention.index
    with_loss = index is not None and case.training.index_loss == "sparse"
    gathers = memo.part(f"{name}.gathers", case, ("cp_overlap",), lambda: _gathers(case, sizes, attention))
    attend, learn, backward = memo.part(
        f"{name}.core", case, CORE_SWITCHES, lambda: _core(case, sizes, attention, factor, with_loss)
    )
    if index is None:
        forward = (*gathers, *attend)
        return Block(name=f"{name}.core", forward=forward, recompute=forward, backward=backward)
    selector = memo.part(f"{name}.selector", case, SELECTION_SWITCHES, lambda: Selector.of(case, index, sizes))
    # Recomputation policies read the switches of the system itself, whoever built the parts.
    selector = Selector(case, index, sizes, selector.rows)
    selection = memo.part(f"{name}.selection", case, SELECTION_SWITCHES, lambda: selection_tasks(selector, factor))
    teacher = (
        memo.part(f"{name}.loss", case, LOSS_SWITCHES, lambda: index_loss_tasks(selector, attention.core))
        if with_loss
        else ()
    )
    # The first forward of a checkpointed layer runs without gradients, and the loss is computed only with them:
    # Megatron-Core's DSAttention asks for torch.is_grad_enabled().
    checkpointed = case.training.recompute == "full"
    store, load = _offload(selector) if checkpointed else ((), ())
    ahead = attend if checkpointed else (*learn, *teacher)
    again = recomputed_selection(selector, selection, factor)
    # Kept indices are there at once: only the loss asks for scores, and no selection hides the gather of keys.
    kept = selector.system.recompute_selection in KEEPS_INDICES
    return Block(
        name=f"{name}.core",
        forward=(*gathers, *selection, *store, *ahead),
        recompute=(*load, *gathers, *((*learn, *again) if kept else (*again, *learn)), *teacher),
        backward=backward,
    )


def output_block(case: Scenario, sizes: Sizes, attention: Attention, hidden: int) -> Block:
    """From the core to the residual stream: the same for every system."""
    tp, fp8 = case.layout.tp, _fp8(case)
    read = sum(each.groups * each.inputs for each in attention.after) / tp
    forward = (
        *cast("projection.outputs", "projections", sizes.tokens * read, fp8),
        *(projection(each, "projections", sizes.tokens, tp, fp8, prefix="projection") for each in attention.after),
        *scatter_tokens(sizes, case, hidden, "attention"),
        elementwise("attention.residual", 3 * sizes.queries * hidden),
    )
    backward = (
        elementwise("attention.residual_backward", 3 * sizes.queries * hidden),
        *gather_tokens(sizes, case, hidden, "attention_backward"),
        *cast("projection.output_gradients", "projections", sizes.tokens * _given_values(attention.after, tp), fp8),
        *(
            projection(each, "projections", sizes.tokens, tp, fp8, prefix="projection", products=2)
            for each in reversed(attention.after)
        ),
    )
    return Block(name=f"{attention.kind}.output", forward=forward, recompute=forward, backward=backward)


def _fp8(case: Scenario) -> float:
    return float(case.training.precision == "fp8")


def _read_values(attention: Attention, hidden: int) -> int:
    """Distinct values a token brings to the projections before the core."""
    return hidden + sum(each.groups * each.inputs for each in attention.before if each.inputs != hidden)


def _given_values(projections: tuple[Projection, ...], tp: Number) -> Number:
    """Values a token gets from projections on one tensor rank, as many as their gradients have."""
    return sum(each.groups * each.outputs / (tp if each.split in ("outputs", "groups") else 1) for each in projections)


def _offload(selector: Selector) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Copies of the kept selection to host memory after the forward selection, and back before it is needed."""
    system = selector.system
    if system.index_storage == "device" or system.recompute_selection not in KEEPS_INDICES:
        return (), ()
    kept = INT32_BYTES * selector.rows.queries * selector.index.topk
    out, back = (Transfer(kind=kind, group="host", payload_bytes=kept) for kind in ("to_host", "from_host"))
    store = Task(name="offload.store", term="offload", work=out, blocking=False)
    load = Task(name="offload.load", term="offload", work=back, blocking=False)
    return (store,), (load,)


def _core(
    case: Scenario, sizes: Sizes, attention: Attention, factor: Factor, with_loss: bool
) -> tuple[tuple[Task, ...], tuple[Task, ...], tuple[Task, ...]]:
    """Reordering and attention without and with the index loss behind it, and all tasks of the core's backward."""
    core = attention.core
    pair = core_operations(case, sizes, core, factor)
    if case.layout.cp_kind != "allgather" and not (isinstance(case.layout.cp, int) and case.layout.cp == 1):
        forward = Task(name=f"{pair.term}.forward", term=pair.term, work=pair.forward)
        ahead = (*before_core(case, sizes, core, False), forward, *after_core(case, sizes, core, False))
        return (
            ahead,
            ahead,
            (
                *before_core(case, sizes, core, True),
                Task(name=f"{pair.term}.backward", term=pair.term, work=pair.backward),
                *after_core(case, sizes, core, True),
            ),
        )
    values = exchanged_values(case, core)
    ordered = reorder("cp.keys_reorder", case, sizes, values, after=("cp.keys",))
    after = ("cp.keys", "offload.load")
    attend = (*ordered, Task(name=f"{pair.term}.forward", term=pair.term, work=pair.forward, after=after))
    learn = attend
    if with_loss and pair.taught is not None:
        learn = (*ordered, Task(name=f"{pair.term}.forward", term=pair.term, work=pair.taught, after=after))
    return (
        attend,
        learn,
        (
            Task(name=f"{pair.term}.backward", term=pair.term, work=pair.backward),
            *scatter("cp.keys_gradient", case, sizes, values),
            *(_index_backward(case, sizes, attention, factor) if with_loss else ()),
        ),
    )


def _index_projections(sizes: Sizes, attention: Attention) -> tuple[Task, ...]:
    index, rows, term = attention.index, sizes.queries, "index_projections"
    if index is None:
        return ()
    return (
        *(projection(each, term, rows, 1, 0.0, prefix="index") for each in index.projections),
        elementwise("index.norm_rope", 2 * rows * (index.heads + 1) * index.head_dim, term, launches=3),
    )


def _gathers(case: Scenario, sizes: Sizes, attention: Attention) -> tuple[Task, ...]:
    """All-gathers over context ranks; scoring needs the index keys, only attention needs keys and values."""
    if case.layout.cp_kind != "allgather":
        return ()
    keys, index = gathered_bytes(case, sizes, attention)
    term = "cp_communication_exposed"
    overlap = case.systems[0].cp_overlap == "behind_selection"
    tasks: list[Task] = []
    if attention.index is not None:
        work = Transfer(kind="all_gather", group="cp", payload_bytes=index)
        tasks.append(Task(name="cp.index_keys", term=term, work=work))
    if attention.core.gathered_values:
        work = Transfer(kind="all_gather", group="cp", payload_bytes=keys)
        tasks.append(Task(name="cp.keys", term=term, work=work, blocking=not overlap))
    if attention.index is not None:
        width = attention.index.head_dim / attention.index.ratio
        tasks += reorder("cp.index_key_reorder", case, sizes, width)
    return tuple(tasks)


def gathered_bytes(case: Scenario, sizes: Sizes, attention: Attention) -> tuple[Number, Number]:
    """Bytes of keys and values, and of index keys, of the whole micro-batch on one rank."""
    core, index = attention.core, attention.index
    keys = sizes.held_tokens * exchanged_values(case, core) * BF16_BYTES
    if index is None:
        return keys, 0.0
    return keys, sizes.held_tokens / index.ratio * index_key_bytes(index.head_dim, sizes.fp8_index)


def _index_backward(case: Scenario, sizes: Sizes, attention: Attention, factor: Factor) -> tuple[Task, ...]:
    """Through the kept scores to the index projections; their inputs are detached, so weight gradients only."""
    index = attention.index
    assert index is not None
    width, rows, term = index.head_dim / index.ratio, sizes.queries, "index_projections"
    selector = Selector.of(case, index, sizes)
    return (
        *index_backward_tasks(selector, factor),
        *scatter("cp.index_key_gradient", case, sizes, width),
        elementwise("index.norm_rope_backward", 3 * rows * (index.heads + 1) * index.head_dim, term, launches=3),
        *(projection(each, term, rows, 1, 0.0, prefix="index.gradient") for each in index.projections),
    )
