"""What a layer keeps from its forward to its backward pass, module by module.

A product keeps its input for the gradient of its weights, a norm its input, an activation function its input, fused
attention its queries, keys, values, output and one FP32 statistic a query and head. Every tensor counts once however
many readers it has. With n tokens of a tensor rank's shard, T = n tp tokens of its group, hidden h, BF16:

    norm                2 h n in, 2 h n out (which the products behind it share); of queries and keys 2 T a d / tp in
    grouped attention   2 T (a + 2 g) d / tp queries, keys, values; 2 T a d / tp output; 4 T a / tp statistics
    latent attention    the same with heads of their own widths, and 2 x 2 n r for each low-rank vector and its norm
    unfused core        T S a / tp (2 softmax + 1 mask + 2 dropped-out): 5 a s^2 b of Korthikanti et al.
    dense feed-forward  2 T f / tp for each product in, and for what the last product reads
    experts             for each copy of a token 2 h as sorted, 2 f for each product in and for what the last one reads
    dropout             h n bytes for the mask behind each block
    FP8                 inputs of products in 1 byte; what attention, norms and activation functions read stays BF16, so
                        that the output of attention exists in both

For a GPT with dropout, tensor and sequence parallelism this is s b h (34 + 5 a s / h) / tp (arXiv 2205.05198, equation
4; without sequence parallelism equation 2). Which tensors are kept was read off Megatron-LM (snapshot of 2026-08-22)
and Transformer Engine 2.9: LayerNormLinear and Linear keep shards and gather them again, permutation keeps row maps
alone, and router probabilities are applied inside the activation so that the last product's output is not kept.

Names of modules are those of Megatron-LM's ``--recompute-modules``, beside ``always`` for what no policy drops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hyscale_model.arrays import Number, equals, maximum, where
from hyscale_model.families.anatomy import Anatomy, Attention, FeedForward
from hyscale_model.layers.routing import busiest_load
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, INT32_BYTES, OWN_BACKEND, Sizes
from hyscale_model.layers.tiles import TOGETHER, TOGETHER_UP_TO
from hyscale_model.scenario.schema import Scenario

# Softmax, the mask of its dropout (one byte) and what dropout leaves, of one query, key and head.
UNFUSED_BYTES = BF16_BYTES + 1 + BF16_BYTES
# FP32 logits, scores and probabilities of one token and expert, its entry of the map and of the row numbers.
ROUTER_BYTES = 3 * FP32_BYTES + 1 + 2 * INT32_BYTES
# Keys, values or latents of absorbed attention are counted with what context ranks gather.
ABSORBED = ("sparse",)
FP8_BYTES = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes by module of one block and micro-batch on one GPU.

    Attributes:
        modules: bytes by name of the recomputed module that drops them.
        policy: modules that are recomputed.
        later: the part of an attention that its core and what follows make, which is not there while keys are selected.
        graph: what is made before the core and kept for gradients alone; a forward without gradients drops it as soon
            as the core has its operands.
        behind: what products behind the core keep of one another, gone by the time of the core's backward.
    """

    modules: Mapping[str, Number]
    policy: frozenset[str]
    later: Number = 0.0
    graph: Number = 0.0
    behind: Number = 0.0

    @property
    def whole(self) -> Number:
        """All of it, as it is right before the block's backward."""
        return sum(self.modules.values())

    @property
    def stored(self) -> Number:
        """What the policy leaves between forward and backward."""
        return sum(size for name, size in self.modules.items() if name not in self.policy)


def policy_of(case: Scenario, ffn: FeedForward | None = None) -> frozenset[str]:
    """Modules that selective recomputation drops; the whole ``moe`` includes its parts."""
    if case.training.recompute != "selective":
        return frozenset()
    names = set(case.training.recompute_modules)
    if ffn is not None and ffn.kind == "moe":
        names.discard("mlp")
    return frozenset(names | ({"moe_act", "shared_experts"} if "moe" in names else set()))


def input_bytes(case: Scenario) -> int:
    """Bytes of a value that a product keeps of its input."""
    return FP8_BYTES if case.training.precision == "fp8" else BF16_BYTES


def shard_tokens(case: Scenario, sizes: Sizes) -> Number:
    """Tokens whose norms and residuals a tensor rank holds: its shard, or all without sequence parallelism."""
    return sizes.queries if case.layout.sequence_parallel else sizes.tokens


def attention_kept(case: Scenario, sizes: Sizes, attention: Attention, body: Anatomy) -> Kept:
    """Tensors of an attention block; see the module."""
    layout, core, hidden = case.layout, attention.core, body.hidden
    shard, rows, tp = shard_tokens(case, sizes), sizes.tokens, layout.tp
    low_rank = sum(each.outputs for each in attention.before if each.inputs == hidden and each.split == "none")
    queries = core.heads / tp * core.key_width
    groups = maximum(core.groups / tp, 1)
    keys = 0.0 if core.form in ABSORBED else groups * (core.key_width + core.value_width)
    context = core.heads / tp * core.value_width
    beyond = _beyond(case, attention, body, queries + keys)
    # A part of it is absorbed, and views of the other part hold all of it.
    absorbs = any(each.split == "groups" for each in attention.before)
    absorbed = sum(each.outputs for each in attention.before if each.split == "outputs") / tp if absorbs else 0.0
    behind = sum(each.groups * each.inputs for each in attention.after[1:]) / tp
    each = input_bytes(case)
    operands = BF16_BYTES * rows * (queries + keys)
    # The first product behind the core reads its output: the same tensor, or a narrower copy.
    copied = context if each != BF16_BYTES else 0.0
    latent = any(each.inputs not in (hidden,) and each.split == "outputs" for each in attention.before)
    normed = attention.normed_values / tp
    modules: dict[str, Number] = {
        "always": BF16_BYTES * (shard * hidden + rows * (context + beyond + normed))
        + each * rows * (behind + absorbed + copied)
        + _index_bytes(sizes, attention)
        + _mask(body, shard),
        "layernorm": each * shard * hidden,
        "core_attn": _statistics(case, sizes, attention) + _lists(case, sizes, attention),
    }
    # The vector as projected stays; its norm and what is projected up from it are recomputed together.
    modules["mla_up_proj"] = operands + each * shard * low_rank if latent else 0.0
    modules["always"] = modules["always"] + (BF16_BYTES * shard * low_rank if latent else operands)
    later = BF16_BYTES * rows * context + each * rows * (behind + copied) + modules["core_attn"]
    graph = each * (rows * absorbed + shard * (hidden + low_rank)) + BF16_BYTES * shard * low_rank
    return Kept(modules, policy_of(case), later, graph, each * rows * behind)


def _beyond(case: Scenario, attention: Attention, body: Anatomy, operands: Number) -> Number:
    """Gates and inputs of convolutions of a token: what projections of the hidden state give beyond ``operands``."""
    split = (each.outputs for each in attention.before if each.split == "outputs" and each.inputs == body.hidden)
    return maximum(sum(split) / case.layout.tp - operands, 0.0)


def _index_bytes(sizes: Sizes, attention: Attention) -> Number:
    index = attention.index
    if index is None:
        return 0.0
    queries = index.heads * (1 + index.normed_queries)
    return BF16_BYTES * sizes.queries * (queries + 1) * index.head_dim


def _statistics(case: Scenario, sizes: Sizes, attention: Attention) -> Number:
    """What the core keeps beside operands and output, all of which recomputing the core restores.

    Exchanged by all-to-all, the output exists in both layouts: split by heads for the core's own backward, by tokens
    for the product behind it.
    """
    core, layout = attention.core, case.layout
    heads = core.heads / layout.tp
    if core.form == "linear":
        return 0.0
    if case.training.attention_backend == "unfused" and core.form == "dense":
        # Without a fused kernel every key is there, visible or not.
        each = UNFUSED_BYTES if core.dropout else BF16_BYTES
        return each * sizes.tokens * heads * sizes.mean_length()
    twice = equals(layout.cp_kind, "alltoall") * where(layout.cp > 1, 1.0, 0.0)
    return sizes.tokens * heads * (FP32_BYTES + twice * BF16_BYTES * core.value_width)


def _lists(case: Scenario, sizes: Sizes, attention: Attention) -> Number:
    """Keys of every query as this project's kernels read them, beside the indices.

    All tokens of entries with the window; of queries that share a pass a list, and where each has its keys.
    """
    system, core = case.systems[0], attention.core
    if system.backend != OWN_BACKEND or not core.topk:
        return 0.0
    keys = core.topk * core.entry_tokens + core.window
    paired = system.sparse_attention == "query_pairs"
    own = keys if keys != core.topk else 0
    together = TOGETHER_UP_TO * keys * (1 + 1 / TOGETHER)
    return INT32_BYTES * sizes.tokens * (own + (together if paired else 0))


def _mask(body: Anatomy, shard: Number) -> Number:
    return shard * body.hidden if body.dropout else 0.0


def feed_forward_kept(case: Scenario, sizes: Sizes, ffn: FeedForward, body: Anatomy) -> Kept:
    """Tensors of a feed-forward block; see the module."""
    shard, hidden, up = shard_tokens(case, sizes), body.hidden, ffn.matrices - 1
    each = input_bytes(case)
    modules: dict[str, Number] = {
        "always": BF16_BYTES * shard * hidden + _mask(body, shard),
        "layernorm": each * shard * hidden,
    }
    if ffn.kind == "dense_ffn":
        modules["mlp"] = (BF16_BYTES * up + each) * sizes.tokens * ffn.intermediate / case.layout.tp
        return Kept(modules, policy_of(case, ffn))
    copies, width = expert_copies(case, sizes, ffn), ffn.intermediate / case.layout.etp
    modules["moe"] = copies * (each * hidden + BF16_BYTES * up * width) + ROUTER_BYTES * shard * ffn.experts
    modules["moe_act"] = each * copies * width
    shared = (BF16_BYTES * up + each) * ffn.shared_intermediate / case.layout.tp
    modules["shared_experts"] = sizes.tokens * shared
    return Kept(modules, policy_of(case, ffn))


def expert_copies(case: Scenario, sizes: Sizes, ffn: FeedForward) -> Number:
    """Copies of tokens that the experts of the busiest rank receive."""
    return sizes.queries * ffn.chosen * case.layout.etp * busiest_load(case, ffn)


def attention_gradients(case: Scenario, sizes: Sizes, attention: Attention, body: Anatomy) -> Number:
    """Gradients alive at once in a core's backward: of its operands, its output, a gate and the residual stream."""
    core, tp = attention.core, case.layout.tp
    keys = 0.0 if core.form in ABSORBED else maximum(core.groups / tp, 1) * (core.key_width + core.value_width)
    values = core.heads / tp * (core.key_width + core.value_width) + keys
    sparse = core.form == "sparse"
    if sparse:
        # The gate of an output has its gradient before the core has those of its operands.
        operands = core.heads / tp * core.key_width + maximum(core.groups / tp, 1) * (core.key_width + core.value_width)
        values = values + _beyond(case, attention, body, operands)
    unused = _unused_gradients(case, sizes, attention)
    return BF16_BYTES * (sizes.tokens * values + shard_tokens(case, sizes) * body.hidden) + unused


def _unused_gradients(case: Scenario, sizes: Sizes, attention: Attention) -> Number:
    """FP32 zeros that autograd makes for outputs nothing flows back to, as it does unless an operator declines.

    This project's sparse attention returns logarithms and, where an indexer learns of them, probabilities of its keys.
    """
    core = attention.core
    if case.systems[0].backend != OWN_BACKEND or not core.topk:
        return 0.0
    learns = equals(case.training.index_loss, "sparse") if attention.index else 0.0
    keys = core.topk * core.entry_tokens + core.window
    return FP32_BYTES * sizes.tokens * (core.heads / case.layout.tp + learns * keys)


def feed_forward_gradients(case: Scenario, sizes: Sizes, ffn: FeedForward, body: Anatomy) -> Number:
    """Gradients alive at once in a feed-forward's backward, beyond what it has freed by then.

    Dense: that of the activation function's input; its output's takes the place of what the last product had kept.
    Experts: of the last product's output and input, or sent and received copies, whichever is more. With tensor
    parallelism a gathered copy of the block's input too.
    """
    up, hidden = ffn.matrices - 1, body.hidden
    residual = BF16_BYTES * shard_tokens(case, sizes) * hidden
    gathered = where(case.layout.tp > 1, BF16_BYTES * sizes.tokens * hidden, 0.0)
    if ffn.kind == "dense_ffn":
        return BF16_BYTES * sizes.tokens * up * ffn.intermediate / case.layout.tp + residual + gathered
    width = ffn.intermediate / case.layout.etp
    return BF16_BYTES * expert_copies(case, sizes, ffn) * maximum(2 * hidden, hidden + width, up * width) + residual


def layer_input_bytes(case: Scenario, sizes: Sizes, body: Anatomy) -> Number:
    """The input of a layer, all its residual streams, that full recomputation starts from."""
    return BF16_BYTES * shard_tokens(case, sizes) * body.hidden * body.streams
