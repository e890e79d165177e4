"""Inputs and assertions that several test files of selections share."""

import torch
from hyscale_kernels.hytopk import Plan
from hyscale_kernels.score_table import select
from hyscale_kernels.score_table.api import fill
from hyscale_kernels.scoring.inputs import FP8, Scored
from hyscale_kernels.scoring.reference import scores as oracle
from hyscale_kernels.scoring.tiles import Tile
from hyscale_kernels.top_k import reference
from hyscale_kernels.top_k.api import SAMPLES

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


def best_places(values, topk):
    """Places of the highest values by an ordinary sort of Python's numbers, which holds -0.0 and 0.0 for equal."""
    some = [(-value, place) for place, value in enumerate(values) if value > -INFINITY]
    places = sorted(place for _, place in sorted(some)[:topk])
    return places + [-1] * (topk - len(places))


def assert_exactly_selected(chosen, table, topk):
    """The one right answer, ties to the lower position."""
    assert chosen.dtype == torch.int32
    assert torch.equal(chosen.cpu(), reference.top_k(table.float(), topk).cpu())


def within(table, spans):
    """Minus infinity outside the spans."""
    places = torch.arange(table.shape[1], device=table.device)
    return table.masked_fill((places < spans[:, :1]) | (places >= spans[:, 1:]), -INFINITY)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def shuffled(values, seed=0):
    return values[torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))]


def broken_elsewhere():
    """Rows of finite scores that other selections got wrong: name, values above or at 0, topk."""
    low_bits = torch.arange(6000, dtype=torch.int32) % 1024 + 0x3F800000
    plateau = torch.zeros(8320).index_fill(0, torch.arange(4000, 4100), 1.0)
    ties = torch.full((20000,), 2.0).index_fill(0, torch.arange(0, 20000, 40), 5.0)
    duplicates = normal(5000, seed=3).cpu().abs()
    # Fifty times the 120th, so that it lies across the border.
    duplicates[::100] = duplicates.sort(descending=True).values[119]
    return {
        "random": (normal(13000, seed=1).cpu().abs(), 2048),
        "upper 22 bits shared": (shuffled(low_bits).view(torch.float32), 100),
        "neighbours in FP32": (shuffled(1 + torch.arange(5000) * 2.0**-23), 700),
        "periodic ties of BF16": ((torch.arange(8192) % 64).bfloat16().float() / 64, 128),
        "relu plateau": (plateau, 2048),
        "more ties than candidates": (ties, 2048),
        "ascending": (torch.arange(1, 5001).float(), 512),
        "descending": (torch.arange(5000, 0, -1).float(), 512),
        "beyond FP16": (1e5 + 2e5 * torch.rand(5000, generator=torch.Generator().manual_seed(4)), 333),
        "duplicates across the border": (duplicates, 130),
        "subnormals": (shuffled(torch.arange(5000, dtype=torch.int32) // 3).view(torch.float32), 200),
        "zeros everywhere": (torch.zeros(5000), 300),
    }


def sampled(begin, end, number=SAMPLES):
    """The places of a row of a table whose scores decide the threshold of ``top_k``."""
    samples, visible = torch.arange(number), end - begin
    mixed = (samples + 1) * 2654435761 % 2**32
    mixed = (mixed ^ (mixed >> 15)) * 2246822519 % 2**32
    spread = (mixed ^ (mixed >> 13)) >> 16 & 0x7FFF
    return (begin + samples * visible // number + spread % max(visible // number, 1)).to(DEVICE)


def looked_at(width, begin=0, end=None):
    seen = torch.zeros(width, dtype=torch.bool, device=DEVICE)
    seen[sampled(begin, width if end is None else end)] = True
    return seen


# As the plans of real runs, small enough for an interpreter: 48 keys are expected to reach a threshold.
SMALL_PLAN = Plan(stride=8, rank=6, capacity=128, hopeless=40, lanes=16)


def queries_of(values, weights):
    """Inputs of hytopk, by name, for a query for each weight whose scores are these values times it, exactly."""
    q, keys, key_scale = row(values)
    n = len(weights)
    return {
        "q": q.repeat(n, 1, 1),
        "keys": keys,
        "weights": torch.tensor(weights, device=DEVICE)[:, None],
        "spans": whole(n, len(keys)),
        "key_scale": key_scale,
    }


def assert_selection(found, table, topk):
    """The one right answer, and what certifies it, where ``table`` holds the scores and minus infinity elsewhere."""
    assert_exactly_selected(found.indices, table, topk)
    assert bool((found.margin >= 0).all())
    assert bool(found.margin[found.recovered].isinf().all())
    assert found.candidates.dtype == torch.int32
    assert found.recovered.dtype == torch.bool


def assert_equal_selections(found, wanted, rows=slice(None)):
    for name in ("indices", "candidates", "margin", "recovered"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)[rows]), name
