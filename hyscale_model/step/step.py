"""The time of a step, by term, on the pipeline rank with the most work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.prediction import TERMS, Origin
from hyscale_model.rates.roofline import Rates, weakest
from hyscale_model.scenario.schema import LayerScope, Scenario
from hyscale_model.step.blocks import BlockSeconds
from hyscale_model.step.hidden import spread
from hyscale_model.step.host import Host
from hyscale_model.step.once import once_a_step, shown_exchange
from hyscale_model.step.pairs import GROUP as PAIRED_GROUP
from hyscale_model.step.pairs import Exchanging, paired
from hyscale_model.step.passes import (
    dual_makespan,
    makespan,
    pair_seconds,
    sends_of_ranks,
    stage_seconds,
    stage_send,
    waits_of_ranks,
    weight_gradients,
    zero_bubble_makespan,
)
from hyscale_model.step.pipeline import Structure, join
from hyscale_model.step.price import Priced, price

NAMES = tuple(TERMS)
ROW = {term: row for row, term in enumerate(NAMES)}
EXPOSED = [row for term, row in ROW.items() if term.endswith("_exposed")]
# Time in these terms is not work of the compute stream.
IDLE_TERMS = (*(term for term in TERMS if term.endswith("_exposed")), "waiting", "host_bound", "pp_bubble", "offload")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step on its critical pipeline rank.

    Attributes:
        seconds: step time, shape (points, draws).
        terms: seconds by term in the order of ``TERMS``, shape (terms, points, draws); they sum to ``seconds``.
        hidden: seconds of transfers hidden behind computation, by parallel group.
        stage: pipeline rank of the terms, shape (points, draws).
        runs: how often each block runs on that rank in the nominal column, in the order of ``block_names``, shape
            (blocks, points).
        blocks: seconds of each block at the nominal point: forward, the other phases, and what of those a zero-bubble
            schedule puts off, shape (3, blocks).
        send: seconds of a send between stages at the nominal point.
        pairs: seconds of each stage's forward beside another micro-batch's backward at the nominal point, shape (pp,);
            0 where the schedule has no pairs.
        waits: seconds that each virtual stage's forward and backward wait for the host at the nominal point, shape (2,
            virtual stages or more).
    """

    seconds: np.ndarray
    terms: np.ndarray
    hidden: dict[str, np.ndarray]
    stage: np.ndarray
    runs: np.ndarray
    blocks: np.ndarray
    send: float
    pairs: np.ndarray
    waits: np.ndarray

    def term(self, name: str) -> np.ndarray:
        """Seconds of one term, shape (points, draws)."""
        return self.terms[ROW[name]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What stands behind the terms at the nominal point: floors at the peaks, what binds, where rates come from."""

    floor_s: dict[str, float]
    bound_by: dict[str, str]
    origins: dict[str, Origin]


def step_times(
    cases: Sequence[Scenario],
    sizes: Sequence[Sizes],
    pipelines: Sequence[Sequence[Structure]],
    rates: Rates,
    shape: tuple[int, int],
) -> tuple[list[StepTime], Priced]:
    """Time a step of several systems of one scenario that have the same pipeline depth.

    Args:
        cases: one scenario each, with one system, its overrides applied.
        sizes: their sizes.
        pipelines: the structures of each.
        rates: rates of the GPU they share.
        shape: (points, draws) of the batch.
    """
    by_layout = {
        id(case.layout): Network(case, size, rates.coefficients) for case, size in zip(cases, sizes, strict=True)
    }
    networks = [by_layout[id(case.layout)] for case in cases]
    priced = price(cases, sizes, networks, rates, shape)
    count, columns = len(cases), shape[0] * shape[1]
    # One flat axis over (case, point, draw).
    by_case = (count, *shape)
    sends = np.concatenate(
        [
            np.broadcast_to(n.seconds(stage_send(case, size)), shape).ravel()
            for case, size, n in zip(cases, sizes, networks, strict=True)
        ]
    )
    times = BlockSeconds(priced, rates, shape)
    forward, backward = times.forward, times.backward

    scope = cases[0].scope
    groups = join(pipelines, columns)
    contention = np.broadcast_to(rates.factor("overlap_contention"), by_case).ravel()
    times.hide(cases, networks, groups, contention, shape)
    # Sends beside computation cost what they occupy of the GPU.
    if any(case.layout.overlap_p2p_comm for case in cases):
        sends = np.where(spread(cases, "overlap_p2p_comm", columns), contention * sends, sends)
    puts_off = np.repeat([case.layout.schedule == "zero_bubble" for case in cases], columns)
    mirrored = any(group.mirrored for group in groups)
    deferred = weight_gradients(priced, rates, shape) if puts_off.any() or mirrored else None
    exchanging = Exchanging(priced, networks, shape) if mirrored else None
    once = once_a_step(cases, sizes, networks, rates, [group.rank_counts for group in groups], shape)
    stage_of = np.empty(count * columns, dtype=int)
    terms = np.zeros((len(NAMES), count * columns))
    hidden = {name: np.zeros(count * columns) for _, name in times.hidden}
    # Of the passes, and of what is done once a step, on the critical rank; the last column is the slowest rank's.
    passing, saved, waited, sending = np.zeros((4, count * columns))
    optimizing, exchanging_s, offloading, copied, behind, last = np.zeros((6, count * columns))
    runs = np.zeros((len(priced.cases[0].blocks), count * columns))
    together = np.zeros((groups[0].pp, count * columns))
    waiting = np.zeros((2, max(group.counts.shape[0] for group in groups), count * columns))
    host = Host(priced, rates, shape)
    for group in groups:
        at = slice(None) if len(groups) == 1 else group.columns
        passes = (forward[:, at], backward[:, at])
        waits = host.waits(group, *passes, at)
        if isinstance(scope, LayerScope):
            waits = (0.0 * waits[0], 0.0 * waits[1])
        staged = stage_seconds(group, *passes, sends[at], waits)
        if group.mirrored and exchanging is not None and deferred is not None:
            pairs = paired(group, *passes, exchanging, contention[at], at)
            issue = group.counts @ host.forward[:, at] + (group.counts @ host.backward[:, at])[::-1]
            device = pair_seconds(group, pairs, sends[at])
            dual = dual_makespan(group, staged, waits, deferred[:, at], pairs, device, issue)
            passed, stage = dual.seconds, dual.stage
            pick = (stage, np.arange(stage.size))
            saved[at], waited[at] = dual.saved[pick], dual.waits[pick]
            hidden.setdefault(PAIRED_GROUP, np.zeros(count * columns))[at] += dual.hidden[pick]
            together[:, at] = dual.together
        else:
            passed, stage = makespan(group, *staged)
            pick = (stage, np.arange(stage.size))
            waited[at] = waits_of_ranks(group, waits)[pick]
        if puts_off[at].any() and deferred is not None:
            without = zero_bubble_makespan(group, *staged, deferred[:, at])
            passed = np.where(puts_off[at], without, passed)
        end = once[group.rank_counts.tobytes()].at(at)
        exchange = end.inner + shown_exchange(cases, group, (end.reduced, end.gathered), passes, at, columns)
        optimizer, offload = end.optimizer, end.offload
        if isinstance(scope, LayerScope):
            optimizer, exchange, offload = 0.0 * optimizer, 0.0 * exchange, 0.0 * offload
        ending = optimizer + exchange + offload
        passing[at], stage_of[at], last[at] = passed, stage, ending.max(axis=0)
        runs[:, at] = group.passes * group.rank_counts[stage].T
        for index, wait in enumerate(waits):
            waiting[index][: wait.shape[0], at] = wait
        sending[at] = sends_of_ranks(group)[stage] * sends[at]
        optimizing[at], exchanging_s[at], offloading[at] = optimizer[pick], exchange[pick], offload[pick]
        if end.hidden.any():
            hidden.setdefault("host", np.zeros(count * columns))
        copied[at], behind[at] = end.hidden[pick], last[at] - ending[pick]

    for (block, term), values in times.terms.items():
        terms[ROW[term]] += runs[block] * values
    for (block, name), values in times.hidden.items():
        hidden[name] += runs[block] * values
    if "host" in hidden:
        hidden["host"] += copied
    terms[ROW["ep_communication_exposed"]] -= saved
    terms[ROW["host_bound"]] = waited
    if isinstance(scope, LayerScope) and "communication" not in scope.include:
        terms[EXPOSED] = 0.0
        passing = terms.sum(axis=0)
    terms[ROW["pp_communication_exposed"]] += sending
    idle = passing - terms.sum(axis=0)
    # A sum's rounding is no bubble.
    terms[ROW["pp_bubble"]] = np.where(np.abs(idle) < 1e-12 * passing, 0.0, idle)
    terms[ROW["optimizer"]] = optimizing
    terms[ROW["dp_communication_exposed"]] = exchanging_s
    terms[ROW["offload"]] += offloading
    terms[ROW["waiting"]] += behind
    seconds = passing + last
    late = puts_off | np.repeat([case.layout.schedule == "dualpipe" for case in cases], columns)
    put_off = np.where(late, 0.0 if deferred is None else deferred, np.zeros_like(forward))
    results = [
        StepTime(
            seconds=seconds.reshape(by_case)[index],
            terms=terms.reshape(len(NAMES), *by_case)[:, index],
            hidden={name: values.reshape(by_case)[index] for name, values in hidden.items()},
            stage=stage_of.reshape(by_case)[index],
            runs=runs.reshape(-1, *by_case)[:, index, :, 0],
            blocks=np.stack([forward, backward, put_off])[:, :, index * columns],
            send=float(sends[index * columns]),
            pairs=together[:, index * columns],
            waits=waiting[:, :, index * columns],
        )
        for index in range(count)
    ]
    return results, priced


def explain(priced: Priced, index: int, step: StepTime) -> Explanation:
    """What binds each term of one of the priced systems, its least certain origin and its floor."""
    shares: dict[str, dict[str, float]] = {}
    origins: dict[str, list[Origin]] = {}
    floors: dict[str, float] = {}
    case = priced.cases[index]
    for block, runs in zip(case.blocks, step.runs[:, 0].tolist(), strict=True):
        for part in priced.parts(block, case.training) if runs else ():
            by_resource = shares.setdefault(part.term, {})
            by_resource[part.resource] = by_resource.get(part.resource, 0.0) + runs * part.seconds
            floors[part.term] = floors.get(part.term, 0.0) + runs * part.floor_s
            origins.setdefault(part.term, []).append(part.origin)
    bound_by = {term: max(part, key=part.__getitem__) for term, part in shares.items()}
    return Explanation(floors, bound_by, {term: weakest(found) for term, found in origins.items()})
