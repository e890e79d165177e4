"""What tests of replay share: selections, gradients of the scores, and how far off is close."""

import torch
from hyscale_kernels.replay import reference, replay_gradients
from hyscale_kernels.score_table import score_table
from hyscale_kernels.scoring.inputs import FP8
from inputs import DEVICE, whole

# Relative to the norm. A factor is rounded to BF16 on a GPU and not by the interpreter; weights only by FP32 sums. The
# sign of an FP8 product near 0 is that of a sum that a tensor core cut off.
CLOSE = {torch.bfloat16: 2**-8, FP8: 2**-6} if DEVICE == "cuda" else {torch.bfloat16: 1e-6, FP8: 1e-6}
CLOSE_WEIGHTS = {torch.bfloat16: 1e-5, FP8: 1e-3}


def choose(n, length, topk, counts=None, seed=0):
    """Ascending indices, the first ``counts`` of each row; all of them without."""
    draw = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(length, generator=draw)[:topk].sort().values for _ in range(n)]
    indices = torch.full((n, topk), -1, dtype=torch.int32)
    for t, row in enumerate(rows):
        count = min(topk, length) if counts is None else min(counts[t], length)
        indices[t, :count] = row[:count]
    return indices.to(DEVICE)


def slopes(indices, seed=0):
    """Normal gradients of scores, NaN where there is no key: nothing may read them."""
    draw = torch.Generator().manual_seed(seed + 100)
    return torch.randn(indices.shape, generator=draw).to(DEVICE).masked_fill(indices < 0, float("nan"))


def off(found, wanted):
    """Error relative to the norm."""
    error = (found.double() - wanted).norm()
    return float(error / wanted.norm()) if bool(wanted.any()) else float(error)


def assert_gradients(q, keys, weights, indices, deterministic=False, **scales):
    """Those of ``replay_gradients`` against float64 autograd."""
    grads = slopes(indices)
    found = replay_gradients(grads, q, keys, weights, indices, deterministic=deterministic, **scales)
    wanted = reference.gradients(grads.masked_fill(indices < 0, 0.0), q, keys, weights, indices, **scales)
    for value, like in zip(found, wanted, strict=True):
        assert value.shape == like.shape
        assert value.dtype == torch.float32
    assert off(found.weights, wanted.weights) <= CLOSE_WEIGHTS[q.dtype]
    assert off(found.q, wanted.q) <= CLOSE[q.dtype]
    assert off(found.keys, wanted.keys) <= CLOSE[q.dtype]
    return found


def table_at(indices, q, keys, weights, **scales):
    """Scores of a table at the indices, 0 where there is none."""
    table = score_table(q, keys, weights, whole(len(q), len(keys)), **scales)
    return table.gather(1, indices.clamp(min=0).long()).masked_fill(indices < 0, 0.0)


def assert_bits(found, wanted):
    """Equal, as far as the interpreter's products of FP32 do not depend on the size of a tile."""
    if DEVICE == "cuda":
        assert torch.equal(found, wanted)
    else:
        assert off(found, wanted.double()) <= 1e-6
