"""What every rank does once a step, as seconds: optimizer, host, exchange of gradients and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.rates.cost import Cost
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.hidden import exposed, spread
from hyscale_model.step.optimizer import (
    Held,
    HostStep,
    block_parameters,
    gradient_transfers,
    host_step,
    inner_transfers,
    optimizer_operations,
)
from hyscale_model.step.pipeline import Structure


@dataclass(frozen=True, slots=True)
class OnceAStep:
    """Seconds of what every pipeline rank does once a step, each of shape (pp, cases x points x draws).

    Attributes:
        optimizer: on the GPU.
        reduced: gradients; ``gathered``: parameters.
        inner: exchange inside the optimizer, which nothing hides.
        offload: what the host's part of the optimizer takes beyond the GPU's; ``hidden``: of its copies, what runs
            beside something else.
    """

    optimizer: np.ndarray
    reduced: np.ndarray
    gathered: np.ndarray
    inner: np.ndarray
    offload: np.ndarray
    hidden: np.ndarray

    def at(self, columns: slice | np.ndarray) -> OnceAStep:
        """Some of the columns."""
        return OnceAStep(*(getattr(self, name)[:, columns] for name in self.__dataclass_fields__))


def once_a_step(
    cases: Sequence[Scenario],
    sizes: Sequence[Sizes],
    networks: Sequence[Network],
    rates: Rates,
    counts: Sequence[np.ndarray],
    shape: tuple[int, int],
) -> dict[bytes, OnceAStep]:
    """Time the end of a step by the blocks that ranks hold; cases that differ in selection alone are computed once."""
    by_counts = {count.tobytes(): count for count in counts}
    alike: dict[tuple[int, int], list[int]] = {}
    for index, case in enumerate(cases):
        alike.setdefault((id(case.layout), id(case.training)), []).append(index)
    costs: list[list[Cost]] = []
    places: list[tuple[bytes, int, list[int], Held]] = []
    for members in alike.values():
        case, size = cases[members[0]], sizes[members[0]]
        parts = block_parameters(case)
        for key, count in by_counts.items():
            held = Held.of(case, count, parts)
            for rank in range(count.shape[0]):
                mine = held.rank(rank)
                costs.append([rates.cost(each) for each in optimizer_operations(case, size, mine, count[rank])])
                places.append((key, rank, members, mine))
    seconds = rates.coefficients.evaluate(costs, shape)
    result = {key: np.zeros((6, count.shape[0], len(cases), *shape)) for key, count in by_counts.items()}
    for row, (key, rank, members, held) in enumerate(places):
        case, size, network = cases[members[0]], sizes[members[0]], networks[members[0]]
        into = result[key][:, rank, members]
        into[0] = seconds[row]
        for transfer in gradient_transfers(case, size, held.shared, held.experts):
            into[2 if transfer.kind == "all_gather" else 1] += network.seconds(transfer)
        for transfer in inner_transfers(case, by_counts[key][rank]):
            into[3] += network.seconds(transfer)
        host = host_step(case, size, held)
        if host is not None:
            into[4], into[5] = host_seconds(case, host, network, seconds[row])
        result[key][:, rank, members] = into
    return {key: OnceAStep(*part.reshape(6, part.shape[1], -1)) for key, part in result.items()}


def host_seconds(
    case: Scenario, host: HostStep, network: Network, optimizer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds that the host's part of the optimizer adds to a step, and of its copies those that something hides.

    Gradients go out, the host updates, parameters come back: one after another, and after the GPU's own part, or with
    ``overlap_cpu_optimizer_d2h_h2d`` piece by piece beside each other and the GPU's, as long as the longest of them.
    """
    copies = [network.seconds(transfer) for transfer in (host.out, host.back)]
    update = host.moved_bytes / case.cluster.host_bytes_per_s_per_gpu
    if not case.training.overlap_cpu_optimizer_d2h_h2d:
        return sum(copies) + update, np.zeros_like(optimizer)
    work = np.maximum(update, optimizer)
    longest = np.maximum.reduce(np.broadcast_arrays(*copies, work))
    return longest - optimizer, sum(copies) - (longest - work)


def shown_exchange(
    cases: Sequence[Scenario],
    group: Structure,
    exchanges: tuple[np.ndarray, np.ndarray],
    passes: tuple[np.ndarray, np.ndarray],
    at: slice | np.ndarray,
    columns: int,
) -> np.ndarray:
    """Seconds of gradient and parameter exchange that a step shows, shape (pp, n)."""
    reduced, gathered = exchanges
    layouts = [case.layout for case in cases]
    if not any(each.overlap_grad_reduce or each.overlap_param_gather or each.zero > 1 for each in layouts):
        return reduced + gathered
    ahead, back = (group.rank_counts @ seconds for seconds in passes)
    # One layer in as many as the rank has: three blocks of attention and one behind it are a layer.
    left = 4 / np.maximum(group.rank_counts.sum(axis=1, keepdims=True), 4)
    zero = np.repeat([int(case.layout.zero) for case in cases], columns)[at]
    late = np.where(spread(cases, "overlap_grad_reduce", columns)[at], exposed(reduced, back, left), reduced)
    early = np.where(spread(cases, "overlap_param_gather", columns)[at], exposed(gathered, ahead, left), gathered)
    if not (zero > 1).any():
        return late + early
    times = group.passes
    shared_gradients = times * exposed(reduced, back, left)
    shared_parameters = times * (exposed(gathered, ahead, left) + exposed(gathered, back, left))
    return np.where(zero > 1, shared_gradients, late) + np.where(zero > 2, shared_parameters, early)
