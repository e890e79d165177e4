"""Where tokens go: how many copies are sent, how many the busiest rank receives.

With E experts over p ranks, and a coefficient of variation v of the tokens an expert gets in a micro-batch, the load of
a rank of E / p experts varies by v sqrt(p / E), and the busiest of p ranks has

    1 + v sqrt(p / E) z(p) of the mean,   z(p) ~ sqrt(2 ln p)

the expected largest of p normal deviates (its leading term; 1 % to 15 % high for 2 to 64 ranks). ``moe_imbalance``
multiplies it. A capacity factor c bounds it: further tokens are dropped (Megatron-LM --moe-expert-capacity-factor).
"""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number, maximum, minimum
from hyscale_model.families.anatomy import FeedForward
from hyscale_model.scenario.schema import Scenario


def busiest_load(case: Scenario, ffn: FeedForward) -> Number:
    """Tokens at the busiest expert-parallel rank over the mean."""
    training, ranks = case.training, case.layout.ep
    load = training.moe_imbalance
    if isinstance(training.moe_load_variation, np.ndarray) or training.moe_load_variation:
        spread = training.moe_load_variation * np.sqrt(ranks / ffn.experts)
        load = load * (1 + spread * np.sqrt(2 * np.log(ranks)))
    if training.moe_expert_capacity_factor is None:
        return load
    return minimum(load, training.moe_expert_capacity_factor)


def mean_load(case: Scenario, ffn: FeedForward) -> Number:
    """Tokens at a mean rank over the balanced share: less than 1 only where every rank drops some."""
    capacity = case.training.moe_expert_capacity_factor
    return 1.0 if capacity is None else minimum(1.0, capacity)


def reachable(holders: Number, groups: int, opened: int) -> Number:
    """Share of the holders that a token may reach, when it chooses experts of ``opened`` of ``groups`` groups.

    Groups lie side by side: with as many holders or more, the share of the groups; a holder of m groups is reached
    unless all of them are closed, which has the probability C(groups - m, opened) / C(groups, opened).
    """
    together = maximum(groups / holders, 1)
    closed: Number = 1.0
    for taken in range(opened):
        closed = closed * maximum(groups - together - taken, 0) / (groups - taken)
    return 1 - closed


def copies_to(holders: Number, ffn: FeedForward) -> Number:
    """Mean number of distinct holders of a token's experts, within the groups it may choose from."""
    return distinct(maximum(holders * reachable(holders, ffn.groups, ffn.open_groups), 1), ffn.chosen)


def distinct(holders: Number, experts: Number) -> Number:
    """Mean number of distinct holders (nodes, ranks) of a token's t experts, uniform routing: N (1 - (1 - 1/N)^t)."""
    return holders * (1 - (1 - 1 / holders) ** experts)
