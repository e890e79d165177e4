"""How a step's time divides among terms.

Each moment of a step belongs to the kernels that compute in it, in equal parts; where none computes, to the transfers;
where nothing runs, to nobody. So the parts sum to the step, whatever runs on how many streams, and of a transfer only
what no computation covers counts, as in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.traces.rules import Rule, first_match
from hyscale_model.traces.trace import Trace

# Names of kernels that no rule matches are shown as far as this many.
LARGEST = 12
# A kind of kernel of which the table knows several terms and the trace not which: below this share of the step it is
# counted as uncertain, above it terms are only told together.
WORTH_JOINING = 0.01


@dataclass(frozen=True, slots=True)
class Part:
    """Terms that the trace tells apart from all others, together.

    Attributes:
        terms: which.
        seconds: of the step that is theirs.
        hidden_s: transfers among them that computation covers.
    """

    terms: tuple[str, ...]
    seconds: float
    hidden_s: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """A step of a trace: the one of median length.

    Attributes:
        step_s: its length; ``steps_s``: those of all steps, in order.
        busy_s: in which something ran.
        parts: by terms, the longest first.
        unattributed_s: of kernels that no rule matches; ``largest``: their names and seconds, the longest first.
        uncertain_s: of kernels of which only several terms are known, and which are in no part.
    """

    step_s: float
    steps_s: tuple[float, ...]
    busy_s: float
    parts: tuple[Part, ...]
    unattributed_s: float
    largest: tuple[tuple[str, float], ...]
    uncertain_s: float

    @property
    def attributed_share(self) -> float:
        """Share of the busy time whose kernels some rule matches."""
        return 1 - self.unattributed_s / self.busy_s if self.busy_s else 0.0


def attribute(trace: Trace, rules: Sequence[Rule]) -> Attribution:
    """Divide the step of median length, of an even number the shorter, among terms."""
    lengths = trace.steps[:, 1] - trace.steps[:, 0]
    place = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    begin, end = trace.steps[place]
    inside = (trace.end_s > begin) & (trace.start_s < end)
    kind = trace.kind[inside]
    start, stop = (np.clip(each[inside], begin, end) for each in (trace.start_s, trace.end_s))
    decided = [first_match(rules, kernel) for kernel in trace.kernels]
    transfers = np.array([rule is not None and rule.exposed for rule in decided])[kind]
    shown = _shown(start, stop, transfers)
    count = len(trace.kernels)
    seconds = np.bincount(kind, shown, minlength=count)
    hidden = np.bincount(kind, np.where(transfers, stop - start, 0.0), minlength=count) - seconds
    step = float(end - begin)
    found: dict[tuple[str, ...], list[float]] = {}
    unknown: dict[str, float] = {}
    for index in np.flatnonzero(np.bincount(kind, minlength=count)):
        kernel, rule = trace.kernels[index], decided[index]
        if rule is None:
            unknown[kernel.name] = unknown.get(kernel.name, 0.0) + float(seconds[index])
            continue
        own = found.setdefault(_in_order(rule.terms_of(kernel)), [0.0, 0.0])
        own[0] += float(seconds[index])
        own[1] += float(hidden[index]) if rule.exposed else 0.0
    certain = {terms: own for terms, own in found.items() if len(terms) == 1 or own[0] >= WORTH_JOINING * step}
    largest = sorted(unknown.items(), key=lambda item: -item[1])[:LARGEST]
    return Attribution(
        step_s=step,
        steps_s=tuple(lengths.tolist()),
        busy_s=float(seconds.sum()),
        parts=tuple(sorted(_joined(certain), key=lambda part: -part.seconds)),
        unattributed_s=sum(unknown.values()),
        largest=tuple(largest),
        uncertain_s=sum(own[0] for terms, own in found.items() if terms not in certain),
    )


def _shown(start: np.ndarray, stop: np.ndarray, transfers: np.ndarray) -> np.ndarray:
    """Seconds of each kernel's share of the time, ``[kernels]``."""
    edges, places = np.unique(np.concatenate([start, stop]), return_inverse=True)
    first, last = places[: len(start)], places[len(start) :]
    lengths = np.diff(edges)

    def running(which: np.ndarray) -> np.ndarray:
        """Kernels that run between each two edges."""
        change = np.bincount(first[which], minlength=len(edges)) - np.bincount(last[which], minlength=len(edges))
        return np.cumsum(change)[:-1]

    computing, moving = running(~transfers), running(transfers)
    of_computing = lengths / np.maximum(computing, 1)
    of_moving = np.where(computing == 0, lengths / np.maximum(moving, 1), 0.0)
    shown = np.empty(len(start))
    for which, share in ((~transfers, of_computing), (transfers, of_moving)):
        until = np.concatenate([[0.0], np.cumsum(share)])
        shown[which] = until[last[which]] - until[first[which]]
    return shown


def _in_order(terms: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(terms))


def _joined(found: dict[tuple[str, ...], list[float]]) -> list[Part]:
    """Parts without a term in common: those that share one are told together."""
    parts: list[tuple[set[str], float, float]] = []
    for terms, (seconds, hidden) in found.items():
        joined = set(terms), seconds, hidden
        apart = []
        for other in parts:
            if other[0] & joined[0]:
                joined = other[0] | joined[0], other[1] + joined[1], other[2] + joined[2]
            else:
                apart.append(other)
        parts = [*apart, joined]
    return [Part(_in_order(tuple(terms)), seconds, hidden) for terms, seconds, hidden in parts]
