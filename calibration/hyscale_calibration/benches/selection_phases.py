"""Selection by phase at one shape: scoring with and without a table, top-k of a table, HyTopK and its steps.

What the other benchmarks of selection compare, one row a kernel, for every shape alike.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from hyscale_calibration.benches.hytopk import CHECKED, check_selection, inputs, steps
from hyscale_calibration.benches.operation import (
    CannotRun,
    Case,
    CheckFailed,
    Measurement,
    Measurements,
    Operation,
    Shape,
)

if TYPE_CHECKING:
    import torch

# Keys whose scores are compared with the oracle's.
COLUMNS = 4096
# Of a score, over the sum of magnitudes: what rounding explains.
TOLERANCES = {"bf16": 1e-5, "fp8": 2e-3}


def measure(shape: Shape, dtype: str, device: str) -> Measurements:
    """Each phase on its own; the steps of HyTopK only where their queries fit one block."""
    import torch
    from hyscale_kernels.hytopk import Plan, hytopk
    from hyscale_kernels.score_table.api import fill
    from hyscale_kernels.scoring.inputs import Scored
    from hyscale_kernels.top_k.api import MOST, select_rows
    from hyscale_kernels.top_k.reference import top_k

    n, length, heads, dim, topk = (shape[key] for key in ("n", "L", "H", "D", "k"))
    given = inputs(shape, dtype, device)
    spans = given[3]
    try:
        scored = Scored.of(*given)
    except ValueError as error:
        raise CannotRun(str(error)) from error
    visible = float((spans[:, 1] - spans[:, 0]).sum())
    flop = 2.0 * visible * heads * dim
    table, highest = torch.empty(n, length, device=device), torch.empty(n, device=device)

    def row(name: str, run: Any, check: Any) -> Measurement:
        return Measurement(name=name, shape=shape, check=check, run=run, flop=flop)

    scoring = partial(check_scores, given, dtype, table, highest, lambda: fill(scored, table))
    yield row("score_only", lambda: fill(scored, highest, table=False), scoring)
    yield row("score_table", lambda: fill(scored, table), scoring)
    fill(scored, table)
    oracle = (table[-CHECKED:].clone(), top_k(table[-CHECKED:], min(topk, length)))
    chosen = torch.empty(n, topk, dtype=torch.int32, device=device)
    lowest = torch.empty(n, device=device)

    def by_torch() -> torch.Tensor:
        return torch.topk(table, min(topk, length), dim=-1, sorted=False).values

    yield row("topk_torch", by_torch, partial(check_values, by_torch, oracle[0]))
    if topk > MOST:
        return
    select_exactly = partial(hytopk, *given, topk)
    certify = partial(check_selection, select_exactly, oracle)

    def by_radix() -> torch.Tensor:
        select_rows(table, spans, topk, chosen, lowest)
        return chosen

    yield row("topk_radix", by_radix, partial(check_indices, by_radix, oracle[1]))
    yield row("hytopk", select_exactly, certify)
    plan = Plan.of(topk, length)
    if n <= plan.rows(length) and length > max(plan.capacity, plan.short):
        del table, oracle
        once = cache(certify)
        parts = [each for each in steps(scored, topk, shape, flop) if isinstance(each, Measurement)]
        # A step reads what those before it left.
        for part in parts:
            part.run()
        for part in parts:
            yield replace(part, check=once)


def check_scores(given: Any, dtype: str, table: torch.Tensor, highest: torch.Tensor, fill_table: Any) -> dict[str, Any]:
    """Error of the last scores of the last queries over the sum of magnitudes."""
    from hyscale_kernels.scoring.reference import scores

    fill_table()
    q, all_keys, weights, spans = given
    q, weights = q[-CHECKED:], None if weights is None else weights[-CHECKED:]
    keys = all_keys[-COLUMNS:]
    first = all_keys.shape[0] - len(keys)
    local = (spans[-CHECKED:] - first).clamp(min=0)
    expected = scores(q, keys, weights, local)
    magnitudes = scores(q.float().abs(), keys.float().abs(), None if weights is None else weights.abs(), local)
    found = table[-CHECKED:, first:].double()
    visible = expected.isfinite()
    if not bool((found.isfinite() == visible).all()):
        raise CheckFailed("scores are finite where nothing is visible, or the reverse")
    errors = ((found - expected).abs() / magnitudes)[visible]
    error = float(errors.max()) if errors.numel() else 0.0
    # NaN is not within the tolerance either.
    if not error <= TOLERANCES[dtype]:
        raise CheckFailed(f"a score is off by {error:.1e} of the sum of magnitudes")
    return {"error": error}


def check_values(run: Any, rows: torch.Tensor) -> dict[str, Any]:
    """The values of the last rows are those that a sort gives."""
    import torch

    found = run()[-CHECKED:].sort(dim=-1, descending=True).values
    if not torch.equal(found, rows.sort(dim=-1, descending=True).values[:, : found.shape[1]]):
        raise CheckFailed("torch.topk does not select the largest scores")
    return {}


def check_indices(run: Any, expected: torch.Tensor) -> dict[str, Any]:
    """The last rows select what the oracle does, index by index."""
    import torch

    if not torch.equal(run()[-CHECKED:, : expected.shape[1]], expected):
        raise CheckFailed("other keys than the oracle's are selected")
    return {}


def case(name: str, **shape: Any) -> Case:
    """A case at GLM-5.1's indexer unless said otherwise; see ``hytopk.case``."""
    usual = {"n": 2048, "L": 1_048_576, "H": 32, "D": 128, "k": 2048, "ratio": 1}
    return Case(name=name, shape={**usual, "weights": "signed", "visible": "all", "family": "normal", **shape})


OPERATION = Operation(
    name="selection_phases",
    description="scoring, top-k of a table, HyTopK and its steps at one shape",
    sources=(
        "hytopk/gluon.py",
        "hytopk/triton.py",
        "replay/triton.py",
        "score_table/gluon.py",
        "score_table/triton.py",
        "scoring/gluon.py",
        "scoring/triton.py",
        "top_k/triton.py",
    ),
    dtypes=("bf16", "fp8"),
    cases=(
        case("1M keys, GLM-5.1's indexer"),
        case("CSA at 1M tokens", n=4096, L=262_144, H=64, k=512, ratio=4),
        case("QSA at 1M tokens", n=4096, L=262_144, H=4, k=512, ratio=4, weights="none"),
    ),
    trial={"n": 4, "L": 256, "H": 2, "D": 32, "k": 8, "ratio": 1},
    measure=measure,
    samples=7,
)
