"""What every rank does once a step, as seconds: the optimizer, gradients reduced, parameters gathered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyscale_model.layers.operation import Operation
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network
from hyscale_model.rates.roofline import Rates
from hyscale_model.scenario.schema import Scenario
from hyscale_model.step.hidden import exposed, spread
from hyscale_model.step.optimizer import block_parameters, gradient_transfers, optimizer_operation
from hyscale_model.step.pipeline import Structure


def once_a_step(
    cases: Sequence[Scenario],
    sizes: Sequence[Sizes],
    networks: Sequence[Network],
    rates: Rates,
    counts: Sequence[np.ndarray],
    shape: tuple[int, int],
) -> dict[bytes, np.ndarray]:
    """Seconds of optimizer, gradients' reduction and parameters' gather of each pipeline rank.

    Each has shape (3, pp, cases x points x draws).

    By the blocks that the ranks hold; cases that differ in selection alone are computed once.
    """
    held = {count.tobytes(): count for count in counts}
    alike: dict[tuple[int, int], list[int]] = {}
    for index, case in enumerate(cases):
        alike.setdefault((id(case.layout), id(case.training)), []).append(index)
    parameters = [block_parameters(cases[members[0]]) for members in alike.values()]
    operations: list[Operation] = []
    places: list[tuple[bytes, int, list[int], np.ndarray, np.ndarray]] = []
    for members, (shared, experts) in zip(alike.values(), parameters, strict=True):
        first = members[0]
        for key, count in held.items():
            both = (np.tensordot(count, part, axes=1) for part in (shared, experts))
            for rank, (replicated, routed) in enumerate(zip(*both, strict=True)):
                operations.append(optimizer_operation(cases[first], sizes[first], replicated, routed))
                places.append((key, rank, members, replicated, routed))
    seconds = rates.coefficients.evaluate([[rates.cost(operation)] for operation in operations], shape)
    result = {key: np.empty((3, count.shape[0], len(cases), *shape)) for key, count in held.items()}
    for row, (key, rank, members, replicated, routed) in enumerate(places):
        transfers = gradient_transfers(cases[members[0]], replicated, routed)
        result[key][0, rank, members] = seconds[row]
        for index, kind in enumerate(("reduce_scatter", "all_gather"), start=1):
            parts = (networks[members[0]].seconds(transfer) for transfer in transfers if transfer.kind == kind)
            result[key][index, rank, members] = sum(parts)
    return {key: part.reshape(3, part.shape[1], -1) for key, part in result.items()}


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
