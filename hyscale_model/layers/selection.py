"""Selection of a DSA layer: scores of every key, top-k, and what recomputation does again.

Floors per rank, with n queries, L keys of which V are scored per query, H index heads of width D:
    scores       2 n V H D FLOP
    table        4 n L bytes written once, read once by the top-k
    candidates   8 n c bytes (score and position), c expected candidates
    replay       2 n k H D FLOP over n k D gathered key values
"""

from __future__ import annotations

from hyscale_model.arrays import Number, minimum, where
from hyscale_model.layers.hytopk import CAPACITY, RECOVERY_ROWS, HyTopKSizes, mean_samples
from hyscale_model.layers.operation import Factor, Operation, Task
from hyscale_model.layers.sizes import FP32_BYTES, INT32_BYTES, Sizes, index_key_bytes
from hyscale_model.scenario.schema import Scenario

CANDIDATE_BYTES = FP32_BYTES + INT32_BYTES


def score_flops(queries: Number, keys: Number, case: Scenario) -> Number:
    """2 n V H D: products of every query head with every scored key."""
    return 2 * queries * keys * case.model.index_n_heads * case.model.index_head_dim


def selection_tasks(case: Scenario, sizes: Sizes, factor: Factor) -> tuple[Task, ...]:
    """The forward selection: the score-table path or HyTopK, then waiting for the busiest context rank."""
    if case.systems[0].selection == "hytopk":
        operations = _hytopk(case, sizes, factor)
    else:
        operations = {**table_scoring(case, sizes, factor), **table_topk(case, sizes, factor)}
    return as_tasks(operations, "selection") + waiting_tasks(case, sizes)


def as_tasks(operations: dict[str, Operation], term: str) -> tuple[Task, ...]:
    """Tasks of one term, in order."""
    return tuple(Task(name=name, term=term, work=work) for name, work in operations.items())


def waiting_tasks(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """Time the mean rank waits for the context rank that scores most; nothing when the order is balanced."""
    excess = sizes.slowest_over_mean - 1
    if not isinstance(excess, float) or excess > 0:
        work = _scores(case, sizes, sizes.queries * excess, sizes.scored, 1.0)
        return (Task(name="selection.wait", term="waiting", work=work),)
    return ()


def table_scoring(case: Scenario, sizes: Sizes, factor: Factor) -> dict[str, Operation]:
    """Scores written to an FP32 table, and the pass that writes -inf over what was skipped.

    Megatron-Core's TileLang path: blocks of ``table_rows`` queries, acausal tiles skipped, then a clean-up
    of the acausal part of the full-width table.
    """
    blocks = _table_blocks(case, sizes)
    epilogue = factor("table_epilogue")
    scores = _scores(case, sizes, sizes.queries, sizes.scored, epilogue, launches=blocks)
    written = FP32_BYTES * sizes.queries * sizes.scored
    cleaned = FP32_BYTES * sizes.queries * (sizes.keys - sizes.visible)
    return {
        "selection.score": Operation(
            family=scores.family,
            flops=scores.flops,
            sm_work=scores.sm_work,
            fp8=scores.fp8,
            hbm_bytes=scores.hbm_bytes + written,
            launches=blocks,
        ),
        "selection.clean_up": Operation(family="elementwise", hbm_bytes=cleaned, launches=blocks),
    }


def table_topk(case: Scenario, sizes: Sizes, factor: Factor) -> dict[str, Operation]:
    """Top-k over full-width rows (masked columns included), then INT32 indices with validity masks."""
    system = case.systems[0]
    blocks = _table_blocks(case, sizes)
    table = FP32_BYTES * sizes.queries * sizes.keys
    kept = sizes.queries * case.model.index_topk
    masked = where(system.causal_skip, factor("masked_topk"), 1.0)
    # torch.topk returns FP32 values and INT64 indices; conversion, masks and the copy read and write them again.
    tidy = kept * (FP32_BYTES + 8 + 8 + 3 * INT32_BYTES)
    return {
        "selection.topk": Operation(
            family=f"topk_{system.table_topk}", sm_work=table * masked, hbm_bytes=table + kept * 12, launches=5 * blocks
        ),
        "selection.indices": Operation(family="elementwise", hbm_bytes=tidy, launches=4 * blocks),
    }


def _hytopk(case: Scenario, sizes: Sizes, factor: Factor) -> dict[str, Operation]:
    """Sample, threshold, filter, check, recover, select: HyTopK without a table."""
    queries, topk = sizes.queries, case.model.index_topk
    full = HyTopKSizes.of(sizes.keys, topk)
    samples = mean_samples(sizes.keys)
    # A causal query of context l expects 3k candidates, or all of its keys.
    candidates = minimum(full.candidates, sizes.visible)
    bits = queries * sizes.scored / 8
    return {
        "selection.sample": _scores(case, sizes, queries, samples, 1.0, written=FP32_BYTES * queries * samples),
        "selection.threshold": Operation(
            family="candidate_select", sm_work=FP32_BYTES * queries * samples, hbm_bytes=FP32_BYTES * queries * samples
        ),
        "selection.filter": _scores(
            case,
            sizes,
            queries,
            sizes.scored,
            factor("filter_epilogue"),
            written=bits + CANDIDATE_BYTES * queries * candidates,
        ),
        "selection.check": Operation(family="elementwise", hbm_bytes=INT32_BYTES * queries),
        "selection.recover": _scores(case, sizes, minimum(RECOVERY_ROWS, queries), sizes.keys, 1.0, launches=4),
        "selection.select": Operation(
            family="candidate_select",
            sm_work=FP32_BYTES * queries * candidates,
            hbm_bytes=CANDIDATE_BYTES * queries * candidates + INT32_BYTES * queries * topk,
            launches=3,
        ),
    }


def replay_scoring(case: Scenario, sizes: Sizes) -> dict[str, Operation]:
    """Scores of the k kept keys only: what the index loss needs of recomputation."""
    kept = sizes.queries * sizes.selected
    fp8 = sizes.fp8_index
    gathered = sizes.keys * index_key_bytes(case.model.index_head_dim, fp8)
    return {
        "selection.replay": Operation(
            family="replay_scoring",
            flops=score_flops(sizes.queries, sizes.selected, case),
            hbm_bytes=gathered + kept * (INT32_BYTES + FP32_BYTES),
            fp8=fp8,
        )
    }


def recomputed_selection(case: Scenario, sizes: Sizes, forward: tuple[Task, ...]) -> tuple[Task, ...]:
    """What selection costs in recomputation under the system's policy.

    rerun repeats the forward tasks themselves; keep_scores repeats the top-k on the kept table; keep_indices
    scores everything again for the loss; skip does nothing; replay scores the kept entries.
    """
    policy = case.systems[0].recompute_selection
    if policy == "rerun":
        return forward
    waits = tuple(task for task in forward if task.term == "waiting")
    by_name = {task.name: task.work for task in forward if isinstance(task.work, Operation)}
    if policy == "keep_scores":
        again = {name: work for name, work in by_name.items() if name in ("selection.topk", "selection.indices")}
        return as_tasks(again, "selection")
    if policy == "keep_indices":
        rescored = {
            name: work
            for name, work in by_name.items()
            if name in ("selection.score", "selection.clean_up", "selection.filter")
        }
        return as_tasks(rescored, "selection") + waits
    if policy == "replay":
        return as_tasks(replay_scoring(case, sizes), "selection")
    return ()


def score_table_bytes(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of the FP32 table that exists at once: min(table_rows, n) rows of L scores."""
    rows = case.systems[0].table_rows
    rows = sizes.queries if isinstance(rows, str) else minimum(rows, sizes.queries)
    return FP32_BYTES * rows * sizes.keys


def candidate_bytes(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of HyTopK's candidate buffers (6k a query) and of one bit a key."""
    capacity = minimum(CAPACITY * case.model.index_topk, sizes.keys)
    return sizes.queries * (CANDIDATE_BYTES * capacity + sizes.keys / 8)


def _table_blocks(case: Scenario, sizes: Sizes) -> Number:
    rows = case.systems[0].table_rows
    if isinstance(rows, str):
        return 1
    return -(-sizes.queries // rows)


def _scores(
    case: Scenario,
    sizes: Sizes,
    queries: Number,
    keys: Number,
    epilogue: Number,
    *,
    written: Number = 0.0,
    launches: Number = 1,
) -> Operation:
    fp8 = sizes.fp8_index
    flops = score_flops(queries, keys, case)
    query_bytes = queries * case.model.index_n_heads * index_key_bytes(case.model.index_head_dim, fp8)
    return Operation(
        family="index_scoring",
        flops=flops,
        sm_work=flops * epilogue,
        hbm_bytes=query_bytes + keys * index_key_bytes(case.model.index_head_dim, fp8) + written,
        fp8=fp8,
        launches=launches,
    )
