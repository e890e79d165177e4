"""Your own measured step narrows what is not known: draws that explain it count, others do not.

The draws behind a prediction are weighted by how well they explain the measurement (importance weights, a Gaussian in
the logarithm of each quantity); the prediction of every other system is that of the weighted draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hyscale_model.batch import draw_assumptions, generic
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.predict import pairs
from hyscale_model.prediction import SELECTION_TERMS, TERMS
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.fields import suggest
from hyscale_model.scenario.load import Document, load
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import Scenario
from hyscale_model.studies.recording import Recording
from hyscale_model.summary import QUANTILES
from hyscale_model.traces import Attribution, Trace

# Relative standard error of a measured quantity and of the form of the model, unless the file says otherwise.
ERROR = 0.03
# With fewer draws left than this, the measurement is not explained by what the scenario leaves open.
LEAST_DRAWS = 30
METRICS = ("step_time_s", "tokens_per_s_per_gpu", "selection_share_of_step")
TERM_PREFIX = "time_s."
# Of terms that a trace tells apart: names of kernels tell less than a clock. Parts of less than a share of the step
# say little and are shown only.
TERM_ERROR, LEAST_PART = 0.1, 0.05
NO_SYSTEM = "there is no system {!r} in the scenario"


@dataclass(frozen=True, slots=True)
class Measured:
    """A step that somebody ran.

    Attributes:
        system: which system of the scenario it was.
        values: metric -> value: ``step_time_s``, ``tokens_per_s_per_gpu``, ``selection_share_of_step`` or
            ``time_s.<term>`` in seconds, ``time_s.<term>+<term>`` for terms together.
        error: relative standard error of each that ``errors`` does not name.
        errors: metric -> relative standard error.
    """

    system: str
    values: Mapping[str, float]
    error: float = ERROR
    errors: Mapping[str, float] = field(default_factory=dict)

    def error_of(self, metric: str) -> float:
        """Relative standard error of a metric."""
        return self.errors.get(metric, self.error)


def read_measured(path: str | Path, scenario: Scenario) -> Measured:
    """The measurement in a YAML file: ``system``, ``measured`` (metric -> value) and optionally ``error``.

    Raises:
        InputError: a key, system or metric that there is not, or a value that is no positive number.
    """
    document = load(path)
    data = document.data
    for key in data:
        if key not in ("system", "measured", "error"):
            raise _error(document, (key,), f"unknown key {key!r}", "system, measured and error")
    names = [system.name for system in scenario.systems]
    system = data.get("system", names[0])
    if system not in names:
        raise _error(document, ("system",), NO_SYSTEM.format(system), suggest(str(system), names))
    values = data.get("measured")
    if not isinstance(values, Mapping) or not values:
        raise _error(document, ("measured",), "nothing is measured", f"a mapping of {', '.join(METRICS)}")
    for metric, value in values.items():
        terms = metric.removeprefix(TERM_PREFIX).split("+")
        if metric not in METRICS and not (metric.startswith(TERM_PREFIX) and all(term in TERMS for term in terms)):
            known = [*METRICS, *(f"{TERM_PREFIX}{name}" for name in TERMS)]
            raise _error(document, ("measured", metric), f"there is no metric {metric!r}", suggest(metric, known))
        _positive(document, ("measured", metric), value)
    error = data.get("error", ERROR)
    _positive(document, ("error",), error)
    return Measured(system, {metric: float(value) for metric, value in values.items()}, float(error))


def measured_in_trace(found: Attribution, scenario: Scenario, system: str | None = None) -> Measured:
    """What a trace says of a step: its time, and that of every part which is at least ``LEAST_PART`` of it.

    What belongs to no part may belong to any: e^2 = ``TERM_ERROR``^2 + (seconds unattributed or uncertain / part)^2.

    Args:
        found: the step of the trace.
        scenario: of the run.
        system: which of its systems ran; None: the first.

    Raises:
        InputError: there is no such system.
    """
    names = [each.name for each in scenario.systems]
    if system is not None and system not in names:
        raise InputError(NO_SYSTEM.format(system), field="--system", expected=suggest(system, names))
    values, errors = {"step_time_s": found.step_s}, {}
    for part in found.parts:
        if part.seconds >= LEAST_PART * found.step_s:
            metric = TERM_PREFIX + "+".join(part.terms)
            values[metric] = part.seconds
            errors[metric] = float(np.hypot(TERM_ERROR, (found.unattributed_s + found.uncertain_s) / part.seconds))
    return Measured(system or names[0], values, errors=errors)


def _positive(document: Document, path: tuple[str, ...], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise _error(document, path, f"this is {value!r}", "a number above 0")


def _error(document: Document, path: tuple[str, ...], problem: str, expected: str) -> InputError:
    return InputError(problem, document.file, document.line(path), ".".join(path), expected)


def told(trace: Trace, found: Attribution) -> dict[str, Any]:
    """JSON of what a trace says: its GPU and steps, where the time went, and what could not be attributed."""
    return {
        "device": trace.device,
        "ranks": trace.ranks,
        "steps": len(found.steps_s),
        "steps_marked": trace.marked,
        "step_time_s": {"median": found.step_s, "shortest": min(found.steps_s), "longest": max(found.steps_s)},
        "busy_s": found.busy_s,
        "attributed_share": found.attributed_share,
        "parts": [
            {"terms": list(part.terms), "seconds": part.seconds, "hidden_s": part.hidden_s} for part in found.parts
        ],
        "uncertain_s": found.uncertain_s,
        "unattributed_s": found.unattributed_s,
        "largest_unattributed": [{"kernel": name, "seconds": seconds} for name, seconds in found.largest],
    }


def fit_run(resolved: Resolved, measured: Measured, *, draws: int = 4096, seed: int = 0) -> dict[str, Any]:
    """Predictions before and after a measurement.

    Args:
        resolved: the scenario of the run that was measured.
        measured: what was measured of one of its systems.
        draws: from what the scenario and the profile leave open, before weighting.
        seed: of the draws.

    Returns:
        JSON: for each system and pair ``before`` and ``after``; for each unknown where it moved; ``explained`` false
        and no ``after`` where next to no draw comes near the measurement.
    """
    scenario = resolved.scenario
    recording = Recording(draws, seed)
    values = draw_assumptions(scenario, recording)
    evaluator = Evaluator(scenario, values, recording, profile_of(scenario))
    results = dict(zip((system.name for system in scenario.systems), evaluator.steps(scenario.systems), strict=True))
    ran = results[measured.system]
    predicted = {metric: _predicted(ran, metric) for metric in measured.values}
    logs = [np.log(predicted[metric] / value) / measured.error_of(metric) for metric, value in measured.values.items()]
    exponent = -0.5 * np.sum(np.square(logs), axis=0)
    weights = np.exp(exponent - exponent.max())
    weights /= weights.sum()
    left = float(1 / np.square(weights).sum())
    # Far from every draw the nearest few would carry all the weight.
    explained = left >= LEAST_DRAWS and float(-2 * exponent.max()) < 9 * len(logs)
    after = weights if explained else None
    return {
        "schema_version": 1,
        "name": scenario.name,
        "draws": draws,
        "seed": seed,
        "system": measured.system,
        "error": measured.error,
        "measured": [
            {
                "metric": metric,
                "value": value,
                "error": measured.error_of(metric),
                "before": _quantiles(predicted[metric], None),
            }
            | ({"after": _quantiles(predicted[metric], after)} if explained else {})
            for metric, value in measured.values.items()
        ],
        "explained": explained,
        "effective_draws": left,
        "systems": {name: _pair(result.step.seconds[0, 1:], after) for name, result in results.items()},
        "speedup": _speedups(results, after),
        "inputs": [] if after is None else _inputs(scenario, values, recording.seen, after),
    }


def _predicted(result: Evaluation, metric: str) -> np.ndarray:
    """A metric of every draw, ``[draws]``."""
    seconds = result.step.seconds
    if metric == "step_time_s":
        found = seconds
    elif metric == "tokens_per_s_per_gpu":
        found = result.tokens_per_gpu / seconds
    elif metric == "selection_share_of_step":
        found = sum(result.step.term(term) for term in SELECTION_TERMS) / seconds
    else:
        terms = metric.removeprefix(TERM_PREFIX).split("+")
        found = np.sum([result.step.term(term) for term in terms], axis=0)
    # A term that is not there explains nothing.
    return np.maximum(np.broadcast_to(found, seconds.shape)[0, 1:], 1e-30)


def _quantiles(values: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
    """10th, 50th and 90th percentile of draws, weighted if weights are given."""
    order = np.argsort(values, kind="stable")
    share = np.full(len(values), 1 / len(values)) if weights is None else weights[order]
    middle = np.cumsum(share) - share / 2
    return {name: float(np.interp(at, middle, values[order])) for name, at in QUANTILES.items()}


def _pair(values: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
    before = {"before": _quantiles(values, None)}
    return before if weights is None else before | {"after": _quantiles(values, weights)}


def _speedups(results: Mapping[str, Evaluation], weights: np.ndarray | None) -> dict[str, Any]:
    return {
        name: _pair((before.step.seconds / after.step.seconds)[0, 1:], weights)
        for name, before, after in pairs(results)
    }


def _inputs(
    scenario: Scenario, values: Mapping[str, np.ndarray], uniforms: Mapping[str, np.ndarray], weights: np.ndarray
) -> list[dict[str, Any]]:
    """Unknowns by how far they moved: assumptions in their own values, rates as a percentile of what was thought."""
    rows: list[dict[str, Any]] = []
    assumed = {f"assumption.{generic(item.path)}": item for item in scenario.assumptions}
    for name, uniform in uniforms.items():
        moved = abs(float(weights @ uniform) - 0.5)
        row: dict[str, Any] = {"input": name.removeprefix("assumption."), "moved": moved}
        item = assumed.get(name)
        if item is None:
            row |= {"kind": "rate", "percentile": 100 * float(weights @ uniform)}
        elif item.range is not None:
            row |= {"kind": "assumption", **_pair(values[item.path][0, 1:].astype(float), weights)}
        else:
            row |= {"kind": "assumption", "choices": _choices(values[item.path][0, 1:], item.choices or (), weights)}
        rows.append(row)
    return sorted(rows, key=lambda row: -row["moved"])


def _choices(drawn: np.ndarray, choices: Sequence[Any], weights: np.ndarray) -> list[dict[str, Any]]:
    return [
        {
            "value": choice,
            "before": float(np.mean(drawn == choice)),
            "after": float(weights @ (drawn == choice).astype(float)),
        }
        for choice in choices
    ]
