"""The oracles themselves."""

import math

import pytest
import torch
from hyscale_kernels.scoring.reference import scores as oracle
from hyscale_kernels.top_k import reference
from inputs import DEVICE, INFINITY, random


def test_the_oracle_is_the_formula():
    q, keys, weights = random(3, 2, 4, 5)
    spans = torch.tensor([[0, 5], [1, 3], [2, 2]], device=DEVICE)
    found = oracle(q, keys, weights, spans)
    for t in range(3):
        for s in range(5):
            wanted = -INFINITY
            if spans[t, 0] <= s < spans[t, 1]:
                wanted = 0.0
                for h in range(2):
                    product = math.fsum(float(a) * float(b) for a, b in zip(q[t, h], keys[s], strict=True))
                    wanted += float(weights[t, h]) * max(product, 0.0)
            assert found[t, s].item() == pytest.approx(wanted, abs=1e-12)


def test_the_reference_selects_ties_by_position_never_nan_and_pads():
    nan = float("nan")
    table = torch.tensor(
        [
            [1.0, 2.0, 1.0, 2.0, 1.0],
            [nan, 1.0, nan, -INFINITY, INFINITY],
            [nan] * 5,
            [-INFINITY] * 5,
            [0.0, -0.0, 0.0, -0.0, -1.0],
        ]
    )
    assert reference.top_k(table, 3).tolist() == [[0, 1, 3], [1, 4, -1], [-1] * 3, [-1] * 3, [0, 1, 2]]
    assert reference.top_k(table, 7)[0].tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert reference.top_k(table[:0], 3).shape == (0, 3)


def test_the_reference_fills_a_relu_plateau_from_the_left():
    values = torch.zeros(1, 8320)
    values[0, 8000:8100] = 1
    chosen = reference.top_k(values, 2048)[0].tolist()
    assert chosen == [*range(1948), *range(8000, 8100)]
