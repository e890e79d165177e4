"""Selection of a DSA layer: scores of every key, top-k, and what recomputation does again.

Floors per rank, with n queries, L keys of which V are scored per query, H index heads of width D:
    scores       2 n V H D FLOP
    table        4 n L bytes written once, read once by the top-k
    candidates   8 n c bytes (score and position), c expected candidates
    replay       2 n k H D FLOP over n k D gathered key values
"""

from __future__ import annotations

from hyscale_model.arrays import Number, ceil_div, minimum, where
from hyscale_model.layers.hytopk import CAPACITY, RECOVERY_ROWS, HyTopKSizes, mean_samples
from hyscale_model.layers.operation import Factor, Operation, Task
from hyscale_model.layers.sizes import FP32_BYTES, INT32_BYTES, Sizes, index_key_bytes, mean_selected
from hyscale_model.layers.tensor_parallel import exchange
from hyscale_model.scenario.schema import Scenario

CANDIDATE_BYTES = FP32_BYTES + INT32_BYTES
# Policies that keep the selection of every layer in flight.
KEEPS_INDICES = ("keep_indices", "skip", "replay")


def score_flops(queries: Number, keys: Number, case: Scenario) -> Number:
    """2 n V H D: products of every query head with every scored key."""
    return 2 * queries * keys * case.model.index_n_heads * case.model.index_head_dim


def selection_tasks(case: Scenario, sizes: Sizes, factor: Factor) -> tuple[Task, ...]:
    """The forward selection: the score-table path or HyTopK, then waiting for the busiest context rank."""
    if case.systems[0].selection == "hytopk":
        operations = _hytopk(case, sizes)
    else:
        operations = {**table_scoring(case, sizes), **table_topk(case, sizes, factor)}
    return as_tasks(operations, "selection") + waiting_tasks(case, sizes) + _shared_indices(case, sizes)


def _shared_indices(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """Tensor ranks select for a share of the rows each and gather the indices of all; nothing at tp = 1."""
    payload = INT32_BYTES * sizes.tokens * case.model.index_topk
    return exchange("tp.indices", "all_gather", case, payload)


def as_tasks(operations: dict[str, Operation], term: str) -> tuple[Task, ...]:
    """Tasks of one term, in order."""
    return tuple(Task(name=name, term=term, work=work) for name, work in operations.items())


def waiting_tasks(case: Scenario, sizes: Sizes) -> tuple[Task, ...]:
    """Time the mean rank waits for the context rank that scores most; nothing when the order is balanced."""
    excess = sizes.slowest_over_mean - 1
    if not isinstance(excess, float) or excess > 0:
        flops = score_flops(sizes.queries * excess, sizes.scored, case)
        work = Operation(family=_scoring_family(case), flops=flops, fp8=sizes.fp8_index, launches=0)
        return (Task(name="selection.wait", term="waiting", work=work),)
    return ()


def table_scoring(case: Scenario, sizes: Sizes) -> dict[str, Operation]:
    """Scores written to an FP32 table, and the pass that writes -inf over what was skipped.

    Megatron-Core's TileLang path: blocks of ``table_rows`` queries, acausal tiles skipped, then a clean-up
    of the acausal part of the full-width table.
    """
    blocks = _table_blocks(case, sizes)
    written = FP32_BYTES * sizes.queries * sizes.scored
    cleaned = FP32_BYTES * sizes.queries * (sizes.keys - sizes.visible)
    return {
        "selection.score": _scores(case, sizes, sizes.queries, sizes.scored, written=written, launches=blocks),
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


def _hytopk(case: Scenario, sizes: Sizes) -> dict[str, Operation]:
    """Sample, threshold, filter, check, recover, select: HyTopK without a table."""
    queries, topk = sizes.queries, case.model.index_topk
    full = HyTopKSizes.of(sizes.keys, topk)
    samples = mean_samples(sizes.keys)
    # A causal query of context l expects 3k candidates, or all of its keys.
    candidates = mean_selected(sizes.keys, full.candidates)
    appended = CANDIDATE_BYTES * queries * candidates
    sampled = FP32_BYTES * queries * samples
    return {
        "selection.sample": _scores(case, sizes, queries, samples, written=sampled),
        "selection.threshold": Operation(family="candidate_select", sm_work=sampled, hbm_bytes=sampled),
        "selection.filter": _scores(case, sizes, queries, sizes.scored, written=appended),
        "selection.check": Operation(family="elementwise", hbm_bytes=INT32_BYTES * queries),
        "selection.recover": _scores(case, sizes, minimum(RECOVERY_ROWS, queries), sizes.keys, launches=4),
        "selection.select": Operation(
            family="candidate_select",
            sm_work=FP32_BYTES * queries * candidates,
            hbm_bytes=appended + INT32_BYTES * queries * topk,
            launches=3,
        ),
    }


def replay_scoring(case: Scenario, sizes: Sizes) -> dict[str, Operation]:
    """Scores of the k kept keys only: what the index loss needs of recomputation."""
    kept = sizes.queries * sizes.selected
    fp8 = sizes.fp8_index
    gathered = sizes.held_keys * index_key_bytes(case.model.index_head_dim, fp8)
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
    scores everything again for the loss; skip scores nothing, as the kept scores stay beside the indices; replay
    scores the kept entries, which only the index loss reads.
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
        scoring = ("selection.score", "selection.clean_up", "selection.filter")
        rescored = {name: work for name, work in by_name.items() if name in scoring}
        return as_tasks(rescored, "selection") + waits
    if policy == "replay" and case.training.index_loss == "sparse":
        return as_tasks(replay_scoring(case, sizes), "selection")
    return ()


def score_table_bytes(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of the FP32 table that exists at once: min(table_rows, n) rows of L scores."""
    rows = case.systems[0].table_rows
    rows = sizes.queries if isinstance(rows, str) else minimum(rows, sizes.queries)
    return FP32_BYTES * rows * sizes.keys


def candidate_bytes(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of HyTopK's candidate buffers (6k a query) and of its sample scores."""
    capacity = minimum(CAPACITY * case.model.index_topk, sizes.keys)
    samples = HyTopKSizes.of(sizes.keys, case.model.index_topk).samples
    return sizes.queries * (CANDIDATE_BYTES * capacity + FP32_BYTES * samples)


def kept_table_bytes(sizes: Sizes) -> Number:
    """Bytes of all of a layer's scores, for the policy that keeps them, whatever the block size."""
    return FP32_BYTES * sizes.queries * sizes.keys


def topk_output_bytes(case: Scenario, sizes: Sizes) -> Number:
    """Bytes of torch.topk's FP32 values and INT64 indices."""
    return 12 * sizes.queries * case.model.index_topk


def _table_blocks(case: Scenario, sizes: Sizes) -> Number:
    rows = case.systems[0].table_rows
    if isinstance(rows, str):
        return 1
    return ceil_div(sizes.queries, rows)


def _scoring_family(case: Scenario) -> str:
    return "index_scoring.filter" if case.systems[0].selection == "hytopk" else "index_scoring.table"


def _scores(
    case: Scenario, sizes: Sizes, queries: Number, keys: Number, *, written: Number = 0.0, launches: Number = 1
) -> Operation:
    head_dim, fp8 = case.model.index_head_dim, sizes.fp8_index
    key_bytes = index_key_bytes(head_dim, fp8)
    read = minimum(keys * case.workload.micro_batch_size, sizes.held_keys)
    return Operation(
        family=_scoring_family(case),
        flops=score_flops(queries, keys, case),
        hbm_bytes=(queries * case.model.index_n_heads + read) * key_bytes + written,
        fp8=fp8,
        launches=launches,
    )
