"""The feed-forward block of a layer: dense SwiGLU, or mixture of experts over expert-parallel ranks.

Floors per rank with n tokens, hidden h, intermediate i, t experts a token:
    dense   3 x 2 n h i FLOP
    MoE     3 x 2 n t h i FLOP in routed experts (balanced), the same with t = shared experts; router 2 n h E
    send    n t h values out and back, less what stays on the rank
"""

from __future__ import annotations

from hyscale_model.arrays import Number, equals, where
from hyscale_model.layers.attention import elementwise, gemm
from hyscale_model.layers.operation import Block, Operation, Task, Transfer, TransferKind
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.layers.tensor_parallel import gather_tokens, scatter_tokens
from hyscale_model.scenario.schema import Scenario


def dense_block(case: Scenario, sizes: Sizes) -> Block:
    """A dense SwiGLU feed-forward."""
    forward, backward = (_dense(case, sizes, back) for back in (False, True))
    return Block(name="dense_ffn", forward=forward, recompute=forward, backward=backward)


def _dense(case: Scenario, sizes: Sizes, backward: bool) -> tuple[Task, ...]:
    model, fp8 = case.model, float(case.training.precision == "fp8")
    width = model.intermediate_size / case.layout.tp
    passes = 2 if backward else 1
    tasks = (
        elementwise("ffn.norm", (2 + backward) * sizes.queries * model.hidden_size),
        *gather_tokens(case, sizes, "ffn"),
        gemm("ffn.up_gate", "dense_ffn", sizes.tokens, model.hidden_size, 2 * width, fp8, backward),
        elementwise("ffn.swiglu", passes * 3 * sizes.tokens * width),
        gemm("ffn.down", "dense_ffn", sizes.tokens, width, model.hidden_size, fp8, backward),
        *scatter_tokens(case, sizes, "ffn"),
        elementwise("ffn.residual", 3 * sizes.queries * model.hidden_size),
    )
    return tasks


def moe_block(case: Scenario, sizes: Sizes) -> Block:
    """Router, dispatch, routed experts, combine, shared experts."""
    forward, backward = (_moe(case, sizes, back) for back in (False, True))
    return Block(name="moe", forward=forward, recompute=forward, backward=backward)


def _moe(case: Scenario, sizes: Sizes, backward: bool) -> tuple[Task, ...]:
    model, layout = case.model, case.layout
    fp8 = float(case.training.precision == "fp8")
    rows, hidden = sizes.queries, model.hidden_size
    passes = 2 if backward else 1
    copies = rows * model.num_experts_per_tok
    width = model.moe_intermediate_size / layout.etp
    shared_width = model.n_shared_experts * model.moe_intermediate_size / layout.tp
    tasks = [
        elementwise("moe.norm", (2 + backward) * rows * hidden),
        gemm("moe.router", "moe", rows, hidden, model.n_routed_experts, 0.0, backward),
        elementwise("moe.permute", 2 * copies * hidden, "moe", launches=3),
        _exchange("moe.dispatch", case, sizes),
        *_expert_tensor("moe.gather", "all_gather", case, copies),
        elementwise("moe.sort", 2 * copies * layout.etp * hidden, "moe", launches=2),
        *_experts(case, copies * layout.etp, width, fp8, passes),
        elementwise("moe.unsort", 2 * copies * layout.etp * hidden, "moe", launches=2),
        *_expert_tensor("moe.scatter", "reduce_scatter", case, copies),
        _exchange("moe.combine", case, sizes),
        elementwise("moe.unpermute", 2 * copies * hidden, "moe", launches=2),
    ]
    if model.n_shared_experts:
        tasks += [
            *gather_tokens(case, sizes, "shared"),
            gemm("moe.shared_up_gate", "moe", sizes.tokens, hidden, 2 * shared_width, fp8, backward),
            elementwise("moe.shared_swiglu", passes * 3 * sizes.tokens * shared_width, "moe"),
            gemm("moe.shared_down", "moe", sizes.tokens, shared_width, hidden, fp8, backward),
            *scatter_tokens(case, sizes, "shared"),
        ]
    tasks.append(elementwise("moe.residual", 3 * rows * hidden))
    return tuple(tasks)


def _experts(case: Scenario, copies: Number, width: Number, fp8: Number, passes: int) -> tuple[Task, ...]:
    """Grouped products of the mean rank, and the wait for the busiest one."""
    model, layout = case.model, case.layout
    hidden = model.hidden_size
    local = model.n_routed_experts / layout.ep
    flops = passes * 3 * 2 * copies * hidden * width
    weights = local * 3 * hidden * width
    values = copies * (2 * hidden + 3 * width)
    activation = passes * BF16_BYTES * 3 * copies * width
    experts = Operation(
        family="grouped_gemm",
        flops=flops,
        hbm_bytes=passes * BF16_BYTES * (weights + values),
        fp8=fp8,
        launches=2 * passes,
    )
    excess = case.training.moe_imbalance - 1
    waits = Operation(family="grouped_gemm", flops=flops * excess, fp8=fp8, launches=0)
    return (
        Task(name="moe.experts", term="moe", work=experts),
        Task(name="moe.swiglu", term="moe", work=Operation(family="elementwise", hbm_bytes=activation)),
        Task(name="moe.wait", term="waiting", work=waits),
    )


def _exchange(name: str, case: Scenario, sizes: Sizes) -> Task:
    """All-to-all of token copies, as long as at the busiest rank.

    Plain all-to-all sends a token once to each of its experts. DeepEP sends it once to each node that holds one,
    or, inside a single node, once to each such rank.
    """
    layout, experts = case.layout, case.model.num_experts_per_tok
    nodes = layout.ep * layout.etp / case.cluster.gpus_per_node
    holders = where(nodes > 1, nodes, layout.ep)
    copies = where(equals(case.systems[0].dispatcher, "deepep"), distinct(holders, experts), experts)
    sent = sizes.queries * copies
    payload = case.training.moe_imbalance * sent * case.model.hidden_size * BF16_BYTES
    work = Transfer(kind="all_to_all", group="ep", payload_bytes=payload)
    return Task(name=name, term="ep_communication_exposed", work=work)


def _expert_tensor(name: str, kind: TransferKind, case: Scenario, copies: Number) -> tuple[Task, ...]:
    """Tokens of all expert-tensor ranks come together before the experts and part after; nothing at etp = 1."""
    etp = case.layout.etp
    if isinstance(etp, int) and etp == 1:
        return ()
    payload = BF16_BYTES * copies * etp * case.model.hidden_size
    work = Transfer(kind=kind, group="etp", payload_bytes=payload)
    return (Task(name=name, term="ep_communication_exposed", work=work),)


def distinct(holders: Number, experts: Number) -> Number:
    """Mean number of distinct holders (nodes, ranks) of a token's t experts, uniform routing: N (1 - (1 - 1/N)^t)."""
    return holders * (1 - (1 - 1 / holders) ** experts)
