"""Layers at small sizes beside their oracle: outputs, losses and gradients of every system, and who selects what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from hyscale_calibration.benches.operation import CheckFailed
from hyscale_calibration.layers.build import KINDS
from hyscale_calibration.layers.cases import Case, all_systems
from hyscale_calibration.layers.facts import values_of
from hyscale_calibration.layers.layer import Options
from hyscale_calibration.layers.measure import Bench
from hyscale_calibration.layers.reference import exact_weights, reference
from hyscale_calibration.layers.sizes import CsaSizes, DsaSizes, IndexSizes, QsaSizes

# Of a chain of products whose factors are BF16, in the norm of a tensor; of gradients of what is summed over tokens.
TOLERANCE, GRADIENT_TOLERANCE = 1.5e-2, 3e-2
# What the interpreter is done with at once.
SIZES: Mapping[str, Any] = {
    "dsa": DsaSizes(
        hidden=64,
        heads=4,
        q_rank=32,
        kv_rank=32,
        nope=16,
        rope=16,
        value=16,
        index=IndexSizes(heads=4, width=32, topk=16),
    ),
    "csa": CsaSizes(
        hidden=64,
        heads=4,
        width=32,
        q_rank=32,
        rope=16,
        groups=2,
        group_rank=16,
        window=8,
        index=IndexSizes(heads=4, width=32, topk=8, ratio=4),
    ),
    "qsa": QsaSizes(
        hidden=64, heads=4, groups=2, width=32, rope=16, index=IndexSizes(heads=4, width=32, topk=4, ratio=4)
    ),
}
# Widths of the residual stream and of low-rank queries at which the oracle of a whole layer is done soon. All else is
# the model's, so that kernels are those that are timed.
NARROW = {"hidden": 512, "q_rank": 128}
# Tokens that hold more than any indexer selects, and ranks that share them.
TOKENS, RANKS = 4096, 64


def small(layer: str, ranks: int = 2, tokens: int = 48) -> Case:
    """A case of few tokens, for sizes of its own."""
    return Case(model="none", layer=layer, length=ranks * tokens, ranks=ranks)


def check_layers(cases: Iterable[Case], device: str) -> Iterator[str]:
    """Check layers of models, narrow and of few tokens, as every system; a line each.

    Raises:
        CheckFailed: an output, a loss or a gradient is wrong, or systems that should agree do not.
    """
    for model, layer in dict.fromkeys((case.model, case.layer) for case in cases):
        case = Case(model=model, layer=layer, length=TOKENS, ranks=RANKS)
        whole = KINDS[layer].sizes(values_of("models", model))
        sizes = replace(whole, **{name: value for name, value in NARROW.items() if hasattr(whole, name)})
        for system in all_systems():
            found = errors(case, sizes, system, Options(), device)
            told = ", ".join(f"{name} {error:.1e}" for name, error in found.items())
            yield f"{model} {layer} as {system}: errors {told}"
        same_bits(case, sizes, device)
        yield f"{model} {layer}, deterministic: the same bits as every system"


def errors(case: Case, sizes: Any, system: str, options: Options, device: str) -> dict[str, float]:
    """Relative errors of output, loss and the worst gradient of a step under recomputation.

    Raises:
        CheckFailed: one of them is beyond its tolerance.
    """
    bench = Bench.of(case, system, options, device, sizes)
    out = bench.step()
    assert bench.layer.last is not None
    indices, loss = bench.layer.last
    layer = bench.layer
    weights, x = exact_weights(layer), bench.x.detach().double().requires_grad_()
    expected, expected_loss = reference(layer, weights, x, indices)
    ((expected * bench.grad.double()).sum() + expected_loss).backward()
    # Of hidden states as a whole, whose rounding is more than attention's own where that is small beside them.
    found = {"output": off_by(out, expected.detach())}
    found["loss"] = float((loss - expected_loss.detach()).abs() / expected_loss.detach())
    gradients = {"x": off_by(bench.x.grad, x.grad)} | {
        name: off_by(value.grad, weights[name].grad) for name, value in layer.named_parameters()
    }
    worst = max(gradients, key=lambda name: gradients[name])
    found[f"gradient of {worst}"] = gradients[worst]
    for name, error in found.items():
        # NaN is not within the tolerance either.
        if not error <= (GRADIENT_TOLERANCE if name.startswith("gradient") else TOLERANCE):
            raise CheckFailed(f"{case.layer} as {system}: {name} is off by {error:.1e}")
    return found


def same_bits(case: Case, sizes: Any, device: str) -> None:
    """Deterministic steps of all systems give the same selections, outputs, losses and gradients.

    Raises:
        CheckFailed: they do not.
    """
    results, systems = [], all_systems()
    for system in systems:
        bench = Bench.of(case, system, Options(deterministic=True), device, sizes)
        out = bench.step()
        assert bench.layer.last is not None
        gradients = {name: value.grad for name, value in bench.layer.named_parameters()}
        results.append(
            {"output": out, "indices": bench.layer.last[0], "loss": bench.layer.last[1], "x": bench.x.grad, **gradients}
        )
    for system, other in zip(systems[1:], results[1:], strict=True):
        for name, value in results[0].items():
            if value is None or other[name] is None or not torch.equal(value, other[name]):
                raise CheckFailed(f"{case.layer}: {name} of {system} differs from that of {systems[0]}")


def off_by(found: torch.Tensor | None, expected: torch.Tensor | None) -> float:
    """Relative error in the norm of a tensor; NaN where one is missing."""
    if found is None or expected is None:
        return float("nan")
    return float((found.double() - expected.double()).norm() / expected.double().norm())
