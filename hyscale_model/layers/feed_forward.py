"""The feed-forward block of a layer: dense SwiGLU, or mixture of experts over expert-parallel ranks.

Floors per rank with n tokens, hidden h, intermediate i, t experts a token:
    dense   3 x 2 n h i FLOP
    MoE     3 x 2 n t h i FLOP in routed experts (balanced), the same with t = shared experts; router 2 n h E
    send    n t h values out and back, less what stays on the rank
"""

from __future__ import annotations

from dataclasses import replace

from hyscale_model.arrays import Number, equals, maximum, where
from hyscale_model.families.anatomy import FeedForward
from hyscale_model.layers.common import cast, elementwise, gemm, inverse_depth
from hyscale_model.layers.operation import Block, Operation, Task, Transfer, TransferKind
from hyscale_model.layers.routing import busiest_load, copies_to, mean_load
from hyscale_model.layers.sizes import BF16_BYTES, Sizes
from hyscale_model.layers.tensor_parallel import gather_again, gather_tokens, scatter_tokens
from hyscale_model.layers.tiles import product_turns
from hyscale_model.scenario.schema import Scenario

# Small kernels around the top-k of a router: scores, normalisation, maps, auxiliary loss, counts of tokens (Megatron-LM
# megatron/core/transformer/moe/{router,moe_utils,token_dispatcher}.py), over rows of one FP32 value an expert.
ROUTING_LAUNCHES = 30
ROUTING_PASSES = 2 * 12
EXCHANGES = ("moe.dispatch", "moe.combine")
# Streams on which Transformer Engine runs the products of a rank's experts.
EXPERT_STREAMS = 4


def feed_forward_block(case: Scenario, sizes: Sizes, ffn: FeedForward, hidden: int) -> Block:
    """Dense, or router, dispatch, routed experts, combine, shared experts."""
    build = _dense if ffn.kind == "dense_ffn" else _moe
    forward, backward = (build(case, sizes, ffn, hidden, back) for back in (False, True))
    return Block(name=ffn.kind, forward=forward, recompute=forward, backward=backward)


def _dense(case: Scenario, sizes: Sizes, ffn: FeedForward, hidden: int, backward: bool) -> tuple[Task, ...]:
    return (
        elementwise("ffn.norm", (2 + backward) * sizes.queries * hidden),
        *gather_tokens(sizes, case, hidden, "ffn"),
        *(gather_again(sizes, case, hidden, "ffn") if backward else ()),
        *_two_products(
            "ffn", "dense_ffn", case, sizes, ffn.matrices, ffn.intermediate / case.layout.tp, hidden, backward
        ),
        *scatter_tokens(sizes, case, hidden, "ffn"),
        elementwise("ffn.residual", 3 * sizes.queries * hidden),
    )


def _two_products(
    name: str, term: str, case: Scenario, sizes: Sizes, matrices: int, width: Number, hidden: int, backward: bool
) -> tuple[Task, ...]:
    """Up (and gate), activation, down, of every token on one tensor rank."""
    fp8 = float(case.training.precision == "fp8")
    passes = 2 if backward else 1
    up = matrices - 1
    values = sizes.tokens * (hidden + (up if backward else 1) * width)
    return (
        *cast(f"{name}.inputs", term, values, fp8),
        gemm(f"{name}.up", term, sizes.tokens, hidden, up * width, fp8, backward),
        elementwise(f"{name}.activation", passes * (up + 1) * sizes.tokens * width, term),
        gemm(f"{name}.down", term, sizes.tokens, width, hidden, fp8, backward),
    )


def _moe(case: Scenario, sizes: Sizes, ffn: FeedForward, hidden: int, backward: bool) -> tuple[Task, ...]:
    layout, rows = case.layout, sizes.queries
    copies = rows * ffn.chosen * mean_load(case, ffn)
    shared = _shared(case, sizes, ffn, hidden, backward) if ffn.shared_intermediate else ()
    beside = layout.moe_shared_expert_overlap
    # Beside the exchange: the first product of the shared experts behind the dispatch, the last behind the combine.
    cut = next((place for place, task in enumerate(shared) if task.name == "moe.shared.down"), 0)
    first, last, behind = (shared[:cut], shared[cut:], ()) if beside else ((), (), shared)
    dispatch, combine = (replace(_exchange(name, case, sizes, ffn, hidden), blocking=not beside) for name in EXCHANGES)
    sort = elementwise("moe.sort", 2 * copies * layout.etp * hidden, "moe", launches=2)
    unpermute = elementwise("moe.unpermute", 2 * copies * hidden, "moe", launches=2)
    return (
        elementwise("moe.norm", (2 + backward) * rows * hidden),
        gemm("moe.router", "moe", rows, hidden, ffn.experts, 0.0, backward),
        elementwise("moe.routing", ROUTING_PASSES * rows * ffn.experts, "moe", ROUTING_LAUNCHES),
        elementwise("moe.permute", 2 * copies * hidden, "moe", launches=3),
        dispatch,
        *first,
        *_expert_tensor("moe.gather", "all_gather", case, copies, hidden),
        replace(sort, after=EXCHANGES[:1]),
        *_experts(case, ffn, copies * layout.etp, hidden, 2 if backward else 1),
        elementwise("moe.unsort", 2 * copies * layout.etp * hidden, "moe", launches=2),
        *_expert_tensor("moe.scatter", "reduce_scatter", case, copies, hidden),
        combine,
        *last,
        replace(unpermute, after=EXCHANGES[1:]),
        *behind,
        elementwise("moe.residual", 3 * rows * hidden),
    )


def _shared(case: Scenario, sizes: Sizes, ffn: FeedForward, hidden: int, backward: bool) -> tuple[Task, ...]:
    """The shared experts: every token meets them."""
    width = ffn.shared_intermediate / case.layout.tp
    return (
        *gather_tokens(sizes, case, hidden, "shared"),
        *(gather_again(sizes, case, hidden, "shared") if backward else ()),
        *_two_products("moe.shared", "moe", case, sizes, ffn.matrices, width, hidden, backward),
        *scatter_tokens(sizes, case, hidden, "shared"),
    )


def _experts(case: Scenario, ffn: FeedForward, copies: Number, hidden: int, passes: int) -> tuple[Task, ...]:
    """Grouped products of the mean rank, and the wait for the busiest one."""
    layout, fp8 = case.layout, float(case.training.precision == "fp8")
    width = ffn.intermediate / layout.etp
    flops = passes * ffn.matrices * 2 * copies * hidden * width
    weights = ffn.experts / layout.ep * ffn.matrices * hidden * width
    values = copies * (2 * hidden + ffn.matrices * width)
    written = passes * copies * ((ffn.matrices - 1) * width + hidden)
    share = copies * layout.ep / ffn.experts
    experts = Operation(
        family="grouped_gemm",
        flops=flops,
        hbm_bytes=passes * BF16_BYTES * (weights + values),
        fp8=fp8,
        inverse_depth=(
            inverse_depth(share, hidden, (ffn.matrices - 1) * width, passes) * (ffn.matrices - 1)
            + inverse_depth(share, width, hidden, passes)
        )
        / ffn.matrices,
        # One product an expert (Transformer Engine's GroupedLinear), on several streams.
        launches=2 * passes * ffn.experts / layout.ep / EXPERT_STREAMS,
        host_launches=2 * passes * ffn.experts / layout.ep,
        units=lambda: {"values": written},
        turns=lambda sms: product_turns(copies, (ffn.matrices - 1) * width, sms, ffn.experts / layout.ep),
    )
    activation = passes * BF16_BYTES * ffn.matrices * copies * width
    excess = busiest_load(case, ffn) / mean_load(case, ffn) - 1
    waits = Operation(
        family="grouped_gemm",
        flops=flops * excess,
        fp8=fp8,
        launches=0,
        units=lambda: {"values": written * excess},
    )
    cast_values = copies * (hidden + (1 if passes == 1 else ffn.matrices - 1) * width)
    return (
        *cast("moe.expert_inputs", "moe", cast_values, fp8),
        Task(name="moe.experts", term="moe", work=experts),
        Task(name="moe.activation", term="moe", work=Operation(family="elementwise", hbm_bytes=activation)),
        Task(name="moe.wait", term="waiting", work=waits),
    )


def _exchange(name: str, case: Scenario, sizes: Sizes, ffn: FeedForward, hidden: int) -> Task:
    """All-to-all of token copies, as long as at the busiest rank.

    Plain all-to-all sends a token once to each of its experts. DeepEP sends it once to each node that holds one, where
    it goes on to each such rank.
    """
    layout, dispatcher = case.layout, case.systems[0].dispatcher
    tokens = busiest_load(case, ffn) * sizes.queries * hidden * BF16_BYTES
    nodes = maximum(layout.ep * layout.etp / case.cluster.gpus_per_node, 1)
    to_nodes, to_ranks = copies_to(nodes, ffn), copies_to(layout.ep, ffn)
    if isinstance(dispatcher, str) and dispatcher == "deepep":
        work = Transfer(kind="deepep", group="ep", payload_bytes=tokens, node_copies=to_nodes, rank_copies=to_ranks)
    else:
        # Where dispatchers are drawn, DeepEP is the all-to-all of what crosses its slower link.
        fewer = where(nodes > 1, to_nodes, to_ranks)
        copies = where(equals(dispatcher, "deepep"), fewer, ffn.chosen)
        work = Transfer(kind="all_to_all", group="ep", payload_bytes=tokens * copies)
    return Task(name=name, term="ep_communication_exposed", work=work)


def _expert_tensor(name: str, kind: TransferKind, case: Scenario, copies: Number, hidden: int) -> tuple[Task, ...]:
    """Tokens of all expert-tensor ranks come together before the experts and part after; nothing at etp = 1."""
    etp = case.layout.etp
    if isinstance(etp, int) and etp == 1:
        return ()
    payload = BF16_BYTES * copies * etp * hidden
    work = Transfer(kind=kind, group="etp", payload_bytes=payload)
    return (Task(name=name, term="ep_communication_exposed", work=work),)
