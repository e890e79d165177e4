"""Inputs and assertions that several test files of selections share."""

import torch
from hyscale_kernels.score_table import select
from hyscale_kernels.score_table.api import Tile, fill
from hyscale_kernels.scoring.inputs import FP8, Scored
from hyscale_kernels.scoring.reference import scores as oracle

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INFINITY = float("inf")
SMALL = Tile(columns=32, keys=16, warps=4, stages=2)


def whole(n, length):
    return torch.tensor([[0, length]], device=DEVICE).repeat(n, 1)


def random(n, heads, dim, length, dtype=torch.bfloat16, seed=0):
    """Normal queries, keys and head weights of both signs."""
    draw = torch.Generator().manual_seed(seed)
    shapes = ((n, heads, dim), (length, dim), (n, heads))
    q, keys, weights = (torch.randn(shape, generator=draw).to(DEVICE) for shape in shapes)
    return q.to(dtype), keys.to(dtype), weights


def exact(n, heads, dim, length, seed=0):
    """Small whole numbers, whose scores FP32 holds exactly."""
    draw = torch.Generator().manual_seed(seed)
    shapes = ((n, heads, dim), (length, dim), (n, heads))
    q, keys, weights = (torch.randint(-2, 3, shape, generator=draw).to(DEVICE) for shape in shapes)
    return q.bfloat16(), keys.bfloat16(), weights.float()


def row(*values):
    """Inputs for which a query's scores are these values, exactly, for each of its weights 1, -1 and 0."""
    values = torch.tensor(values, dtype=torch.float64) if len(values) > 1 else torch.as_tensor(values[0])
    values = values.to(DEVICE)
    keys = torch.zeros(len(values), 32, device=DEVICE, dtype=torch.bfloat16)
    keys[:, 0] = (values != 0).bfloat16()
    q = torch.zeros(1, 1, 32, device=DEVICE, dtype=torch.bfloat16)
    q[..., 0] = 1
    return q, keys, values.float().where(values != 0, torch.ones_like(values).float())


def table_of(inputs, length=None, tile=SMALL, table=True):
    """What a launch with a small tile writes."""
    scored = Scored.of(*inputs)
    length = inputs[1].shape[0] if length is None else length
    shape = (inputs[0].shape[0], length) if table else inputs[0].shape[:1]
    out = torch.full(shape, 7.0, device=DEVICE)
    fill(scored, out, table=table, tile=tile)
    return out


def assert_scores(found, q, keys, weights, spans, **scales):
    """Within what FP32, or the additions of an FP8 tensor core, may lose of the sum of magnitudes."""
    wanted = oracle(q, keys, weights, spans, **scales)
    magnitude = oracle(
        q.double().abs(), keys.double().abs(), None if weights is None else weights.abs(), spans, **scales
    )
    close = 1e-4 if q.dtype == FP8 else 1e-6
    assert torch.equal(found == -INFINITY, wanted == -INFINITY)
    seen = wanted.isfinite()
    assert torch.equal(found[~seen].double(), wanted[~seen])
    assert bool(((found - wanted)[seen].abs() <= close * magnitude[seen]).all())


def assert_selected(chosen, table, topk):
    """As many of the highest as there are, ascending, unique and padded; which of equal ones is not compared."""
    assert chosen.shape == (table.shape[0], topk)
    assert chosen.dtype == torch.int32
    for found, values in zip(chosen.cpu(), table.cpu(), strict=True):
        values = values.masked_fill(values.isnan(), -INFINITY)
        best = values.sort(descending=True).values[:topk]
        best = best[best > -INFINITY]
        picked, padding = found[: len(best)].long(), found[len(best) :]
        assert bool((padding == -1).all())
        assert bool((picked >= 0).all())
        assert bool((picked.diff() > 0).all())
        assert torch.equal(values[picked].sort(descending=True).values, best)


def selected(values, topk, weight=1.0):
    q, keys, scale = row(values)
    weights = torch.full((1, 1), weight, device=DEVICE)
    return select(q, keys, weights, whole(1, len(keys)), topk, key_scale=scale)
