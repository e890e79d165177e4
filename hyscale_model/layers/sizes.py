"""Sizes of one rank's share of the work, derived from a scenario."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, equals, minimum, where
from hyscale_model.scenario.schema import Scenario

BF16_BYTES = 2
FP32_BYTES = 4
INT32_BYTES = 4
# One FP32 scale per 128 values beside FP8 values (deepseek-ai/DeepSeek-V3.2-Exp inference/kernel.py).
FP8_KEY_BYTES_PER_VALUE = 1 + 4 / 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Derived sizes; every field broadcasts over points and draws.

    Attributes:
        world: GPUs; dp: data-parallel ranks; micro_batches: per step and data-parallel rank.
        tokens: tokens of one micro-batch on one context rank (shared by its tensor ranks).
        queries: tokens of one micro-batch on one GPU; rows of the selection.
        keys: keys of a sequence; ``held_keys``: of all sequences of a micro-batch, which a rank gathers.
        visible: mean keys a query can see, causally.
        scored: mean keys scored per query (``visible``, or all with ``causal_skip`` off).
        slowest_over_mean: scored keys of the busiest context rank over the mean.
        selected: mean keys attended per query.
        fp8_index: 1 where the indexer scores in FP8.
    """

    world: Number
    dp: Number
    micro_batches: Number
    tokens: Number
    queries: Number
    keys: Number
    held_keys: Number
    visible: Number
    scored: Number
    slowest_over_mean: Number
    selected: Number
    fp8_index: Number

    @classmethod
    def of(cls, case: Scenario) -> Sizes:
        """Derive the sizes of a scenario whose system overrides are applied (one system)."""
        layout, work, cluster, model = case.layout, case.workload, case.cluster, case.model
        system = case.systems[0]
        world = cluster.nodes * cluster.gpus_per_node
        dp = world // (layout.tp * layout.pp * layout.cp)
        tokens = work.micro_batch_size * work.sequence_length / layout.cp
        keys = work.sequence_length
        visible = (keys + 1) / 2
        scored = where(system.causal_skip, visible, keys)
        # In contiguous order, or when the indexer sees the order undone, the last rank's queries see
        # keys - half a chunk on average; zigzag pairs an early with a late chunk.
        balanced = equals(layout.cp_order, "zigzag") * where(layout.index_balance, 1.0, 0.0)
        last = (keys * (1 - 0.5 / layout.cp)) / visible
        slowest = where(system.causal_skip, balanced + (1 - balanced) * last, 1.0)
        selected = mean_selected(keys, model.index_topk)
        return cls(
            world=world,
            dp=dp,
            micro_batches=work.global_batch_size // (dp * work.micro_batch_size),
            tokens=tokens,
            queries=tokens / layout.tp,
            keys=keys,
            held_keys=work.micro_batch_size * keys,
            visible=visible,
            scored=scored,
            slowest_over_mean=slowest,
            selected=selected,
            fp8_index=equals(case.training.index_precision, "fp8"),
        )


def mean_selected(keys: Number, topk: Number) -> Number:
    """Mean of min(position, k) over positions 1..keys: k - k (k - 1) / (2 keys) for keys > k."""
    bounded = minimum(topk, keys)
    return bounded - bounded * (bounded - 1) / (2 * keys)


def index_key_bytes(head_dim: Number, fp8: Number) -> Number:
    """Bytes of one index key: BF16, or FP8 with its scale."""
    return head_dim * where(fp8, FP8_KEY_BYTES_PER_VALUE, BF16_BYTES)
