"""Rows of a selection are counted as kernels and benchmarks have them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hyscale_calibration.benches.hytopk import inputs
from hyscale_calibration.work import work_of
from hyscale_calibration.work.rows import in_order, longest, shares, visible_keys
from hyscale_kernels.hytopk import Plan
from hyscale_kernels.scoring import tiles
from hyscale_kernels.sparse_attention import pairs
from hyscale_kernels.top_k import api

from hyscale_model.layers import collected
from hyscale_model.layers.collected import emptied
from hyscale_model.layers.tiles import TOGETHER, TOGETHER_UP_TO

SHAPE = {"n": 64, "L": 4096, "H": 4, "D": 32, "k": 512, "ratio": 1, "weights": "signed", "family": "normal"}


@pytest.mark.parametrize("visible", ["all", "first", "middle"])
@pytest.mark.parametrize("ratio", [1, 4])
def test_queries_see_what_the_benchmark_lets_them_see(visible, ratio):
    shape = {**SHAPE, "visible": visible, "ratio": ratio}
    spans = inputs(shape, "bf16", "cpu")[3]
    assert visible_keys(shape).tolist() == (spans[:, 1] - spans[:, 0]).tolist()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_the_last_program_ends_no_sooner_than_work_or_the_longest_allows(lengths, slots):
    ends = longest(np.array(lengths), slots)
    assert ends >= max(max(lengths), sum(lengths) / slots)
    assert ends <= sum(lengths) / slots + max(lengths)


def test_equal_programs_take_whole_turns_and_launches_follow_each_other():
    rows = np.ones(100)
    assert in_order(rows, 2)(20) == pytest.approx(3 * 40 / 100)
    assert in_order(rows, 2, 50)(20) == pytest.approx(4 * 40 / 100)


@pytest.mark.parametrize("programs", [7, 64, 128, 256, 1024])
def test_keys_are_shared_out_as_the_kernels_do(programs, monkeypatch):
    found = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    width = 2**20
    share = tiles.shares(programs, width, tiles.NARROW, 64, torch.device("cuda"))
    assert -(-width // share) == -(-width // (-(-width // shares(programs, 264) // 64) * 64))


def test_candidates_are_those_that_the_plan_aims_at():
    for topk, length in ((512, 2**17), (2048, 2**20)):
        shape = {**SHAPE, "n": 8192, "L": length, "k": topk, "visible": "all"}
        plan = Plan.of(topk, length)
        rescored = work_of("hytopk.rescore", "bf16", shape)
        assert rescored.units["scores"] == 8192 * plan.rank * plan.stride
        assert rescored.launches == -(-8192 // (plan.chunk_bytes // (8 * plan.capacity)))
        # Of no more keys than there is room for, all are candidates.
        for keys in (plan.capacity, plan.capacity + 64):
            few = work_of("hytopk.rescore", "bf16", {**shape, "visible": keys / length})
            assert few.units["scores"] == 8192 * (keys if keys == plan.capacity else plan.rank * plan.stride)


def test_sizes_of_kernels_are_theirs():
    of_rows = (collected.ROW_SAMPLES, collected.AIM, collected.CAPACITY, collected.LEAST_CAPACITY)
    assert of_rows == (api.SAMPLES, api.AIM, api.CAPACITY, api.LEAST_CAPACITY)
    assert (TOGETHER, TOGETHER_UP_TO) == (pairs.TOGETHER, pairs.MOST)


@pytest.mark.parametrize("family", ["normal", "heavy_tailed", "clustered"])
def test_rounds_are_those_of_the_benchmarks_own_scores(family):
    shape = {**SHAPE, "n": 6, "L": 2**16, "H": 8, "visible": "all", "family": family}
    q, keys, weights, _ = inputs(shape, "bf16", "cpu")
    scores = torch.einsum("nhl,nh->nl", torch.relu(torch.einsum("nhd,ld->nhl", q.float(), keys.float())), weights)
    reached = 36 * Plan.of(512, 2**16).stride
    thresholds = scores.topk(reached, -1).values[:, -1:]
    most = (scores >= thresholds).view(6, -1, 256, 32).sum(-1).amax(-1).double().mean()
    assert emptied(reached / 2**16, family == "clustered")[0] == pytest.approx(float(most), rel=0.2)
