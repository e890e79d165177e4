"""What a model consists of, as data: projections, attention cores, indexers, feed-forwards, by kind of layer.

Families translate Hugging Face configurations into this form; everything that counts parameters, FLOP or bytes
reads it and knows no family.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Split = Literal["outputs", "inputs", "groups", "none"]
AttentionKind = Literal["dsa", "dsa_shared", "csa", "hca", "swa", "qsa", "gdn", "gqa", "mla", "mha"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A product of every token with weights: ``groups`` matrices of inputs x outputs.

    Attributes:
        split: what tensor parallelism divides; none: every tensor rank has all of it.
        bias: further parameters, without FLOP.
    """

    name: str
    inputs: int
    outputs: int
    groups: int = 1
    split: Split = "none"
    bias: int = 0

    @property
    def weights(self) -> int:
        """Weights that meet every token."""
        return self.groups * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self.weights + self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An indexer: scores of ``heads`` query heads with one key head, top-k over keys of ``ratio`` tokens each.

    Attributes:
        projections: of queries, keys and head weights.
        parameters: norms and biases beside the projections.
        normed_queries: whether its queries go through a norm, which keeps them as they were.
    """

    heads: int
    head_dim: int
    topk: int
    ratio: int
    projections: tuple[Projection, ...]
    parameters: int = 0
    normed_queries: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The product of attention weights and values, or a linear recurrence.

    Attributes:
        form: sparse: ``topk`` selected entries; dense: every visible entry; linear: a state instead of keys.
        heads: query heads; ``groups``: key-value heads they share.
        key_width, value_width: widths in the core; 2 (key + value) FLOP per key and head.
        gathered_values: values a token contributes to what context ranks gather, compressed ones in part.
        ratio: tokens an entry stands for; ``entry_tokens``: keys attended for a selected entry.
        window: last tokens attended besides, as they are.
        dropout: whether attention weights are dropped out, which unfused kernels keep a mask and a copy for.
    """

    form: Literal["sparse", "dense", "linear"]
    heads: int
    groups: int
    key_width: int
    value_width: int
    gathered_values: float
    topk: int = 0
    ratio: int = 1
    entry_tokens: int = 1
    window: int = 0
    dropout: bool = False

    @property
    def flops_per_key(self) -> int:
        """FLOP of all heads for one key of one query."""
        return 2 * self.heads * (self.key_width + self.value_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One kind of attention layer.

    Attributes:
        before, after: projections before and after the core.
        index: the indexer it computes; None for layers that select nothing or share another's selection.
        norm_parameters: weights of norms, sinks, convolutions.
        passed_values: BF16 values a token reads and writes in norms, rotary embedding, gates, convolutions.
        normed_values: values of a token's heads that go through a norm of their own before the core, which keeps them.
    """

    kind: AttentionKind
    before: tuple[Projection, ...]
    after: tuple[Projection, ...]
    core: Core
    index: Index | None = None
    norm_parameters: int = 0
    passed_values: int = 0
    normed_values: int = 0

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All projections but the indexer's."""
        return (*self.before, *self.after)

    @property
    def parameters(self) -> int:
        """Parameters without the indexer."""
        return sum(each.parameters for each in self.projections) + self.norm_parameters

    @property
    def index_parameters(self) -> int:
        """Parameters of the indexer."""
        if self.index is None:
            return 0
        return sum(each.parameters for each in self.index.projections) + self.index.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense feed-forward or a mixture of experts.

    Attributes:
        kind: which.
        matrices: 3 for gated (SwiGLU), 2 for plain ones.
        intermediate: width of the dense layer, or of one routed expert.
        experts, chosen: routed experts, and how many a token meets; 0 for dense.
        groups, open_groups: groups the experts are divided into, and of how many a token may choose experts.
        shared_intermediate: summed width of the shared experts.
        router_parameters: of the gate, with biases.
        bias: biases of a dense layer.
    """

    kind: Literal["dense_ffn", "moe"]
    intermediate: int
    matrices: int = 3
    experts: int = 0
    chosen: int = 0
    groups: int = 1
    open_groups: int = 1
    shared_intermediate: int = 0
    router_parameters: int = 0
    bias: int = 0

    def expert_parameters(self, hidden: int) -> int:
        """Parameters of one routed expert."""
        return self.matrices * hidden * self.intermediate

    def shared_parameters(self, hidden: int) -> int:
        """Parameters every rank of a tensor group shares: dense layer, shared experts."""
        width = self.intermediate if self.kind == "dense_ffn" else self.shared_intermediate
        return self.matrices * hidden * width + self.bias


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Anatomy:
    """A model. Equal models have one anatomy (see ``families.anatomy``), so it counts by identity.

    Attributes:
        layers: (attention kind, feed-forward kind) of each layer.
        attentions, feed_forwards: what the kinds are.
        norm_parameters: norms around the two blocks of a layer.
        embedding, head: parameters before the first and after the last layer.
        tied: whether the output head multiplies by the embedding, and so has no matrix of its own.
        table: parameters that are looked up, not multiplied (n-gram embeddings).
        streams: residual streams of hyper-connections; 1: an ordinary residual.
        predicted: (attention kind, feed-forward kind) of each layer that predicts a further token, behind the last one.
        dropout: whether each block ends with dropout, which keeps a mask.
    """

    hidden: int
    vocabulary: int
    layers: tuple[tuple[AttentionKind, str], ...]
    attentions: tuple[Attention, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_parameters: int
    embedding: int
    head: int
    tied: bool = False
    table: int = 0
    streams: int = 1
    predicted: tuple[tuple[AttentionKind, str], ...] = ()
    dropout: bool = False

    @property
    def predicted_layers(self) -> int:
        """Layers of multi-token prediction."""
        return len(self.predicted)

    def attention(self, kind: str) -> Attention:
        """The attention of a kind."""
        return next(each for each in self.attentions if each.kind == kind)

    def feed_forward(self, kind: str) -> FeedForward:
        """The feed-forward of a kind."""
        return next(each for each in self.feed_forwards if each.kind == kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters without multi-token prediction and hyper-connections; the n-gram table apart.

    ``active``: what a token meets, embedding and head included. ``multiplied``: weights it is multiplied by, without
    the embedding, which is looked up, and with the head, tied or not. ``indexers``: the part of it in indexers.
    """

    total: int
    active: int
    multiplied: int
    embedding: int
    indexers: int
    table: int


@lru_cache(maxsize=256)
def layer_counts(anatomy: Anatomy) -> tuple[tuple[tuple[AttentionKind, str], int], ...]:
    """How often each kind of layer stands in the model: ((attention kind, feed-forward kind), layers)."""
    return tuple(Counter(anatomy.layers).items())


@lru_cache(maxsize=256)
def count_parameters(anatomy: Anatomy) -> ParameterCount:
    """Sum over layers."""
    total = active = indexers = 0
    for (attention_kind, ffn_kind), layers in layer_counts(anatomy):
        attention, ffn = anatomy.attention(attention_kind), anatomy.feed_forward(ffn_kind)
        always = (
            attention.parameters
            + attention.index_parameters
            + ffn.shared_parameters(anatomy.hidden)
            + ffn.router_parameters
            + anatomy.norm_parameters
        )
        expert = ffn.expert_parameters(anatomy.hidden)
        total += layers * (always + ffn.experts * expert)
        active += layers * (always + ffn.chosen * expert)
        indexers += layers * attention.index_parameters
    outside = anatomy.embedding + anatomy.head
    return ParameterCount(
        total=total + outside,
        active=active + outside,
        multiplied=active + anatomy.head + (anatomy.vocabulary * anatomy.hidden if anatomy.tied else 0),
        embedding=anatomy.embedding,
        indexers=indexers,
        table=anatomy.table,
    )
