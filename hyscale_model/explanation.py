"""What stands behind one number of a prediction: formula, inputs, rate and origin of each part.

Metrics are paths in the JSON of ``hyscale predict``: ``systems.<name>.step_time_s``, ``systems.<name>.time_s.<term>``,
``systems.<name>.memory.<...>``, ``speedup.<a>/<b>``, or an input such as ``layout.cp``. Parts are nominal, on the
critical pipeline stage (times) or the fullest one (memory).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.arrays import nominal
from hyscale_model.batch import draw_assumptions
from hyscale_model.derivation import CLOSING, parts_of
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.families import anatomy
from hyscale_model.layers.kept import Kept, attention_kept, feed_forward_kept
from hyscale_model.prediction import MEMORY_KINDS, TERMS, Origin
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.summary import summarize, summarize_memory

KERNELS = (
    "runs x j (max(T, S, B) + s (T + S + B - max(T, S, B)) + launches), with T = FLOP over tensor rate, S = work over "
    "SM rate, B = bytes over HBM rate"
)
TRANSFERS = (
    "runs x (bytes x seconds a byte + latency + root of bytes x ramp inside a node), less what computation hides"
)
FORMULAS: Mapping[str, str] = {
    "step_time_s": "sum of the terms on the critical stage",
    "speedup": "step time of the one over step time of the other, draw by draw",
    "memory": "sum over kinds at the fullest moment of the fullest stage",
    "activations": "micro-batches in flight x layers x what each module keeps, x what the allocator reserves",
    "host_bytes": "fraction of the optimizer state and share of the stored activations that lie in host memory, of the "
    "rank that has most",
    "parameters": "2 bytes x parameters on the rank",
    "gradients": "4 (FP32) or 2 (BF16) bytes x parameters on the rank, over data-parallel ranks from ZeRO 2 on",
    "optimizer_bytes": "12 bytes (8 with BF16 moments; one moment less for matrices under Muon) x parameters, over "
    "data-parallel ranks from ZeRO 1 on, less the fraction in host memory",
}


def explain_metric(resolved: Resolved, metric: str) -> dict[str, Any]:
    """Explain one number.

    Returns:
        ``{"metric", "value", "formula", "parts": [{"what", "runs", "flops", "bytes", "bound_by", "value", "origin",
        "source"}]}``; fields that a part has no use for are None.

    Raises:
        InputError: there is no such metric, or nothing is known about how it comes about.
    """
    parts = metric.split(".")
    if metric in resolved.origins:
        return _input(resolved, metric)
    scenario = resolved.scenario
    profile = profile_of(scenario)
    draws = Draws(0)
    evaluator = Evaluator(scenario, draw_assumptions(scenario, draws), draws, profile)
    results = dict(zip((system.name for system in scenario.systems), evaluator.steps(scenario.systems), strict=True))
    if parts[0] == "speedup" and len(parts) == 2 and set(parts[1].split("/")) <= set(results):
        return _speedup(metric, parts[1], results)
    if len(parts) < 3 or parts[0] != "systems" or parts[1] not in results:
        raise InputError(
            f"nothing explains {metric}",
            field="--explain",
            expected=f"an input such as layout.cp, or systems.{next(iter(results))}.<metric>, speedup.<a>/<b>",
        )
    result = results[parts[1]]
    if parts[2] == "step_time_s":
        terms = {name: float(result.step.term(name)[0, 0]) for name in TERMS}
        rows = [_part(TERMS[name], value=value) for name, value in terms.items() if value]
        return _answer(metric, sum(terms.values()), FORMULAS["step_time_s"], rows)
    if parts[2] in ("time_s", "terms") and parts[-1] in TERMS and len(parts) == 4:
        return _term(metric, parts[3], result)
    if parts[2] == "memory":
        system = next(each for each in scenario.systems if each.name == parts[1])
        return _memory(metric, parts[3:], result, summarize_memory(evaluator.case(system), evaluator.memory(system)))
    known = summarize(result)
    if parts[2] in known and len(parts) == 3 and isinstance(known[parts[2]], (int, float)):
        formula = "follows from the layout, step time and FLOP; see systems.*.step_time_s"
        return _answer(metric, known[parts[2]], formula, [])
    numbers = ", ".join(name for name, value in known.items() if isinstance(value, int | float))
    expected = f"step_time_s, time_s.<term>, memory.<...>, or one of {numbers}"
    raise InputError(f"nothing explains {metric}", field="--explain", expected=expected)


def _answer(metric: str, value: float, formula: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metric": metric, "value": value, "formula": formula, "parts": parts}


def _part(what: str, *, value: float, origin: Origin | None = None, **known: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(("runs", "flops", "bytes", "bound_by"))
    source = {"origin": origin.origin if origin else None, "source": origin.detail if origin else None}
    return {"what": what, **row, **known, "value": value, **source}


def _input(resolved: Resolved, path: str) -> dict[str, Any]:
    node: Any = resolved.scenario
    for name in path.split("."):
        node = node[name] if isinstance(node, Mapping) else getattr(node, name, None)
    origin = resolved.origins[path]
    return _answer(path, node, "an input", [_part(path, value=node, origin=origin)])


def _speedup(metric: str, pair: str, results: Mapping[str, Evaluation]) -> dict[str, Any]:
    later, earlier = pair.split("/")
    seconds = {name: float(results[name].step.seconds[0, 0]) for name in (earlier, later)}
    rows = [_part(f"systems.{name}.step_time_s", value=value) for name, value in seconds.items()]
    return _answer(metric, seconds[earlier] / seconds[later], FORMULAS["speedup"], rows)


def _term(metric: str, term: str, result: Evaluation) -> dict[str, Any]:
    """Operations and transfers of the critical stage in a term, and what remains of it."""
    total = float(result.step.term(term)[0, 0])
    rows = []
    for part in parts_of(result, term):
        sent = part["resource"] in ("network", "host")
        rows.append(
            _part(
                f"{part['block']}, {part['phase']}: {part['name']}" + (f" ({part['kind']})" if sent else ""),
                value=part["runs"] * part["seconds"],
                origin=Origin(part["origin"], part["detail"]),
                runs=part["runs"],
                flops=None if sent else part["flops"],
                bytes=part["bytes"],
                bound_by=part["resource"],
            )
        )
    rest = total - sum(row["value"] for row in rows)
    if abs(rest) > 1e-9 * max(abs(total), 1e-12):
        label = "hidden behind computation" if rest < 0 else "not made of single operations"
        rows.append(_part(label, value=rest))
    kind = TRANSFERS if term.endswith("_exposed") else KERNELS
    return _answer(metric, total, CLOSING.get(term, kind), rows)


def _memory(metric: str, path: list[str], result: Evaluation, memory: Mapping[str, Any]) -> dict[str, Any]:
    node: Any = memory
    for name in path:
        if not isinstance(node, Mapping) or name not in node:
            options = ", ".join(list(node)[:12]) if isinstance(node, Mapping) else "nothing below"
            raise InputError(f"nothing explains {metric}", field="--explain", expected=options)
        node = node[name]
    kind = path[-1] if path else "memory"
    if kind in ("activations", "stored_activations_bytes"):
        return _answer(metric, node, FORMULAS["activations"], _kept_parts(result))
    if kind == "host_bytes":
        return _answer(metric, node, FORMULAS[kind], [])
    if kind in MEMORY_KINDS:
        formula = FORMULAS.get("optimizer_bytes" if kind == "optimizer" else kind, MEMORY_KINDS[kind])
        return _answer(metric, node, formula, [])
    rows = [_part(MEMORY_KINDS[name], value=size) for name, size in memory["at_peak_bytes"].items()]
    formula = f"{FORMULAS['memory']}: {memory['peak_when']}, stage {memory['peak_stage']}"
    return _answer(metric, node if isinstance(node, (int, float)) else memory["peak_bytes"], formula, rows)


def _kept_parts(result: Evaluation) -> list[dict[str, Any]]:
    """Bytes that one layer of each kind keeps of one micro-batch, by module."""
    case, sizes, body = result.case, result.sizes, anatomy(result.case.model)
    kinds: dict[str, Kept] = {each.kind: attention_kept(case, sizes, each, body) for each in body.attentions}
    kinds |= {each.kind: feed_forward_kept(case, sizes, each, body) for each in body.feed_forwards}
    rows = []
    for kind, kept in kinds.items():
        for module, size in kept.modules.items():
            gone = case.training.recompute == "full" or module in kept.policy
            label = f"one {kind} layer and micro-batch, {module}" + (" (recomputed)" if gone else "")
            if nominal(size):
                rows.append(_part(label, value=nominal(size)))
    return rows
