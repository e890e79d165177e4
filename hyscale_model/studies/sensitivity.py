"""What moves the answer: one input at a time, break-even lengths, and what would have to be true for no gain.

Every unknown of a prediction is a named uniform number (``rates.draws``): an assumption of the scenario or a rate. One
evaluation holds all of them at their nominal values but one, which takes its 10th and 90th percentile, or each of its
choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hyscale_model.batch import draw_assumptions, generic, value_at
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluation, Evaluator
from hyscale_model.lengths import pays_from, possible_lengths
from hyscale_model.predict import ablation_steps
from hyscale_model.prediction import SELECTION_TERMS, TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.scenario.schema import Assumption, LayerScope, Scenario, System
from hyscale_model.studies.points import problem_of
from hyscale_model.summary import QUANTILES, interval, quantiles

LOW, HIGH = 0.1, 0.9
# Swings below this are left out: they are rounding.
LEAST_SWING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Probe(Draws):
    """Draws that vary one unknown a column: ``columns_of`` names the columns of each and its uniforms there.

    ``names`` collects every unknown that was asked for. ``own`` makes each probe a key of its own: samples of rates are
    remembered by their draws, and another probe varies other columns.
    """

    columns_of: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict, compare=False)
    names: dict[str, None] = field(default_factory=dict, compare=False)
    own: object = field(default_factory=object, repr=False)

    # Samples are remembered by the draws they were made with, and two probes vary different unknowns.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def uniform(self, name: str) -> np.ndarray:
        """0.5 everywhere but in the columns of this unknown."""
        self.names.setdefault(name)
        values = np.full((1, self.count + 1), 0.5)
        for column, value in self.columns_of.get(name, ()):
            values[0, column] = value
        return values if self.columns is None else values[:, list(self.columns)]


@dataclass(frozen=True, slots=True)
class Input:
    """An unknown and what it is tried at.

    Attributes:
        name: of a rate, or the path of an assumption.
        kind: ``rate`` or ``assumption``.
        settings: labels of the values, in order.
    """

    name: str
    kind: str
    settings: tuple[Any, ...]


def sensitivity(resolved: Resolved, *, draws: int = 64, seed: int = 0) -> dict[str, Any]:
    """Which unknown moves the speed-up of the last system over the first most, and what that means.

    Args:
        resolved: a scenario of at least two systems.
        draws, seed: of the intervals of break-even lengths.

    Raises:
        InputError: one system alone.
    """
    scenario = resolved.scenario
    if len(scenario.systems) < 2:
        expected = "two systems to compare, such as [megatron, hyscale]"
        raise InputError("there is one system", resolved.file, field="systems", expected=expected)
    pair = [scenario.systems[0], scenario.systems[-1]]
    inputs = list(_inputs(scenario, pair))
    rows, against = _tornado(scenario, pair, inputs)
    evaluator = Evaluator(scenario, {}, Draws(0), profile_of(scenario))
    before, after = evaluator.steps(pair)
    return {
        "schema_version": 1,
        "name": scenario.name,
        "draws": draws,
        "seed": seed,
        "metric": f"speedup.{pair[1].name}/{pair[0].name}",
        "nominal": float((before.step.seconds / after.step.seconds)[0, 0]),
        "inputs": rows,
        "all_against": against,
        "vanishes": _vanishes(before, after),
        "break_even": [] if isinstance(scenario.scope, LayerScope) else _break_even(scenario, pair, draws, seed),
    }


def _inputs(scenario: Scenario, pair: Sequence[System]) -> Iterator[Input]:
    """Assumptions, one for all systems that share it, and every rate that the pair asks for."""
    for path in dict.fromkeys(generic(item.path) for item in scenario.assumptions):
        item = next(each for each in scenario.assumptions if generic(each.path) == path)
        yield Input(path, "assumption", _settings(item))
    probe = Probe(0)
    Evaluator(scenario, {}, probe, profile_of(scenario)).steps(pair)
    for name in probe.names:
        yield Input(name, "rate", ("p10", "p90"))


def _settings(item: Assumption) -> tuple[Any, ...]:
    if item.range is None:
        return item.choices or ()
    low, high = item.range
    return tuple(low + (high - low) * share for share in (LOW, HIGH))


def _tornado(
    scenario: Scenario, pair: Sequence[System], inputs: Sequence[Input]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The speed-up at each setting of each input, the widest swing first; and with every input against it."""
    places: dict[str, list[int]] = {}
    count = 0
    for each in inputs:
        places[each.name] = list(range(count + 1, count + 1 + len(each.settings)))
        count += len(each.settings)

    def ratio(settings: Mapping[str, Mapping[int, int]], width: int) -> np.ndarray:
        """Speed-ups ``[width + 1]``; input -> column -> which of its settings."""
        columns = {
            each.name: tuple((at, (LOW, HIGH)[which]) for at, which in settings[each.name].items())
            for each in inputs
            if each.kind == "rate"
        }
        values: dict[str, np.ndarray] = {}
        for item in scenario.assumptions:
            name = generic(item.path)
            chosen = [value_at(scenario, item.path)] * (width + 1)
            for at, which in settings[name].items():
                chosen[at] = next(each for each in inputs if each.name == name).settings[which]
            values[item.path] = _column(chosen)
        evaluator = Evaluator(
            scenario,
            values,
            Probe(width, columns_of=columns),
            profile_of(scenario),
        )
        before, after = evaluator.steps(pair)
        found: np.ndarray = np.broadcast_to(before.step.seconds / after.step.seconds, (1, width + 1))[0]
        return found

    alone = ratio({name: {at: which for which, at in enumerate(ats)} for name, ats in places.items()}, count)
    nominal = alone[0]
    rows: list[dict[str, Any]] = []
    worst: dict[str, dict[int, int]] = {}
    for each in inputs:
        found = alone[places[each.name]]
        worst[each.name] = {1: int(found.argmin())} if len(found) and found.min() < nominal else {}
        swing = float(max(found.max(), nominal) - min(found.min(), nominal)) if len(found) else 0.0
        if swing > LEAST_SWING * nominal:
            settings = [{"value": value, "speedup": float(at)} for value, at in zip(each.settings, found, strict=True)]
            rows.append({"input": each.name, "kind": each.kind, "settings": settings, "swing": swing})
    rows.sort(key=lambda row: -row["swing"])
    total = sum(row["swing"] ** 2 for row in rows)
    for row in rows:
        row["share"] = row["swing"] ** 2 / total
    together = ratio(worst, 1)
    return rows, {"speedup": float(together[1]), "holds": bool(together[1] > 1)}


def _column(values: Sequence[Any]) -> np.ndarray:
    mixed = len({isinstance(value, str) for value in values}) > 1
    return np.array(values, dtype=object if mixed else None)[None, :]


def _vanishes(before: Evaluation, after: Evaluation) -> list[dict[str, Any]]:
    """How short parts of the first system's step would have to be for no gain at all; the longest first.

    ``needed_s`` None: not even without that part would the gain be gone.
    """
    gain = float(before.step.seconds[0, 0] - after.step.seconds[0, 0])
    if gain <= 0:
        return []
    seconds = {term: float(before.step.term(term)[0, 0]) for term in TERMS}
    less = {term: own - float(after.step.term(term)[0, 0]) for term, own in seconds.items()}
    parts = {"selection": sum(seconds[term] for term in SELECTION_TERMS)}
    parts |= {term: own for term, own in seconds.items() if less[term] > 0.01 * gain and term not in SELECTION_TERMS}
    rows = []
    for name, own in sorted(parts.items(), key=lambda part: -part[1]):
        needed = own - gain
        rows.append(
            {
                "part": name,
                "seconds": own,
                "needed_s": needed if needed > 0 else None,
                "times_faster": own / needed if needed > 0 else None,
            }
        )
    return rows


def _break_even(scenario: Scenario, pair: Sequence[System], draws: int, seed: int) -> list[dict[str, Any]]:
    """From which sequence length on each technique brings something, on its own and with certainty.

    ``from_tokens``: nominal gain at least ``GAIN`` there and at every longer length tried; ``sure_from_tokens``: its
    10th percentile. None: at no length.
    """
    lengths = possible_lengths(scenario, pair)
    sampled = Draws(draws, seed)
    column = np.array(lengths)[:, None]
    fixed = replace(
        scenario, assumptions=tuple(item for item in scenario.assumptions if item.path != "workload.sequence_length")
    )
    values = {**draw_assumptions(fixed, sampled), "workload.sequence_length": column}
    evaluator = Evaluator(fixed, values, sampled, profile_of(scenario))
    base, target = pair
    changes = [change for change, _ in ablation_steps(base, target)]
    switches = [change.partition(":")[0] for change in changes]
    variants = [replace(base, **{switch: getattr(target, switch)}) for switch in switches]
    able = [not problem_of(replace(scenario, systems=(variant,)), variant) for variant in variants]
    lawful = [variant for variant, fine in zip(variants, able, strict=True) if fine]
    start, *results = evaluator.steps([base, *lawful, target])
    names = [change for change, fine in zip(changes, able, strict=True) if fine]
    rows = []
    for name, result in zip([*names, "all of them"], results, strict=True):
        ratio = start.step.seconds / result.step.seconds
        low = quantiles(ratio)[list(QUANTILES).index("p10")]
        rows.append(
            {
                "change": name,
                "from_tokens": pays_from(lengths, ratio[:, 0]),
                "sure_from_tokens": pays_from(lengths, low),
                "gains": [{"tokens": tokens, **interval(ratio[at : at + 1])} for at, tokens in enumerate(lengths)],
            }
        )
    return rows
