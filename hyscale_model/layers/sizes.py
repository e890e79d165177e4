"""Sizes of one rank's share of the work, derived from a scenario."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, equals, maximum, minimum, where
from hyscale_model.families.anatomy import Core, Index
from hyscale_model.scenario.schema import DocumentLengths, Scenario

BF16_BYTES = 2
FP32_BYTES = 4
INT32_BYTES = 4
# The backend whose kernels are this project's.
OWN_BACKEND = "hyscale_kernels"
# One FP32 scale per 128 values beside FP8 values (deepseek-ai/DeepSeek-V3.2-Exp inference/kernel.py).
FP8_KEY_BYTES_PER_VALUE = 1 + 4 / 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Derived sizes; every field broadcasts over points and draws.

    Attributes:
        world: GPUs; dp: data-parallel ranks; micro_batches: per step and data-parallel rank.
        tokens: tokens of one micro-batch on one context rank (shared by its tensor ranks).
        queries: tokens of one micro-batch on one GPU; rows of the selection.
        held_tokens: tokens of all sequences of a micro-batch, over all context ranks.
        documents: (length, share of the tokens) of the documents that sequences consist of.
        fp8_index: 1 where the indexer scores in FP8.
    """

    world: Number
    dp: Number
    micro_batches: Number
    tokens: Number
    queries: Number
    held_tokens: Number
    documents: tuple[tuple[Number, float], ...]
    fp8_index: Number

    @classmethod
    def of(cls, case: Scenario) -> Sizes:
        """Derive the sizes of a scenario whose system overrides are applied (one system)."""
        layout, work, cluster = case.layout, case.workload, case.cluster
        world = cluster.nodes * cluster.gpus_per_node
        dp = world // (layout.tp * layout.pp * layout.cp)
        tokens = work.micro_batch_size * work.sequence_length / layout.cp
        return cls(
            world=world,
            dp=dp,
            micro_batches=work.global_batch_size // (dp * work.micro_batch_size),
            tokens=tokens,
            queries=tokens / layout.tp,
            held_tokens=work.micro_batch_size * work.sequence_length,
            documents=documents(case),
            fp8_index=equals(case.training.index_precision, "fp8"),
        )

    def longest(self) -> Number:
        """Length of the longest document."""
        return maximum(*(length for length, _ in self.documents))

    def mean_length(self) -> Number:
        """Mean length of the documents."""
        return 1 / sum(share / length for length, share in self.documents)

    def visible(self, ratio: int) -> Number:
        """Mean entries of ``ratio`` tokens that are complete and not later than a query."""
        return sum(share * mean_visible(length, ratio) for length, share in self.documents)

    def selected(self, bound: Number, ratio: int) -> Number:
        """Mean of min(bound, visible entries)."""
        return sum(share * mean_selected(length, bound, ratio) for length, share in self.documents)


def documents(case: Scenario) -> tuple[tuple[Number, float], ...]:
    """(length, share of the tokens) of the documents packed into a sequence; one document if they are not packed."""
    given = case.workload.document_lengths
    if isinstance(given, DocumentLengths):
        tokens = [length * weight for length, weight in zip(given.lengths, given.weights, strict=True)]
        shares = [each / sum(tokens) for each in tokens]
        return tuple(zip(given.lengths, shares, strict=True))
    return ((case.workload.sequence_length if isinstance(given, str) else given, 1.0),)


def mean_visible(length: Number, ratio: int) -> Number:
    """Mean over positions 1..length of the complete entries of ``ratio`` tokens, floor(position / ratio).

    Entry e is the last complete one for ``ratio`` positions, the last entry K for length - ratio K + 1 of them.
    """
    entries = length // ratio
    return (ratio * entries * (entries - 1) / 2 + (length - ratio * entries + 1) * entries) / length


def mean_selected(length: Number, bound: Number, ratio: int = 1) -> Number:
    """Mean over positions 1..length of min(bound, complete entries of ``ratio`` tokens)."""
    entries = length // ratio
    before = maximum(entries - 1, 0)
    rising = minimum(before, bound)
    full = ratio * (rising * (rising + 1) / 2 + (before - rising) * bound)
    return (full + (length - ratio * entries + 1) * minimum(entries, bound)) / length


def mean_attended(sizes: Sizes, core: Core) -> Number:
    """Mean keys a query attends to; 0 for a linear recurrence."""
    if core.form == "linear":
        return 0.0
    entries = sizes.visible(core.ratio) if core.form == "dense" else 0.0
    if core.topk:
        entries = sizes.selected(core.topk, core.ratio)
    return entries * core.entry_tokens + (sizes.selected(core.window, 1) if core.window else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSizes:
    """What an indexer scores and selects on one rank; every field broadcasts over points and draws.

    Attributes:
        queries: rows; ``held_keys``: keys of a micro-batch that a rank gathers.
        keys: width of a row: keys of the longest document.
        visible: mean keys a query can see; ``scored``: those it scores (all with ``causal_skip`` off).
        slowest_over_mean: scored keys of the busiest context rank over the mean.
        selected: mean keys selected.
    """

    queries: Number
    held_keys: Number
    keys: Number
    visible: Number
    scored: Number
    slowest_over_mean: Number
    selected: Number

    @classmethod
    def of(cls, case: Scenario, sizes: Sizes, index: Index) -> IndexSizes:
        """Sizes of one indexer in a scenario."""
        layout, skip = case.layout, case.systems[0].causal_skip
        keys = sizes.longest() / index.ratio
        visible = sizes.visible(index.ratio)
        # In contiguous order, or when the indexer sees the order undone, the last rank's queries see
        # keys - half a chunk on average; zigzag pairs an early with a late chunk.
        balanced = equals(layout.cp_order, "zigzag") * where(layout.index_balance, 1.0, 0.0)
        # Documents shorter than an entry have nothing to score, and nobody waits.
        last = maximum(keys * (1 - 0.5 / layout.cp), visible) / maximum(visible, 1e-9)
        return cls(
            queries=sizes.queries,
            held_keys=sizes.held_tokens / index.ratio,
            keys=keys,
            visible=visible,
            scored=where(skip, visible, keys),
            slowest_over_mean=where(skip, balanced + (1 - balanced) * last, 1.0),
            selected=sizes.selected(index.topk, index.ratio),
        )


def index_key_bytes(head_dim: Number, fp8: Number) -> Number:
    """Bytes of one index key: BF16, or FP8 with its scale."""
    return head_dim * where(fp8, FP8_KEY_BYTES_PER_VALUE, BF16_BYTES)
