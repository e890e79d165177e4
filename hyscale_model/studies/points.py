"""Evaluate points: the one function that a worker runs, here, in another process or on another machine."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hyscale_model.batch import assign, draw_assumptions, value_at
from hyscale_model.errors import InputError
from hyscale_model.evaluate import Evaluator
from hyscale_model.prediction import SELECTION_TERMS, TERMS
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario.assumptions import for_each_system
from hyscale_model.scenario.schema import Scenario, System
from hyscale_model.scenario.validate import check_layout
from hyscale_model.summary import QUANTILES, quantiles

# What is known of a point. The first three are as in ``hyscale predict``; invalid: it cannot be set up, see the reason.
VERDICTS = ("fits", "at_risk", "does_not_fit", "invalid")
INVALID = VERDICTS.index("invalid")
# Results with an interval, and those without.
UNCERTAIN = ("step_time_s", "speedup", "tokens_per_s_per_gpu", "peak_bytes")
CERTAIN = ("selection_share_of_step",)
# Of a term among those that are extrapolated.
BITS = 1 << np.arange(len(TERMS))
# Swept as arrays, and no rule of a layout reads them.
FREE = frozenset(
    {
        "training.gradient_precision",
        "training.moe_imbalance",
        "cluster.alltoall_efficiency",
        "cluster.nic_gbit_per_gpu",
        "cluster.nic_efficiency",
        "cluster.nvlink_efficiency",
        "cluster.nvlink_latency_s",
        "cluster.nvlink_ramp_s_per_root_byte",
        "cluster.nic_latency_s",
        "cluster.usd_per_gpu_hour",
        "cluster.gpu.hbm_bytes_per_s",
        "cluster.gpu.memory_bytes",
        "cluster.gpu.nvlink_bytes_per_s",
    }
)


@dataclass(frozen=True)
class Chunk:
    """Points that one worker evaluates.

    Attributes:
        scenario: the variant, or None where it cannot be set up for ``problem``.
        systems: names, in the order of the scenario.
        paths: every field that is swept, in the order of the table.
        fixed: swept values that all points share.
        values: path -> values ``[points, 1]``.
        points: how many.
        draws, seed: of the intervals.
        problem: why there is no scenario.
        screened: a search's way: rules are not asked, and of points at which no system's nominal peak fits only that
            is computed.
    """

    scenario: Scenario | None
    systems: tuple[str, ...]
    paths: tuple[str, ...]
    fixed: Mapping[str, Any]
    values: Mapping[str, np.ndarray]
    points: int
    draws: int
    seed: int
    problem: str = ""
    screened: bool = False

    @cached_property
    def id(self) -> str:
        """Of its contents: the same work has the same id wherever it is made."""
        return hashlib.sha256(pickle.dumps((self.scenario, self.values, self.draws, self.seed))).hexdigest()


@dataclass(frozen=True, slots=True)
class Rows:
    """Results of a chunk, system by system; arrays are ``[systems, points]``.

    Attributes:
        verdict: indices into ``VERDICTS``.
        reasons: index of a point's reason in ``texts``.
        texts: reasons; the first is empty.
        extrapolated: bit n is set where the n-th of ``TERMS`` has a kernel outside what the profile measured.
        results: column -> values, NaN where a point is invalid. With draws also ``<column>_p10`` and so on.
    """

    verdict: np.ndarray
    reasons: np.ndarray
    texts: tuple[str, ...]
    extrapolated: np.ndarray
    results: dict[str, np.ndarray]


# Evaluates chunks in order: here, in other processes or on other machines.
Run = Callable[[Iterable[Chunk]], Iterable[tuple[Chunk, Rows]]]


def here(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Rows]]:
    """Evaluate chunks one after another in this process."""
    return ((chunk, evaluate(chunk)) for chunk in chunks)


def evaluate(chunk: Chunk) -> Rows:
    """Step time, speed-up over the first system, memory and verdict of every point and system."""
    count = len(chunk.systems)
    rows = empty(count, chunk.points, chunk.draws)
    texts = {"": 0}
    if chunk.scenario is None:
        rows.reasons[:] = texts.setdefault(chunk.problem, 1)
        return replace(rows, texts=tuple(texts))
    scenario, draws = chunk.scenario, Draws(chunk.draws, chunk.seed)
    values = {each: column for path, column in chunk.values.items() for each in for_each_system(path, chunk.systems)}
    known: dict[str, np.ndarray] = {}
    for place, system in enumerate(scenario.systems if not chunk.screened else ()):
        # Most systems change nothing that a rule reads.
        alike = repr((system.layout, system.training, system.selection, system.recompute_selection))
        if any(path.startswith("systems.") and path not in FREE for path in values):
            alike = system.name
        if alike not in known:
            known[alike] = _problems(scenario, system, values, chunk.points, texts, drawn=chunk.draws > 0)
        rows.reasons[place] = known[alike]
    able = rows.reasons == 0
    if chunk.screened:
        able = _fitting(scenario, values, rows)
    waiting = list(_batches(able, chunk.screened))
    while waiting:
        at = waiting.pop()
        try:
            mine = {path: column[at[1].ravel()] for path, column in values.items()}
            _evaluate(scenario, mine, draws, rows, at, marked=not chunk.screened)
        except InputError as error:
            if chunk.screened and len(at[0]) > 1:
                # In a search each system stands for itself.
                waiting += [(at[0][place : place + 1], at[1]) for place in range(len(at[0]))]
                continue
            # Such as a GPU without rates.
            rows.reasons[at] = texts.setdefault(str(error), len(texts))
    return replace(rows, texts=tuple(texts))


def _batches(able: np.ndarray, screened: bool) -> Iterator[tuple[np.ndarray, ...]]:
    """Systems and points that are evaluated together, of those ``able``, as indices of rows' arrays."""
    if screened:
        # Most of the time is that of formulas which systems share: more points cost less than more batches.
        if able.any():
            yield np.ix_(np.flatnonzero(able.any(axis=1)), np.flatnonzero(able.any(axis=0)))
        return
    # Systems that change the layout may be invalid at other points than the rest.
    patterns, of = np.unique(able, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        if pattern.any():
            yield np.ix_(np.flatnonzero(pattern), np.flatnonzero(of.ravel() == number))


def empty(systems: int, points: int, draws: int) -> Rows:
    """Rows of points of which nothing is known yet."""
    shape = (systems, points)
    suffixes = ("", *(f"_{name}" for name in QUANTILES)) if draws else ("",)
    names = [*(f"{name}{suffix}" for name in UNCERTAIN for suffix in suffixes), *CERTAIN]
    results = {name: np.full(shape, np.nan) for name in names}
    verdict, none = np.full(shape, INVALID, dtype=np.int8), np.zeros(shape, dtype=int)
    return Rows(verdict, none, ("",), none.copy(), results)


def _problems(
    scenario: Scenario,
    system: System,
    values: Mapping[str, np.ndarray],
    points: int,
    texts: dict[str, int],
    drawn: bool,
) -> np.ndarray:
    """Which reason speaks against each point, 0 for none: rules are asked once for each combination they may read.

    With ``drawn`` they are asked about every choice of every assumption too, as ``hyscale predict`` does.
    """
    ask = _problem_of_draws if drawn else problem_of
    read = [path for path in values if path not in FREE]
    if not read:
        return np.full(points, texts.setdefault(ask(scenario, system), len(texts)))
    sections: dict[str, list[str]] = {}
    for path in read:
        sections.setdefault(path.partition(".")[0], []).append(path)
    # Each section is built once for each combination of its own values: most of the time is copying.
    built, places = [], []
    for name, paths in sections.items():
        first, place = _combinations([values[path][:, 0] for path in paths])
        cases = [assign(scenario, {path: values[path][point, 0].item() for path in paths}) for point in first]
        built.append((name, [getattr(case, name) for case in cases]))
        places.append(place)
    first, inverse = _combinations(places)
    found = np.empty(len(first), dtype=int)
    for number, point in enumerate(first):
        case = replace(
            scenario, **{name: kinds[place[point]] for (name, kinds), place in zip(built, places, strict=True)}
        )
        own = next(other for other in case.systems if other.name == system.name)
        found[number] = texts.setdefault(ask(case, own), len(texts))
    return found[inverse]


def _combinations(columns: Sequence[np.ndarray]) -> tuple[list[int], np.ndarray]:
    """A point of each combination of values that occurs, and the combination of each point."""
    codes = [np.unique(column, return_inverse=True) for column in columns]
    combined = np.ravel_multi_index([code.ravel() for _, code in codes], [len(kinds) for kinds, _ in codes])
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    return first.tolist(), inverse


def problem_of(scenario: Scenario, system: System) -> str:
    """What speaks against a system of a scenario, empty where nothing does."""
    try:
        check_layout(scenario, system)
    except InputError as error:
        return str(error)
    return ""


def _problem_of_draws(scenario: Scenario, system: System) -> str:
    """What speaks against a system at the scenario's values or at one of the choices that are drawn."""
    problem = problem_of(scenario, system)
    if problem:
        return problem
    for assumption in scenario.assumptions:
        path, others = assumption.path, assumption.path.startswith("systems.")
        if path in FREE or (others and not path.startswith(f"systems.{system.name}.")):
            continue
        nominal = value_at(scenario, path)
        for choice in (each for each in assumption.choices or () if each != nominal):
            case = assign(scenario, {path: choice})
            own = next(other for other in case.systems if other.name == system.name)
            problem = problem_of(case, own)
            if problem:
                return f"the choice {choice} of {path} is not possible: {problem}"
    return ""


def _evaluate(
    scenario: Scenario,
    swept: Mapping[str, np.ndarray],
    draws: Draws,
    rows: Rows,
    at: tuple[np.ndarray, ...],
    marked: bool,
) -> None:
    """Fill in the systems and points ``at``, all of which are valid; ``marked``: what is extrapolated too.

    Raises:
        UnpricedError: there is no rate for something they need.
    """
    systems = [scenario.systems[place] for place in at[0].ravel()]
    shape = (at[1].size, draws.width)
    evaluator = Evaluator(
        scenario,
        {**draw_assumptions(scenario, draws), **swept},
        draws,
        profile_of(scenario),
    )
    evaluations = evaluator.steps(systems)
    peaks = np.stack([np.broadcast_to(evaluator.memory(system).peak(), shape) for system in systems])
    seconds = np.stack([np.broadcast_to(result.step.seconds, shape) for result in evaluations])
    tokens = np.stack([np.broadcast_to(result.tokens_per_gpu, shape) for result in evaluations])
    selection = [sum(result.step.term(term)[:, 0] for term in SELECTION_TERMS) for result in evaluations]
    _put(rows, "step_time_s", at, seconds)
    _put(rows, "tokens_per_s_per_gpu", at, tokens / seconds)
    _put(rows, "peak_bytes", at, peaks)
    if systems[0] is scenario.systems[0]:
        _put(rows, "speedup", at, seconds[:1] / seconds)
    rows.results["selection_share_of_step"][at] = np.stack(selection) / seconds[:, :, 0]
    if marked:
        beyond = [BITS @ result.extrapolated() for result in evaluations]
        rows.extrapolated[at] = np.stack([np.broadcast_to(each, shape[0]) for each in beyond])
    capacity = np.ravel(swept.get("cluster.gpu.memory_bytes", scenario.cluster.gpu.memory_bytes))
    low, _, high = quantiles(peaks)
    rows.verdict[at] = np.where(high <= capacity, 0, np.where(low > capacity, 2, 1))


def _fitting(scenario: Scenario, values: Mapping[str, np.ndarray], rows: Rows) -> np.ndarray:
    """Where systems fit at nominal values, ``[systems, points]``; the peaks of all are filled in."""
    evaluator = Evaluator(scenario, values, Draws(0), profile_of(scenario))
    peaks = rows.results["peak_bytes"]
    for place, system in enumerate(scenario.systems):
        peaks[place] = evaluator.memory(system).peak()[:, 0]
    rows.verdict[:] = VERDICTS.index("does_not_fit")
    fits: np.ndarray = peaks <= scenario.cluster.gpu.memory_bytes
    return fits


def _put(rows: Rows, name: str, at: tuple[np.ndarray, ...], values: np.ndarray) -> None:
    """Nominal values, and with draws their percentiles; ``values`` end in (points, draws + 1)."""
    rows.results[name][at] = values[..., 0]
    if values.shape[-1] > 1:
        for quantile, value in zip(QUANTILES, quantiles(values), strict=True):
            rows.results[f"{name}_{quantile}"][at] = value
