"""From a scenario to a prediction: the one function everything calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from hyscale_model.batch import draw_assumptions
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.feasible import nearest_feasible
from hyscale_model.prediction import ORIGINS, TERMS, Origin, Prediction
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.rates.profile import Profile
from hyscale_model.reported import compare
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import LayerScope, Part, Scenario, System
from hyscale_model.summary import as_json, interval, intervals, summarize, summarize_memory

T = TypeVar("T")
SCHEMA_VERSION = 1
# Order in which the ablation applies what differs between two systems: what removes most work first.
ABLATION_ORDER = ("selection", "recompute_selection", "cp_overlap", "sparse_attention")


def predict(resolved: Resolved, *, draws: int = 64, seed: int = 0) -> Prediction:
    """Predict step time, memory and speed-up of every system of a scenario.

    Args:
        resolved: a scenario as ``read_scenario`` gives it.
        draws: samples of unknown inputs and rates behind the intervals; 0: nominal values only.
        seed: of the draws; the same seed gives the same numbers.

    Raises:
        UnpricedError: the profile has no rate for something the scenario needs.
        InputError: a reported metric does not exist.
    """
    scenario = resolved.scenario
    profile = profile_of(scenario)
    sampled = Draws(draws, seed)
    values = draw_assumptions(scenario, sampled)
    evaluator = Evaluator(scenario, values, sampled, profile)
    systems = scenario.systems
    memory = [evaluator.memory(system) for system in systems]
    memories = [summarize_memory(evaluator.case(system), peak) for system, peak in zip(systems, memory, strict=True)]
    changed = {
        system.name: nearest_feasible(scenario, system, evaluator)
        for system, known in zip(systems[:-1], memories, strict=False)
        if known["verdict"] != "fits"
    }
    nearest = {name: found for name, found in changed.items() if found is not None}
    steps = ablation_steps(systems[0], systems[-1])
    # The last step of the way is the target itself, already among the systems.
    variants = [system for _, system in steps[:-1]]
    results = evaluator.steps([*systems, *variants, *(system for _, system, _ in nearest.values())])
    named = {system.name: result for system, result in zip(systems, results, strict=False)}
    way = results[len(systems) : len(systems) + len(variants)]
    feasible = results[len(systems) + len(variants) :]
    target = results[len(systems) - 1]
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "draws": draws,
        "seed": seed,
        "file": resolved.file,
        "scenario": as_json(scenario),
        "origins": {path: _origin_json(origin) for path, origin in resolved.origins.items()},
        "systems": {
            name: summarize(result) | {"memory": known}
            for (name, result), known in zip(named.items(), memories, strict=True)
        },
        "speedup": speedups(named),
        "speedup_by_term": speedups_by_term(named),
        "ablation": _ablation(steps, [*way, target] if steps else [], results[0]),
        "nearest_feasible": {name: {"changes": {}, "system": None, "speedup": {}} for name in changed},
        "assumptions": [as_json(item) for item in scenario.assumptions],
        "warnings": _warnings(scenario),
    }
    for (name, (changes, system, peak)), result in zip(nearest.items(), feasible, strict=True):
        fitting = summarize_memory(evaluator.case(system), peak)
        data["nearest_feasible"][name] = {
            "changes": changes,
            "system": summarize(result) | {"memory": fitting},
            "speedup": {f"{systems[-1].name}/{name}": interval(result.step.seconds / target.step.seconds)},
        }
    if isinstance(scenario.scope, LayerScope):
        data["scope_variants"] = scope_variants(scenario, scenario.scope, values, sampled, profile)
    data["reported"], dropped = compare([] if resolved.restated else scenario.reported, data, named)
    if scenario.reported and resolved.restated:
        changed_paths = ", ".join(resolved.restated)
        dropped.append(f"reported results are not compared: they belong to the file, and {changed_paths} was set")
    data["warnings"] += dropped
    data["origins"] |= result_origins(data, profile)
    return Prediction(data)


# What "the layer" may mean, from the least to the most.
SCOPES: tuple[tuple[Part, ...], ...] = (
    ("attention", "communication"),
    ("attention", "hyper_connections", "communication"),
    ("attention", "hyper_connections", "ffn", "communication"),
)


def scope_variants(
    scenario: Scenario, scope: LayerScope, values: Mapping[str, np.ndarray], draws: Draws, profile: Profile
) -> list[dict[str, Any]]:
    """Times and speed-ups of one layer under each meaning of it; ``answer`` marks the scenario's own."""
    rows = []
    for include in dict.fromkeys((*SCOPES, scope.include)):
        meaning = replace(scenario, scope=replace(scope, include=include))
        results = Evaluator(meaning, values, draws, profile).steps(scenario.systems)
        named = {system.name: result for system, result in zip(scenario.systems, results, strict=True)}
        rows.append(
            {
                "include": list(include),
                "answer": set(include) == set(scope.include),
                "step_time_s": {name: interval(result.step.seconds) for name, result in named.items()},
                "speedup": speedups(named),
            }
        )
    return rows


def _warnings(scenario: Scenario) -> list[str]:
    swept = [*scenario.sweep, *scenario.zip]
    if not swept:
        return []
    return [f"one prediction, at the scenario's own values: {', '.join(swept)} would be swept, and is not"]


@lru_cache(maxsize=4096)
def _origin_json(origin: Origin) -> dict[str, str]:
    return origin.as_json()


def ablation_steps(base: System, target: System) -> list[tuple[str, System]]:
    """The way from one system to another, a switch at a time: (change, system with all changes so far)."""
    differing = [
        entry.name
        for entry in fields(System)
        if entry.name != "name" and getattr(base, entry.name) != getattr(target, entry.name)
    ]
    order = sorted(differing, key=lambda name: ABLATION_ORDER.index(name) if name in ABLATION_ORDER else len(differing))
    steps, system = [], base
    for name in order:
        system = replace(system, **{name: getattr(target, name)})
        steps.append((f"{name}: {getattr(target, name)}", system))
    return steps


def pairs(named: Mapping[str, T]) -> list[tuple[str, T, T]]:
    """Each two systems in order: (``later/earlier``, what the earlier has, what the later has)."""
    names = list(named)
    return [
        (f"{later}/{earlier}", named[earlier], named[later])
        for index, earlier in enumerate(names)
        for later in names[index + 1 :]
    ]


def speedups(named: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """Step time of each system over that of each later one, draw by draw."""
    return {name: interval(before.step.seconds / after.step.seconds) for name, before, after in pairs(named)}


def speedups_by_term(named: Mapping[str, Evaluation]) -> dict[str, dict[str, dict[str, float]]]:
    """The same, for each term that both systems have."""
    found = {}
    names = tuple(TERMS)
    for name, before, after in pairs(named):
        pair = np.stack([before.step.terms[:, 0], after.step.terms[:, 0]])
        shared = np.flatnonzero(pair.all(axis=(0, 2)))
        ratios = intervals(pair[0, shared] / pair[1, shared])
        found[name] = {names[row]: ratio for row, ratio in zip(shared, ratios, strict=True)}
    return found


def _ablation(
    steps: Sequence[tuple[str, System]], results: Sequence[Evaluation], base: Evaluation
) -> list[dict[str, Any]]:
    rows = []
    before = base
    for (change, _), result in zip(steps, results, strict=True):
        seconds = result.step.seconds
        ratios = np.concatenate([seconds, base.step.seconds / seconds, before.step.seconds / seconds])
        named = dict(zip(("step_time_s", "speedup", "gain"), intervals(ratios), strict=True))
        rows.append({"change": change, **named})
        before = result
    return rows


def result_origins(data: Mapping[str, Any], profile: Profile) -> dict[str, dict[str, str]]:
    """Origins of results: of each system from its terms, of ratios from all systems."""
    detail = f"computed from shapes and the rates of profile {profile.name}; as certain as the least certain term"
    worst = {
        name: max((term["origin"] for term in system["terms"].values()), key=ORIGINS.index)
        for name, system in data["systems"].items()
    }
    found = {f"systems.{name}": Origin(origin, detail).as_json() for name, origin in worst.items()}
    overall = Origin(max(worst.values(), key=ORIGINS.index), detail).as_json()
    ratios = ("speedup", "speedup_by_term", "ablation", "nearest_feasible", "reported")
    return found | dict.fromkeys(ratios, overall)
