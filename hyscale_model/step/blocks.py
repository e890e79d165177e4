"""Seconds of every block of every case, in all and by term, with what other work hides taken out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.network.collectives import Network
from hyscale_model.rates.cost import Cost
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.hidden import PAIRS_FLAG, PIECES, PIECES_FLAG, forward_share, hidden_share, spread
from hyscale_model.step.pairs import Exchanging, beside, chain
from hyscale_model.step.pipeline import Structure
from hyscale_model.step.price import Priced


class BlockSeconds:
    """Seconds of every block of every case over the flat axis of (case, point, draw): one matrix product.

    Attributes:
        forward: of the forward pass, shape (blocks, flat); ``backward``: of all other phases.
        terms: by block and term, over all phases; ``hidden``: transfers by block and group.
    """

    def __init__(self, priced: Priced, rates: Rates, shape: tuple[int, int]) -> None:
        self._priced = priced
        count, flat = len(priced.cases), len(priced.cases) * shape[0] * shape[1]
        by_case = (count, *shape)
        self.forward, self.backward = np.empty((2, len(priced.cases[0].blocks), flat))
        self.terms: dict[tuple[int, str], np.ndarray] = {}
        self.hidden: dict[tuple[int, str], np.ndarray] = {}
        # What systems share is one object, evaluated once for all of them.
        shared: dict[tuple[int, int], list[int]] = {}
        for index, case in enumerate(priced.cases):
            for block, both in enumerate(case.both):
                shared.setdefault((block, id(both)), []).append(index)
        costs: list[list[Cost]] = []
        for (block, _), members in shared.items():
            case = priced.cases[members[0]]
            costs += [case.forward[block].total(), *case.both[block].terms.values()]
        seconds = iter(rates.coefficients.evaluate(costs, shape))
        for (block, _), members in shared.items():
            case = priced.cases[members[0]]
            ahead, total = next(seconds), np.zeros(shape)
            for term in case.both[block].terms:
                value = next(seconds)
                total += value
                self._set(self.terms, block, term, members, value, by_case)
            for name, hidden in case.both[block].hidden.items():
                self._set(self.hidden, block, name, members, hidden, by_case)
            self.forward[block].reshape(by_case)[members] = ahead
            self.backward[block].reshape(by_case)[members] = total - ahead

    def hide(
        self,
        cases: Sequence[Scenario],
        networks: Sequence[Network],
        groups: Sequence[Structure],
        contention: np.ndarray,
        shape: tuple[int, int],
    ) -> None:
        """Take out what other computation hides, by the flags of each layout.

        Args:
            cases: one scenario each; ``networks``: theirs.
            groups: the pipelines.
            contention: compute time lost per second of hidden transfer, over the flat axis.
            shape: (points, draws) of a case.
        """
        columns = shape[0] * shape[1]
        wanted = spread(cases, PIECES_FLAG, columns)
        if wanted.any():
            term, counts = "tp_communication_exposed", groups[0].counts.sum(axis=0)
            transfer = self._transfer(term, counts)
            computation = counts @ (self.forward + self.backward) - transfer
            hidden = np.where(wanted, hidden_share(transfer, computation, 1 / PIECES), 0.0)
            self._take_out(term, "tp", hidden, contention, cases, columns)
        wanted = spread(cases, PAIRS_FLAG, columns)
        if wanted.any():
            hidden = np.where(wanted, self._paired(networks, groups, contention, shape), 0.0)
            self._take_out("ep_communication_exposed", "ep", hidden, contention, cases, columns)

    def _transfer(self, term: str, counts: np.ndarray) -> np.ndarray:
        """Seconds of a term in all of some blocks."""
        found = (counts[block] * seconds for (block, name), seconds in self.terms.items() if name == term)
        total: np.ndarray = sum(found, start=np.zeros(self.forward.shape[1]))
        return total

    def _paired(
        self,
        networks: Sequence[Network],
        groups: Sequence[Structure],
        contention: np.ndarray,
        shape: tuple[int, int],
    ) -> np.ndarray:
        """Share of the token exchange that pairs of a forward and another micro-batch's backward hide.

        By the pair of the rank that exchanges most. A rank's first micro-batches, as many as it holds in flight, have
        no backward beside their forward.
        """
        exchanging = Exchanging(self._priced, networks, shape)
        counts = groups[0].rank_counts
        busiest = counts[counts[:, list(exchanging.forward)].sum(axis=1).argmax()]
        transfer = self._transfer("ep_communication_exposed", busiest)
        _, hidden = beside(
            chain(busiest, self.forward, exchanging.forward, slice(None)),
            chain(busiest, self.backward, exchanging.backward, slice(None), backward=True),
            contention,
        )
        paired = np.zeros_like(contention)
        for group in groups:
            paired[group.columns] = max(1 - group.in_flight.mean() / group.micro_batches, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share: np.ndarray = np.where(transfer > 0, paired * hidden / transfer, 0.0)
        return share

    def _take_out(
        self,
        term: str,
        group: str,
        hidden: np.ndarray,
        contention: np.ndarray,
        cases: Sequence[Scenario],
        columns: int,
    ) -> None:
        """Take ``hidden`` of a term out of every block, but for what it slows down."""
        kept = 1 - hidden * (1 - contention)
        share = np.repeat([forward_share(case) for case in cases], columns)
        for block in [block for block, name in self.terms if name == term]:
            seconds = self.terms[block, term]
            saved = (1 - kept) * seconds
            self.forward[block] -= share * saved
            self.backward[block] -= (1 - share) * saved
            before = self.hidden.get((block, group), 0.0)
            self.hidden[block, group] = before + hidden * seconds
            self.terms[block, term] = kept * seconds

    @staticmethod
    def _set(
        table: dict[tuple[int, str], np.ndarray],
        block: int,
        name: str,
        members: list[int],
        value: Number,
        by_case: tuple[int, int, int],
    ) -> None:
        if (block, name) not in table:
            table[block, name] = np.zeros(by_case[0] * by_case[1] * by_case[2])
        table[block, name].reshape(by_case)[members] = value
