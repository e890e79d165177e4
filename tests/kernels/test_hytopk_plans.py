"""A plan changes no index, whatever the shapes, spans and scores."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hyscale_kernels.hytopk import Plan, hytopk
from hyscale_kernels.hytopk.stages import sample_places
from hyscale_kernels.score_table import select
from hyscale_kernels.scoring.reference import scores as oracle
from inputs import DEVICE, INFINITY, SMALL_PLAN, assert_selection, exact, normal

# Kernels in the interpreter.
pytestmark = pytest.mark.slow


def clustered(keys, at):
    """Neighbours score high together."""
    factors = 1 + 3 * (torch.arange(len(keys), device=DEVICE) // 40 == at % 16)
    return keys * factors[:, None]


def heavy_tailed(keys, at):
    exponents = normal(len(keys), seed=at).abs().pow(3).clamp(max=6).floor()
    return keys * torch.exp2(exponents)[:, None].to(keys.dtype)


def plateau(keys, at):
    """Most scores are what relu makes of negative products."""
    return torch.where(normal(len(keys), 1, seed=at) > 1.5, keys.abs(), -keys.abs())


def few_values(keys, at):
    return (keys > 1).to(keys.dtype) * (torch.arange(keys.shape[1], device=DEVICE) < 2)


FAMILIES = {"plain": lambda keys, at: keys} | {
    each.__name__: each for each in (clustered, heavy_tailed, plateau, few_values)
}


@st.composite
def plans(draw):
    return Plan(
        stride=draw(st.integers(1, 40)),
        rank=draw(st.integers(1, 20)),
        capacity=draw(st.integers(1, 400)),
        hopeless=draw(st.integers(1, 60)),
        lanes=draw(st.sampled_from([16, 32])),
        bitmap_bytes=draw(st.sampled_from([1, 2**10, 2**20])),
        chunk_bytes=draw(st.sampled_from([1, 2**12, 2**20])),
    )


@st.composite
def cases(draw):
    plan, seed = draw(plans()), draw(st.integers(0, 999))
    n, length = draw(st.integers(1, 3)), draw(st.one_of(st.integers(0, 60), st.integers(200, 700)))
    q, keys, weights = exact(n, draw(st.sampled_from([1, 2, 3, 8])), 32, length, seed)
    family = draw(st.sampled_from(sorted(FAMILIES)))
    keys = FAMILIES[family](keys, seed)
    if family == "plateau":
        q = q.abs()
    # Samples that are higher or lower than others.
    misled = draw(st.sampled_from([1.0, 1.0, 4.0, 0.0]))
    keys[sample_places(length, plan.stride, keys.device)] *= misled
    place = st.one_of(st.integers(0, length), st.sampled_from([0, length]))
    spans = draw(st.lists(st.tuples(place, place).map(sorted), min_size=n, max_size=n))
    scales = {}
    if draw(st.booleans()):
        # Scores of all 24 bits: the product with a whole number is rounded once.
        scales["key_scale"] = normal(length, seed=seed).abs() + 2.0**-9
    inputs = (q, keys, draw(st.sampled_from([None, weights, -weights.abs() - 1])), torch.tensor(spans, device=DEVICE))
    return plan, inputs, scales, draw(st.integers(1, 80))


def check(case):
    plan, inputs, scales, topk = case
    found = hytopk(*inputs, topk, plan=plan, **scales)
    table = oracle(*inputs, **scales)
    assert_selection(found, table, topk)
    enough = found.candidates >= (table > -INFINITY).sum(1).clamp(max=topk)
    assert bool((found.recovered | enough).all())
    if len(inputs[1]) > plan.capacity:
        assert bool((found.recovered | (found.candidates <= plan.capacity)).all())


@settings(max_examples=60)
@given(cases())
def test_any_plan_selects_what_the_oracle_does(case):
    check(case)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_path_selects_the_same(family):
    q, keys, weights = exact(2, 4, 32, 650, 5)
    keys = FAMILIES[family](keys, 5)
    spans = torch.tensor([[0, 650], [3, 600]], device=DEVICE)
    found = hytopk(q, keys, weights, spans, 30, plan=SMALL_PLAN)
    assert torch.equal(found.indices, select(q, keys, weights, spans, 30, method="radix"))


@pytest.mark.parametrize("topk", [1, 16, 512, 2048])
@pytest.mark.parametrize("length", [1, 4096, 12289, 262144, 2**21])
def test_plans_of_real_runs_fit_their_bounds(topk, length):
    plan = Plan.of(topk, length)
    # 2.25 topk are expected to reach the threshold, 6 topk fit, samples fit the registers.
    assert plan.rank * plan.stride >= 2.25 * topk
    assert plan.capacity >= 6 * topk
    assert plan.rank < plan.hopeless
    assert length // plan.stride <= 16384
    rows = plan.rows(length)
    assert rows * max(length // 8, 4 * (length // plan.stride)) <= plan.bitmap_bytes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"stride": 0}, "at least 1"),
        ({"rank": 0}, "at least 1"),
        ({"capacity": 0}, "at least 1"),
        ({"bitmap_bytes": 0}, "at least 1"),
        ({"capacity": 16385}, "at most 16384"),
        ({"lanes": 8}, "power of two"),
        ({"lanes": 48}, "power of two"),
    ],
)
def test_plans_that_cannot_run_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL_PLAN, **changed)


def test_a_length_and_topk_that_no_plan_serves_are_refused():
    with pytest.raises(ValueError, match="1 to 2048"):
        Plan.of(2049, 5000)
    with pytest.raises(ValueError, match="at most 2097152"):
        Plan.of(2048, 2**21 + 1)
