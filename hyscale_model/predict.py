"""From a scenario to a prediction: the one function everything calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from hyscale_model.batch import draw_assumptions
from hyscale_model.evaluate import Evaluation, evaluate
from hyscale_model.feasible import nearest_feasible
from hyscale_model.prediction import TERMS, Origin, Prediction
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.rates.profile import Profile
from hyscale_model.reported import compare
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import System
from hyscale_model.summary import interval, summarize

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
    """
    scenario = resolved.scenario
    profile = load_profile(scenario.profile)
    sampled = Draws(draws, seed)
    values = draw_assumptions(scenario, sampled)
    steps = ablation_steps(scenario.systems[0], scenario.systems[-1])
    # The last step of the way is the target itself, already among the systems.
    variants = [system for _, system in steps[:-1]]
    results = evaluate(scenario, [*scenario.systems, *variants], values, sampled, profile)
    named = dict(zip((system.name for system in scenario.systems), results, strict=False))
    systems = {name: summarize(result) for name, result in named.items()}
    base = results[0]
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "draws": draws,
        "seed": seed,
        "file": resolved.file,
        "scenario": as_json(scenario),
        "origins": {path: origin.as_json() for path, origin in resolved.origins.items()},
        "systems": systems,
        "speedup": speedups(named),
        "speedup_by_term": speedups_by_term(named),
        "ablation": _ablation(
            steps, [*results[len(scenario.systems) :], results[len(scenario.systems) - 1]][: len(steps)], base
        ),
        "assumptions": [as_json(item) for item in scenario.assumptions],
    }
    data["nearest_feasible"] = nearest_feasible(scenario, named, systems, values, sampled, profile)
    data["reported"] = compare(scenario.reported, data, named)
    data["origins"] |= result_origins(data, profile)
    return Prediction(data)


def ablation_steps(base: System, target: System) -> list[tuple[str, System]]:
    """The way from one system to another, a switch at a time: (change, system with all changes so far)."""
    differing = [
        f.name for f in fields(System) if f.name != "name" and getattr(base, f.name) != getattr(target, f.name)
    ]
    order = [name for name in ABLATION_ORDER if name in differing] + [
        name for name in differing if name not in ABLATION_ORDER
    ]
    steps, system = [], base
    for name in order:
        system = replace(system, **{name: getattr(target, name)})
        steps.append((f"{name}: {getattr(target, name)}", system))
    return steps


def speedups(named: Mapping[str, Evaluation]) -> dict[str, dict[str, float]]:
    """Step time of each system over that of each later one, draw by draw."""
    names = list(named)
    return {
        f"{later}/{earlier}": interval(named[earlier].step.seconds / named[later].step.seconds)
        for index, earlier in enumerate(names)
        for later in names[index + 1 :]
    }


def speedups_by_term(named: Mapping[str, Evaluation]) -> dict[str, dict[str, dict[str, float]]]:
    """The same, for each term that both systems have."""
    names = list(named)
    found = {}
    for index, earlier in enumerate(names):
        for later in names[index + 1 :]:
            pairs = {term: (named[earlier].step.term(term), named[later].step.term(term)) for term in TERMS}
            found[f"{later}/{earlier}"] = {
                term: interval(before / after)
                for term, (before, after) in pairs.items()
                if before.all() and after.all()
            }
    return found


def _ablation(
    steps: Sequence[tuple[str, System]], results: Sequence[Evaluation], base: Evaluation
) -> list[dict[str, Any]]:
    rows = []
    before = base
    for (change, _), result in zip(steps, results, strict=True):
        rows.append(
            {
                "change": change,
                "step_time_s": interval(result.step.seconds),
                "speedup": interval(base.step.seconds / result.step.seconds),
                "gain": interval(before.step.seconds / result.step.seconds),
            }
        )
        before = result
    return rows


def as_json(value: Any) -> Any:
    """Plain JSON of a schema object: dataclasses as mappings, tuples as lists, systems by name."""
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, System) for item in value):
            return {item.name: {k: as_json(v) for k, v in asdict(item).items() if k != "name"} for item in value}
        return [as_json(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def result_origins(data: Mapping[str, Any], profile: Profile) -> dict[str, dict[str, str]]:
    """Origins of results: of each system from its terms, of ratios from both systems."""
    order = {"given": 0, "measured": 1, "transferred": 2, "published": 3, "assumed": 4}
    detail = f"computed from shapes and the rates of profile {profile.name}; least certain term"
    worst = {
        name: max((term["origin"] for term in system["terms"].values()), key=lambda origin: order[origin])
        for name, system in data["systems"].items()
    }
    overall = max(worst.values(), key=lambda origin: order[origin])
    found = {f"systems.{name}": Origin(origin, detail).as_json() for name, origin in worst.items()}
    for name in ("speedup", "speedup_by_term", "ablation", "nearest_feasible", "reported"):
        found[name] = Origin(overall, detail).as_json()
    return found
