"""Port the techniques, or flip a flag? What a training run costs before and after, and what stands behind it.

The first system is what runs today, the last what would be ported, those between what flags alone give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from hyscale_model.arrays import nominal
from hyscale_model.batch import draw_assumptions
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.predict import ablation_steps, speedups
from hyscale_model.prediction import ORIGINS, SELECTION_TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import LayerScope, Scenario, System
from hyscale_model.studies.points import problem_of
from hyscale_model.summary import interval, summarize, verdict

# A port is worth its work where it is worth this much; what is asked of the interval, not of the middle.
WORTH = 1.05
# All orders of more changes than this would be too many.
MOST_CHANGES = 7

# What each switch asks of the people who train.
WORK: Mapping[str, str] = {
    "selection": "call hyscale_kernels.hytopk in place of the indexer's table and top-k; SparseSelection is the module",
    "recompute_selection": "wrap checkpointed layers in hyscale_kernels.checkpoint, which replays their indices",
    "cp_overlap": "issue the gathers of keys and latents before selection, on a stream of their own",
    "sparse_attention": "attend by pairs of queries (hyscale_kernels.sparse_attention, query_pairs)",
    "table_topk": "a radix top-k in place of torch.topk: a flag or a patch of one call",
    "table_rows": "another block size of the score table: a flag",
    "index_storage": "keep indices in pinned host memory (hyscale_kernels.checkpoint, offload)",
    "backend": "another DSA backend: a flag of Megatron-LM",
    "dispatcher": "another token dispatcher: a flag of Megatron-LM",
    "causal_skip": "skip tiles of keys that no query sees",
    "layout": "another parallel layout: arguments of the launch",
    "training": "other training settings: arguments of the launch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a run costs besides its steps.

    Attributes:
        failures_per_gpu_hour: Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs (arXiv 2407.21783).
        restart_s: from a failure to the next step: detection, rescheduling, loading. Assumed.
        checkpoint_s: between two checkpoints, half of which is lost. Assumed.
        power_share: of a board's power limit that training draws, lowest and highest. Assumed: memory-bound kernels
            draw less than products of matrices.
    """

    failures_per_gpu_hour: float = 419 / (54 * 24 * 16384)
    restart_s: float = 900.0
    checkpoint_s: float = 3600.0
    power_share: tuple[float, float] = (0.6, 1.0)


def decide(
    resolved: Resolved, *, tokens: float = 1e11, draws: int = 64, seed: int = 0, operation: Operation | None = None
) -> dict[str, Any]:
    """The sheet behind the decision.

    Args:
        resolved: a scenario of at least two systems.
        tokens: to train.
        draws, seed: of the intervals.
        operation: failures, checkpoints and power.

    Raises:
        InputError: one system alone, a scope of one layer, or too many switches that differ.
    """
    scenario, operation = resolved.scenario, operation or Operation()
    if isinstance(scenario.scope, LayerScope):
        raise InputError("a decision is about a step", resolved.file, field="scope", expected="scope: step")
    if len(scenario.systems) < 2:
        expected = "what runs today and what would be ported, such as [megatron, megatron-best, hyscale]"
        raise InputError("there is one system", resolved.file, field="systems", expected=expected)
    sampled = Draws(draws, seed)
    evaluator = Evaluator(
        scenario,
        draw_assumptions(scenario, sampled),
        sampled,
        profile_of(scenario),
    )
    steps = ablation_steps(scenario.systems[0], scenario.systems[-1])
    if len(steps) > MOST_CHANGES:
        problem = f"{len(steps)} switches differ between the first and the last system"
        raise InputError(problem, resolved.file, field="systems", expected=f"at most {MOST_CHANGES}")
    subsets = _subsets(scenario, steps)
    results = evaluator.steps([*scenario.systems, *subsets.values()])
    named = dict(zip((system.name for system in scenario.systems), results, strict=False))
    by_subset = dict(zip(subsets, results[len(named) :], strict=True))
    rows = {system.name: _row(named[system.name], evaluator, system, tokens, operation) for system in scenario.systems}
    return {
        "schema_version": 1,
        "name": scenario.name,
        "tokens": tokens,
        "draws": draws,
        "seed": seed,
        "gpus": scenario.cluster.nodes * scenario.cluster.gpus_per_node,
        "operation": {name: getattr(operation, name) for name in operation.__dataclass_fields__},
        "systems": rows,
        "speedup": speedups(named),
        "techniques": _techniques([change for change, _ in steps], by_subset),
        "answer": _answer(named, rows),
        "work": [{"change": change, "what": WORK[change.partition(":")[0]]} for change, _ in steps],
    }


def _subsets(scenario: Scenario, steps: Sequence[tuple[str, System]]) -> dict[frozenset[int], System]:
    """The first system with every subset of the changes that rules allow."""
    base, target = scenario.systems[0], scenario.systems[-1]
    switches = [change.partition(":")[0] for change, _ in steps]
    found = {}
    for number in range(2 ** len(switches)):
        chosen = frozenset(index for index in range(len(switches)) if number >> index & 1)
        system = replace(base, **{switches[index]: getattr(target, switches[index]) for index in chosen})
        if not problem_of(replace(scenario, systems=(system,)), system):
            found[chosen] = system
    return found


def _row(
    result: Evaluation, evaluator: Evaluator, system: System, tokens: float, operation: Operation
) -> dict[str, Any]:
    """Costs of training with one system."""
    case = evaluator.case(system)
    cluster = case.cluster
    gpus = cluster.nodes * cluster.gpus_per_node
    rate = result.tokens_per_gpu / result.step.seconds
    steady = tokens / rate / 3600
    lost = operation.failures_per_gpu_hour * gpus * (operation.restart_s + operation.checkpoint_s / 2) / 3600
    hours = steady * (1 + lost)
    summary = summarize(result)
    peak, capacity = interval(evaluator.memory(system).peak()), nominal(cluster.gpu.memory_bytes)
    share = sum(result.step.term(term) for term in SELECTION_TERMS) / result.step.seconds
    price, watts = cluster.usd_per_gpu_hour, cluster.gpu.power_watts
    return {
        "step_time_s": interval(result.step.seconds),
        "tokens_per_s": interval(rate * gpus),
        "days": interval(hours / gpus / 24),
        "gpu_hours": interval(hours),
        "cost_usd": None if price is None else interval(hours * price),
        "energy_mwh": None
        if watts is None
        else {
            "low": float(interval(hours)["p10"] * watts * operation.power_share[0] / 1e6),
            "high": float(interval(hours)["p90"] * watts * operation.power_share[1] / 1e6),
        },
        "failures": float(interval(steady)["nominal"] * operation.failures_per_gpu_hour),
        "lost_share": float(lost / (1 + lost)),
        "selection_share_of_step": interval(share),
        "memory": {
            "peak_bytes": peak,
            "capacity_bytes": capacity,
            "headroom_bytes": capacity - peak["p90"],
            "verdict": verdict(peak, capacity),
        },
        "evidence": _evidence(summary),
    }


def _evidence(summary: Mapping[str, Any]) -> dict[str, float]:
    """Share of the step by the origin of its terms, the most certain first."""
    total = sum(summary["time_s"].values())
    shares = dict.fromkeys(ORIGINS, 0.0)
    for term, seconds in summary["time_s"].items():
        shares[summary["terms"][term]["origin"]] += seconds / total
    return {origin: share for origin, share in shares.items() if share}


def _techniques(changes: Sequence[str], by_subset: Mapping[frozenset[int], Evaluation]) -> list[dict[str, Any]]:
    """What each change brings, over every order in which they could be made.

    ``alone``: as the first change, ``last``: on top of all others, ``lowest`` and ``highest`` of any order: nominal
    factors. ``share``: of the logarithm of the whole speed-up, averaged over orders; shares sum to one.
    """
    count = len(changes)
    times = {subset: result.step.seconds for subset, result in by_subset.items()}
    gains: list[list[np.ndarray]] = [[] for _ in changes]
    for order in permutations(range(count)):
        prefixes = [frozenset(order[:length]) for length in range(count + 1)]
        if all(prefix in times for prefix in prefixes):
            for before, after, number in zip(prefixes, prefixes[1:], order, strict=False):
                gains[number].append(np.log(times[before] / times[after]))
    whole = np.log(times[frozenset()] / times[frozenset(range(count))]) if count else np.zeros((1, 1))
    everything = frozenset(range(count))
    rows = []
    for index, change in enumerate(changes):
        mean = np.mean(gains[index], axis=0)
        factors = [float(np.exp(gain[0, 0])) for gain in gains[index]]
        alone, rest = frozenset([index]), everything - {index}
        rows.append(
            {
                "change": change,
                "alone": float((times[frozenset()] / times[alone])[0, 0]) if alone in times else None,
                "last": float((times[rest] / times[everything])[0, 0]) if rest in times else None,
                "lowest": min(factors),
                "highest": max(factors),
                "average": interval(np.exp(mean)),
                "share": float(mean[0, 0] / whole[0, 0]) if whole[0, 0] else None,
            }
        )
    return rows


def _answer(named: Mapping[str, Evaluation], rows: Mapping[str, Any]) -> dict[str, Any]:
    """port: worth it even at the low end; flags: not worth it even at the high end; measure: in between."""
    names = list(named)
    target = names[-1]
    # The best that needs no port: of equal ones the simplest, which comes first.
    able = [name for name in names[:-1] if rows[name]["memory"]["verdict"] != "does_not_fit"]
    without = min(able or names[:-1], key=lambda name: rows[name]["step_time_s"]["nominal"])
    gain = interval(named[without].step.seconds / named[target].step.seconds)
    if gain["p10"] >= WORTH:
        answer = "port"
    elif gain["p90"] < WORTH:
        answer = "flags" if without != names[0] else "stay"
    else:
        answer = "measure"
    saved = interval(
        (named[without].tokens_per_gpu / named[without].step.seconds) ** -1
        - (named[target].tokens_per_gpu / named[target].step.seconds) ** -1
    )
    return {
        "answer": answer,
        "target": target,
        "without_port": without,
        "gain": gain,
        "worth": WORTH,
        "target_fits": rows[target]["memory"]["verdict"],
        "gpu_hours_saved_per_billion_tokens": {name: value * 1e9 / 3600 for name, value in saved.items()},
    }
