"""Selection of a sparse-attention layer: scores of every key, top-k, and what recomputation does again.

Floors per rank, with n queries, L keys of which V are scored per query, H index heads of width D:
    scores       2 n V H D FLOP
    table        4 n L bytes written once, read once by the top-k
    candidates   8 n c bytes (score and position), c expected candidates
    replay       2 n k H D FLOP over n k D gathered key values
DSA scores tokens, CSA compressed entries, QSA blocks; they differ in these numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.arrays import Number, ceil_div, maximum, minimum, where
from hyscale_model.families.anatomy import Index
from hyscale_model.layers.collected import CAPACITY as ROW_CAPACITY
from hyscale_model.layers.collected import COLLECTED_AT_ONCE, LEAST_CAPACITY, PIECE, SORTED_AT_ONCE, emptied, row_units
from hyscale_model.layers.hytopk import CAPACITY, RECOVERY_ROWS, HyTopKSizes, mean_samples
from hyscale_model.layers.operation import Factor, Operation, Task
from hyscale_model.layers.sizes import (
    FP32_BYTES,
    INT32_BYTES,
    OWN_BACKEND,
    IndexSizes,
    Sizes,
    index_key_bytes,
    mean_selected,
)
from hyscale_model.layers.tensor_parallel import exchange
from hyscale_model.layers.tiles import UNCROWDED_HEADS
from hyscale_model.scenario.schema import Scenario, System

CANDIDATE_BYTES = FP32_BYTES + INT32_BYTES
# torch.topk returns FP32 values and INT64 indices.
TOPK_OUTPUT_BYTES = FP32_BYTES + 8
# Products of a score in the kernels whose rates the profile states: 32 heads of width 128.
REFERENCE_FLOPS = 2 * 32 * 128
# Places that are sorted for a candidate.
SLOTS_PER_CANDIDATE = 1.5
# Rows that an SM sorts side by side at most, one by eight warps.
MOST_SORTED = 8
# Policies that keep the selection of every layer in flight.
KEEPS_INDICES = ("keep_indices", "skip", "replay")


@dataclass(frozen=True, slots=True)
class Selector:
    """One indexer in a scenario of one system."""

    case: Scenario
    index: Index
    sizes: Sizes
    rows: IndexSizes

    @classmethod
    def of(cls, case: Scenario, index: Index, sizes: Sizes) -> Selector:
        """With the sizes of its rows."""
        return cls(case, index, sizes, IndexSizes.of(case, sizes, index))

    @property
    def system(self) -> System:
        """The system that selects."""
        return self.case.systems[0]

    @property
    def family(self) -> str:
        """Kernel family of its scoring."""
        return "index_scoring.filter" if self.system.selection == "hytopk" else "index_scoring.table"

    @property
    def blocks(self) -> Number:
        """Blocks of rows in which the score table is made."""
        rows = self.system.table_rows
        return 1 if isinstance(rows, str) else ceil_div(self.rows.queries, rows)

    def flops(self, queries: Number, keys: Number) -> Number:
        """2 n V H D: products of every query head with every scored key."""
        return 2 * queries * keys * self.index.heads * self.index.head_dim

    def scoring(
        self, queries: Number, keys: Number, factor: Factor, *, written: Number = 0.0, launches: Number = 1
    ) -> Operation:
        """Scores of ``keys`` keys for each of ``queries`` queries.

        Part of a scoring kernel's work is done once a score, however many heads it sums: weighting, comparing,
        storing. The profile's rates are those of 32 heads, of whose time that part is ``*_per_score``.
        """
        once = factor("filter_per_score" if self.system.selection == "hytopk" else "table_per_score")
        fp8 = self.sizes.fp8_index
        key_bytes = index_key_bytes(self.index.head_dim, fp8)
        # Each document's queries read that document's keys.
        documents = self.sizes.held_tokens / self.sizes.mean_length()
        read = minimum(keys * documents, self.rows.held_keys)
        return Operation(
            family=self.family,
            flops=self.flops(queries, keys),
            sm_work=(1 - once) * self.flops(queries, keys) + once * queries * keys * REFERENCE_FLOPS,
            hbm_bytes=(queries * self.index.heads + read) * key_bytes + written,
            fp8=fp8,
            launches=launches,
            units=lambda: {"products": queries * keys * self.index.heads, "scores": queries * keys},
        )


def selection_tasks(selector: Selector, factor: Factor) -> tuple[Task, ...]:
    """The forward selection: the score-table path or HyTopK, then waiting for the busiest context rank."""
    if selector.system.selection == "hytopk":
        operations = _hytopk(selector, factor)
    else:
        operations = {**table_scoring(selector, factor), **table_topk(selector, factor)}
    return as_tasks(operations, "selection") + _waiting(selector) + _shared_indices(selector)


def _shared_indices(selector: Selector) -> tuple[Task, ...]:
    """Tensor ranks select for a share of the rows each and gather the indices of all; nothing at tp = 1."""
    payload = INT32_BYTES * selector.sizes.tokens * selector.index.topk
    return exchange("tp.indices", "all_gather", selector.case, payload)


def as_tasks(operations: dict[str, Operation], term: str) -> tuple[Task, ...]:
    """Tasks of one term, in order."""
    return tuple(Task(name=name, term=term, work=work) for name, work in operations.items())


def _waiting(selector: Selector) -> tuple[Task, ...]:
    """Time the mean rank waits for the context rank that scores most; nothing when the order is balanced."""
    rows = selector.rows
    excess = rows.slowest_over_mean - 1
    if not isinstance(excess, float) or excess > 0:
        flops = selector.flops(rows.queries * excess, rows.scored)
        work = Operation(
            family=selector.family,
            flops=flops,
            fp8=selector.sizes.fp8_index,
            launches=0,
            units=lambda: {
                "products": rows.queries * excess * rows.scored * selector.index.heads,
                "scores": rows.queries * excess * rows.scored,
            },
        )
        return (Task(name="selection.wait", term="waiting", work=work),)
    return ()


def table_scoring(selector: Selector, factor: Factor) -> dict[str, Operation]:
    """Scores written to an FP32 table, and the pass that writes -inf over what was skipped.

    Megatron-Core's TileLang path: blocks of ``table_rows`` queries, acausal tiles skipped, then a clean-up
    of the acausal part of the full-width table.
    """
    rows, blocks = selector.rows, selector.blocks
    written = FP32_BYTES * rows.queries * rows.scored
    cleaned = FP32_BYTES * rows.queries * (rows.keys - rows.visible)
    return {
        "selection.score": selector.scoring(rows.queries, rows.scored, factor, written=written, launches=blocks),
        "selection.clean_up": Operation(family="elementwise", hbm_bytes=cleaned, launches=blocks),
    }


def table_topk(selector: Selector, factor: Factor) -> dict[str, Operation]:
    """Top-k over full-width rows (but for this project's radix, masked columns too), then INT32 indices with masks."""
    system, rows, blocks = selector.system, selector.rows, selector.blocks
    table = FP32_BYTES * rows.queries * rows.keys
    kept = rows.queries * selector.index.topk
    masked = where(system.causal_skip, factor("masked_topk"), 1.0)
    # Conversion to INT32, masks and the copy read and write the indices again.
    tidy = kept * (TOPK_OUTPUT_BYTES + 8 + 3 * INT32_BYTES)
    seen = FP32_BYTES * rows.queries * rows.scored
    own = system.table_topk == "radix" and system.backend == OWN_BACKEND

    def units() -> dict[str, Number]:
        if system.table_topk == "radix":
            return _radix_units(selector)
        return {"visible_bytes": seen, "masked_bytes": table - seen, "rows": rows.queries}

    return {
        "selection.topk": Operation(
            family=f"topk_{system.table_topk}",
            sm_work=table * masked,
            # This project's reads nothing of what is masked.
            hbm_bytes=(seen if own else table) + kept * TOPK_OUTPUT_BYTES,
            passed_bytes=seen if system.table_topk == "radix" else 0.0,
            launches=5 * blocks,
            units=units,
        ),
        "selection.indices": Operation(family="elementwise", hbm_bytes=tidy, launches=4 * blocks),
    }


def _radix_units(selector: Selector) -> dict[str, Number]:
    """Work of the radix top-k, of rows of the mean length, and of one that is read again where samples mislead."""
    rows, blocks = selector.rows, selector.blocks
    each = row_units(rows.scored, selector.index.topk, rows.keys)
    missed = each.pop("missed")
    again = blocks * (1 - (1 - missed) ** (rows.queries / blocks)) * rows.scored
    return {**{unit: rows.queries * amount for unit, amount in each.items()}, "again": again}


def _hytopk(selector: Selector, factor: Factor) -> dict[str, Operation]:
    """Sample, threshold, filter, check, recover, select: HyTopK without a table."""
    rows, topk, ratio = selector.rows, selector.index.topk, selector.index.ratio
    queries, documents = rows.queries, selector.sizes.documents
    samples = sum(share * mean_samples(length / ratio) for length, share in documents)
    # A causal query of context l expects 3k candidates, or all of its keys.
    candidates = sum(
        share * mean_selected(length, HyTopKSizes.of(length / ratio, topk).candidates, ratio)
        for length, share in documents
    )
    appended = CANDIDATE_BYTES * queries * candidates
    sampled = FP32_BYTES * queries * samples
    key_bytes = index_key_bytes(selector.index.head_dim, selector.sizes.fp8_index)

    def chosen(found: Number, read: Number) -> dict[str, Number]:
        seen = read / queries
        rounds, lines = emptied(found / maximum(read, 1.0))
        steps = queries * ceil_div(seen, PIECE) * (1 + rounds)
        slots = found * SLOTS_PER_CANDIDATE
        return {
            "rounds": steps,
            "steps": steps / COLLECTED_AT_ONCE,
            "lines": read / PIECE * lines,
            "scores": found,
            # Sorted with a power of two of places, of which half are filled at least.
            "slots": slots,
            # Of twice as many places an SM takes so many rows at once.
            "rows": queries / maximum(1.0, minimum(SORTED_AT_ONCE * queries / maximum(2 * slots, 1.0), MOST_SORTED)),
            "products": found * selector.index.heads,
            "crowded": found * crowded(selector.index.heads),
            "gathered_bytes": found * key_bytes,
            "fresh_bytes": found * key_bytes * (1 - factor("pair_overlap")),
        }

    return {
        "selection.sample": selector.scoring(queries, samples, factor, written=sampled),
        # Of samples, none is marked, gathered or scored again.
        "selection.threshold": Operation(
            family="candidate_select", sm_work=sampled, hbm_bytes=sampled, units=lambda: chosen(0.0, 0.0)
        ),
        "selection.filter": selector.scoring(queries, rows.scored, factor, written=appended),
        "selection.check": Operation(family="elementwise", hbm_bytes=INT32_BYTES * queries),
        "selection.recover": selector.scoring(minimum(RECOVERY_ROWS, queries), rows.keys, factor, launches=4),
        "selection.select": Operation(
            family="candidate_select",
            sm_work=FP32_BYTES * queries * candidates,
            hbm_bytes=appended + INT32_BYTES * queries * topk,
            launches=3,
            units=lambda: chosen(queries * candidates, queries * rows.scored),
        ),
    }


def crowded(heads: int) -> int:
    """Heads, where they are too many for the usual tile of gathered keys; else 0."""
    return heads if heads > UNCROWDED_HEADS else 0


def replay_scoring(selector: Selector, factor: Factor) -> dict[str, Operation]:
    """Scores of the k kept keys only: what the index loss needs of recomputation."""
    rows, fp8 = selector.rows, selector.sizes.fp8_index
    kept = rows.queries * rows.selected
    gathered = rows.held_keys * index_key_bytes(selector.index.head_dim, fp8)
    return {
        "selection.replay": Operation(
            family="replay_scoring",
            flops=selector.flops(rows.queries, rows.selected),
            hbm_bytes=gathered + kept * (INT32_BYTES + FP32_BYTES),
            fp8=fp8,
            units=lambda: {
                "products": kept * selector.index.heads,
                "crowded": kept * crowded(selector.index.heads),
                "scores": kept,
                "gathered_bytes": kept * index_key_bytes(selector.index.head_dim, fp8),
                "fresh_bytes": kept * index_key_bytes(selector.index.head_dim, fp8) * (1 - factor("pair_overlap")),
            },
        )
    }


def recomputed_selection(selector: Selector, forward: tuple[Task, ...], factor: Factor) -> tuple[Task, ...]:
    """What selection costs in recomputation under the system's policy.

    rerun repeats the forward tasks themselves; keep_scores repeats the top-k on the kept table; keep_indices
    scores everything again for the loss; skip scores nothing, as the kept scores stay beside the indices; replay
    scores the kept entries, which only the index loss reads.
    """
    policy = selector.system.recompute_selection
    if policy == "rerun":
        return forward
    by_name = {task.name: task.work for task in forward if isinstance(task.work, Operation)}
    if policy == "keep_scores":
        again = {name: work for name, work in by_name.items() if name in ("selection.topk", "selection.indices")}
        return as_tasks(again, "selection")
    if policy == "keep_indices":
        scoring = ("selection.score", "selection.clean_up", "selection.filter")
        rescored = {name: work for name, work in by_name.items() if name in scoring}
        return as_tasks(rescored, "selection") + tuple(task for task in forward if task.term == "waiting")
    if policy == "replay" and selector.case.training.index_loss == "sparse":
        return as_tasks(replay_scoring(selector, factor), "selection")
    return ()


def score_table_bytes(selector: Selector) -> Number:
    """Bytes of the FP32 table that exists at once: min(table_rows, n) rows of L scores."""
    size, queries = selector.system.table_rows, selector.rows.queries
    return FP32_BYTES * (queries if isinstance(size, str) else minimum(size, queries)) * selector.rows.keys


def kept_table_bytes(selector: Selector) -> Number:
    """Bytes of all of a layer's scores, for the policy that keeps them, whatever the block size."""
    return FP32_BYTES * selector.rows.queries * selector.rows.keys


def candidate_bytes(selector: Selector) -> Number:
    """Bytes of HyTopK's candidate buffers (6k a query) and of its sample scores."""
    keys, topk = selector.rows.keys, selector.index.topk
    capacity = minimum(CAPACITY * topk, keys)
    return selector.rows.queries * (CANDIDATE_BYTES * capacity + FP32_BYTES * HyTopKSizes.of(keys, topk).samples)


def radix_bytes(selector: Selector) -> Number:
    """Bytes beside a table of this project's radix top-k: two bitmaps of a block of rows, and its candidates."""
    system, keys = selector.system, selector.rows.keys
    if system.backend != OWN_BACKEND or system.table_topk != "radix":
        return 0.0
    rows, queries = system.table_rows, selector.rows.queries
    capacity = minimum(max(LEAST_CAPACITY, ROW_CAPACITY * selector.index.topk), keys)
    return (queries if isinstance(rows, str) else minimum(rows, queries)) * (2 * keys / 8 + CANDIDATE_BYTES * capacity)


def topk_output_bytes(selector: Selector) -> Number:
    """Bytes of torch.topk's values and indices; this project's radix top-k writes the selection itself."""
    if selector.system.table_topk == "radix" and selector.system.backend == OWN_BACKEND:
        return 0.0
    return TOPK_OUTPUT_BYTES * selector.rows.queries * selector.index.topk
