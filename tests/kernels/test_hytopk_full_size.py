"""HyTopK at the sizes of a real run, against the table path, one part of the kernels against another, and float64."""

from dataclasses import replace

import pytest
import torch
from hyscale_kernels.hytopk import Plan, hytopk, stages
from hyscale_kernels.replay.rescore import rescore
from hyscale_kernels.score_table import score_table, select
from hyscale_kernels.score_table.api import fill
from hyscale_kernels.scoring.inputs import FP8, Scored
from hyscale_kernels.scoring.reference import scores as oracle
from hyscale_kernels.spans import causal_spans, zigzag_positions
from inputs import DEVICE, INFINITY, assert_equal_selections, random, whole

pytestmark = pytest.mark.gpu
TYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, FP8], ids=["bf16", "fp8"])
# What rounding may lose of the sum of magnitudes.
LOST = {torch.bfloat16: 1e-6, FP8: 1e-4}


def last(n, length):
    """Spans of the last queries of a sequence."""
    return causal_spans(torch.arange(length - n, length, device=DEVICE))


def assert_as_by_table(found, inputs, topk, rows=slice(None), **scales):
    q, keys, weights, spans = inputs
    scales = {name: value[rows] if name == "q_scale" else value for name, value in scales.items()}
    wanted = select(q[rows], keys, weights[rows], spans[rows], topk, method="radix", **scales)
    assert torch.equal(found.indices[rows], wanted)


def weighted(heads, inputs):
    """Few heads with positive weights: the best that negative ones alone give is a plateau of zeros, never filtered."""
    q, keys, weights = inputs
    return q, keys, weights.abs() if heads <= 4 else weights


@TYPES
@pytest.mark.parametrize(("heads", "topk"), [(32, 2048), (64, 512), (4, 512)])
def test_twenty_launches_are_equal_bit_for_bit_and_to_the_table_and_near_float64(gpu, dtype, heads, topk):
    n, length = 500, 131072
    inputs = (*weighted(heads, random(n, heads, 128, length, dtype)), last(n, length))
    first = hytopk(*inputs, topk)
    assert_as_by_table(first, inputs, topk)
    # Random scores hardly ever mislead the samples.
    assert int(first.recovered.sum()) <= 1
    assert bool((first.margin >= 0).all())
    for _ in range(20):
        assert_equal_selections(hytopk(*inputs, topk), first)
    q, keys, weights, spans = inputs
    for t in (0, 250, 499):
        row = slice(t, t + 1)
        wanted = oracle(q[row], keys, weights[row], spans[row])[0]
        magnitude = oracle(q[row].double().abs(), keys.double().abs(), weights[row].abs(), spans[row]).amax()
        chosen = torch.zeros(length, dtype=torch.bool, device=DEVICE)
        chosen[first.indices[t].long()] = True
        assert int(chosen.sum()) == topk
        # No key left out is better than one selected by more than two roundings.
        assert wanted[chosen].amin() >= wanted[~chosen].amax() - 2 * LOST[dtype] * magnitude


@TYPES
@pytest.mark.parametrize("heads", [1, 4, 6, 16, 32, 64])
def test_filter_table_and_rescoring_give_the_same_bits(gpu, dtype, heads):
    n, length, topk = 70, 50001, 512
    inputs = (*weighted(heads, random(n, heads, 128, length, dtype)), last(n, length))
    table = score_table(*inputs)
    scored, plan = Scored.of(*inputs), Plan.of(topk, length)
    found = hytopk(*inputs, topk)

    rescored = torch.empty(n, topk, device=DEVICE)
    rescore(scored, found.indices, rescored)
    assert torch.equal(rescored, table.gather(1, found.indices.long()))

    threshold = torch.empty(n, device=DEVICE)
    spans = torch.empty_like(scored.spans)
    stages.find_thresholds(scored, plan, threshold, spans)
    words = torch.zeros(n, -(-length // (32 * plan.lanes)) * plan.lanes, dtype=torch.int32, device=DEVICE)
    stages.mark(scored, plan, threshold, spans, words)
    bits = (words[..., None] >> torch.arange(32, device=DEVICE) & 1).flatten(1)[:, :length].bool()
    reached = table >= threshold[:, None]
    # Words that no query of a block sees are not written.
    assert torch.equal(bits & (table > -INFINITY), reached)
    assert torch.equal(found.candidates.long(), reached.sum(1))


@TYPES
def test_queries_in_pieces_and_with_other_neighbours_are_the_same_bits(gpu, dtype):
    length, topk = 4096, 64
    inputs = (*random(length, 16, 128, length, dtype), last(length, length))
    # Short keys would not be filtered.
    plan = replace(Plan.of(topk, length), short=0)
    whole_run = hytopk(*inputs, topk, plan=plan)
    assert_as_by_table(whole_run, inputs, topk)
    q, keys, weights, spans = inputs
    for size in (1, 7, 512, 1000):
        starts = range(0, length, size) if size > 100 else range(4096 - 5 * size, 4096, size)
        for first in starts:
            rows = slice(first, min(first + size, length))
            found = hytopk(q[rows], keys, weights[rows], spans[rows], topk, plan=plan)
            assert_equal_selections(found, whole_run, rows)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = hytopk(q[order], keys, weights[order], spans[order], topk, plan=plan)
    assert_equal_selections(found, whole_run, order)


@TYPES
@pytest.mark.parametrize("ranks", [2, 4])
def test_zigzag_ranks_equal_a_single_run(gpu, dtype, ranks):
    length, topk = 16384, 128
    inputs = (*random(length, 4, 128, length, dtype), last(length, length))
    single = hytopk(*inputs, topk)
    q, keys, weights, _ = inputs
    for rank in range(ranks):
        held = zigzag_positions(length, ranks, rank, DEVICE)
        assert_equal_selections(hytopk(q[held], keys, weights[held], causal_spans(held), topk), single, held)


@TYPES
def test_plans_with_other_blocks_and_lanes_give_the_same_bits(gpu, dtype):
    n, length, topk = 1000, 40000, 512
    inputs = (*random(n, 32, 128, length, dtype), last(n, length))
    wanted = hytopk(*inputs, topk).indices
    for changed in (
        {"bitmap_bytes": 2**20, "chunk_bytes": 2**16},
        {"lanes": 32, "chunk_bytes": 1},
        {"stride": 100, "rank": 3, "capacity": 1000, "hopeless": 9},
        {"stride": 16, "rank": 300, "capacity": 16384, "hopeless": 900},
    ):
        plan = Plan(**{"stride": 32, "rank": 40, "capacity": 3072, "hopeless": 155} | changed)
        found = hytopk(*inputs, topk, plan=plan)
        assert torch.equal(found.indices, wanted), changed
        assert bool((found.margin >= 0).all())


def test_a_relu_plateau_on_which_every_query_is_recovered(gpu):
    n, length, topk, winners = 1100, 131072, 512, 100
    q, keys, weights = random(n, 4, 128, length)
    weights, q, keys = weights.abs() + 0.1, q.abs(), -keys.abs()
    keys[70000 : 70000 + winners] *= -1
    found = hytopk(q, keys, weights, whole(n, length), topk)
    assert bool(found.recovered.all())
    assert bool((found.margin == INFINITY).all())
    wanted = torch.cat([torch.arange(topk - winners), torch.arange(70000, 70000 + winners)]).int().to(DEVICE)
    assert bool((found.indices == wanted).all())


def test_keys_that_score_high_together_are_recovered_or_certified(gpu):
    n, length, topk = 300, 200000, 2048
    q, keys, weights = random(n, 16, 128, length)
    keys[90000:93000] *= 8
    keys[10::4000] *= 30
    inputs = (q, keys, weights, last(n, length))
    assert_as_by_table(hytopk(*inputs, topk), inputs, topk)


@TYPES
def test_the_most_keys(gpu, dtype):
    n, length, topk = 100, 2**21, 2048
    q, keys, weights = random(n, 4, 128, length, dtype)
    q[-1, 0], weights[-1] = 1, torch.tensor([1.0, 0.0, 0.0, 0.0])
    keys[-1] = 8
    inputs = (q, keys, weights, whole(n, length))
    found = hytopk(*inputs, topk)
    assert found.indices[-1, -1] == length - 1
    assert_as_by_table(found, inputs, topk)


@TYPES
def test_compressed_sparse_attention_of_a_million_tokens(gpu, dtype):
    n, length, topk = 32768, 262144, 512
    # The first and the last chunk: spans of 0 to 4,096 and of nearly all entries.
    positions = zigzag_positions(4 * length, 32, 0, DEVICE)
    assert len(positions) == n
    inputs = (*random(n, 64, 128, length, dtype), causal_spans(positions, ratio=4))
    found = hytopk(*inputs, topk)
    assert int(found.recovered.sum()) <= 3
    rows = torch.arange(0, n, 509, device=DEVICE)
    assert_as_by_table(found, inputs, topk, rows)


def test_more_queries_than_65535_and_a_plan_of_many_blocks(gpu):
    n, length, topk = 70001, 20000, 16
    q, keys, weights = random(n, 4, 32, length)
    inputs = (q, keys, weights, whole(n, length))
    plan = Plan(stride=32, rank=40, capacity=3072, hopeless=155, bitmap_bytes=2**27, chunk_bytes=2**26)
    for found in (hytopk(*inputs, topk), hytopk(*inputs, topk, plan=plan)):
        assert_as_by_table(found, inputs, topk)


def test_queries_beyond_32_bits_of_offset(gpu):
    n, length, topk = 2**17 + 3, 5000, 8
    q = torch.ones(1, 1, 1, device=DEVICE, dtype=torch.bfloat16).expand(n, 128, 128).contiguous()
    assert q.numel() > 2**31
    some, keys, weights = random(5, 128, 128, length)
    q[-5:] = some
    spans = whole(n, length)
    found = hytopk(q, keys, weights[:1].expand(n, 128), spans, topk)
    alone = hytopk(some, keys, weights[:1].expand(5, 128), spans[-5:], topk)
    assert_equal_selections(alone, found, slice(n - 5, n))


@TYPES
def test_keys_with_a_row_stride_beyond_32_bits_of_offset(gpu, dtype):
    n, length, topk = 50, 600000, 512
    q, keys, weights = random(n, 4, 128, length, dtype)
    apart = torch.empty(length, 4096, device=DEVICE, dtype=dtype)[:, 64:192]
    apart.copy_(keys)
    assert (length - 1) * apart.stride(0) > 2**31
    spans = last(n, length)
    found = hytopk(q, apart, weights, spans, topk)
    assert_equal_selections(found, hytopk(q, keys, weights, spans, topk))
    assert_as_by_table(found, (q, keys, weights, spans), topk)


def test_fp8_with_scales_from_2_to_the_minus_10_to_2_to_the_10(gpu):
    n, length, topk = 300, 100000, 2048
    inputs = (*random(n, 32, 128, length, FP8), last(n, length))
    draw = torch.Generator().manual_seed(2)
    scales = {
        "q_scale": torch.exp2(20 * torch.rand(n, 32, generator=draw) - 10).to(DEVICE),
        "key_scale": torch.exp2(20 * torch.rand(length, generator=draw) - 10).to(DEVICE),
    }
    found = hytopk(*inputs, topk, **scales)
    assert_as_by_table(found, inputs, topk, **scales)
    assert int(found.recovered.sum()) <= 1


@TYPES
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("n", "heads", "length"), [(70, 32, 50001), (9, 64, 8192), (300, 4, 20000), (500, 16, 131072)])
def test_gluon_gives_the_bits_of_its_twin(gpu, dtype, scaled, n, heads, length):
    topk = 64
    inputs = (*random(n, heads, 128, length, dtype), last(n, length))
    scales = {"key_scale": torch.rand(length, device=DEVICE) + 0.5} if scaled else {}
    scored, plan = Scored.of(*inputs, None, *scales.values()), Plan.of(topk, length)
    threshold = torch.empty(n, device=DEVICE)
    spans = torch.empty_like(scored.spans)
    stages.find_thresholds(scored, plan, threshold, spans)
    marked = []
    for impl in ("triton", "gluon"):
        words = torch.zeros_like(stages.bitmap(n, length, plan, DEVICE))
        stages.mark(scored, plan, threshold, spans, words, impl)
        marked.append(words)
    assert torch.equal(*marked)
    filled = torch.empty(2, n, length, device=DEVICE)
    for out, impl in zip(filled, ("triton", "gluon"), strict=True):
        fill(scored, out, impl=impl)
    assert torch.equal(*filled)
    assert_equal_selections(
        hytopk(*inputs, topk, **scales, impl="gluon"), hytopk(*inputs, topk, **scales, impl="triton")
    )


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize(("n", "length"), [(4096, 2**20), (40000, 12000), (40000, 2**16)])
def test_memory_beyond_inputs_and_results_is_bounded(gpu, n, length, filtered):
    topk, heads = 2048, 4
    q, keys, weights = random(n, heads, 128, length)
    # Zeros everywhere: every query is recovered.
    inputs = (q, keys if filtered else keys * 0, weights.abs(), whole(n, length))
    hytopk(*inputs, topk)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = hytopk(*inputs, topk)
    torch.cuda.synchronize()
    results = sum(each.nbytes for each in (found.indices, found.candidates, found.margin, found.recovered))
    assert torch.cuda.max_memory_allocated() - before - results < 1.5 * 2**30


@TYPES
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("n", "heads", "length"), [(70, 32, 50001), (9, 64, 8192), (300, 4, 20000)])
def test_tables_and_maxima_in_gluon_have_the_bits_of_their_twins(gpu, dtype, scaled, n, heads, length):
    inputs = (*random(n, heads, 128, length, dtype), last(n, length))
    scales = {"key_scale": torch.rand(length, device=DEVICE) + 0.5} if scaled else {}
    scored = Scored.of(*inputs, None, *scales.values())
    for shape, table in (((n, length), True), ((n,), False)):
        twins = []
        for impl in ("triton", "gluon"):
            out = torch.full(shape, 7.0, device=DEVICE)
            fill(scored, out, table=table, impl=impl)
            twins.append(out)
        assert torch.equal(*twins)
