"""A layer shared by ranks beside one process that has every token: selections, outputs, gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from hyscale_kernels.spans import zigzag_positions

from hyscale_calibration.benches.operation import CheckFailed
from hyscale_calibration.layers.across.gathered import GatheredKeys, in_order
from hyscale_calibration.layers.build import hidden_states, layer_in
from hyscale_calibration.layers.check import GRADIENT_TOLERANCE, NARROW, SIZES, TOLERANCE, off_by
from hyscale_calibration.layers.context import Context, WholeSequence
from hyscale_calibration.layers.facts import across_ranks, values_of
from hyscale_calibration.layers.layer import Options, SparseLayer
from hyscale_calibration.layers.measure import Bench
from hyscale_calibration.layers.sizes import DsaSizes
from hyscale_calibration.layers.systems import Strategy, system_named

# Tokens of a sequence that is checked on a GPU: four times as many as GLM's indexer selects. And elsewhere, where
# kernels are interpreted and layers tiny.
TOKENS, FEW_TOKENS = 8192, 16
FEW_SELECTED = 4
# What is said of ``cp_overlap``.
GATHERS = {"none": "exposed", "behind_selection": "hidden"}
# Of weights: a rank's part may be larger than the sum of all, and is rounded to BF16 as it is.
SUM_TOLERANCE = 2 * GRADIENT_TOLERANCE


class Shared(NamedTuple):
    """What a step of one rank is made of."""

    length: int
    sizes: DsaSizes
    system: Strategy
    options: Options
    device: str

    def layer(self, context: Context) -> SparseLayer:
        """With the same weights on every rank and in every process."""
        generator = torch.Generator(self.device).manual_seed(0)
        return layer_in(context, "dsa", self.sizes, self.system, self.options, device=self.device, generator=generator)

    def states(self, places: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states of some tokens, or of all."""
        return hidden_states(self.length, self.sizes.hidden, places=places, device=self.device)


def variants() -> list[Strategy]:
    """Systems with gathers exposed and hidden, as the catalogue has them."""
    return [replace(system_named(each["system"]), cp_overlap=each["cp_overlap"]) for each in across_ranks()["variants"]]


def check_ranks(device: str, systems: Collection[str] = ()) -> Iterator[str]:
    """Check systems, with gathers as each has them, over the ranks of the process group; a line each.

    Args:
        device: of every rank.
        systems: names, none: all.

    Raises:
        CheckFailed: ranks select other keys than one process, or outputs or gradients differ.
    """
    ranks = dist.get_world_size()
    if device == "cuda":
        narrow: dict[str, Any] = dict(NARROW)
        sizes = replace(DsaSizes.of(values_of("models", across_ranks()["rows"][0]["model"])), **narrow)
        length = TOKENS
    else:
        sizes, length = SIZES["dsa"], FEW_TOKENS
        sizes = replace(sizes, index=replace(sizes.index, topk=FEW_SELECTED))
    for system in variants():
        if (systems and system.name not in systems) or system != system_named(system.name):
            continue
        found = compare(Shared(length, sizes, system, Options(deterministic=True), device))
        told = ", ".join(f"{name} {error:.1e}" for name, error in found.items())
        what = f"{ranks} ranks as {system.name}, gathers {GATHERS[system.cp_overlap]}"
        yield f"{what}: the selections of one process; errors {told}"


def compare(shared: Shared) -> dict[str, float]:
    """Relative errors of this rank's output and gradients beside one process that has every token.

    Raises:
        CheckFailed: an error is beyond its tolerance, or a selection is not bitwise that of one process.
    """
    context = GatheredKeys(shared.length, device=shared.device)
    places = context.positions
    generator = torch.Generator(shared.device).manual_seed(3)
    shape = (shared.length, shared.sizes.hidden)
    grad = torch.randn(shape, device=shared.device, generator=generator).bfloat16()
    # The mean loss over a rank's queries: the means of all ranks are as many times that over all tokens.
    bench = Bench(shared.layer(context), shared.states(places), grad[places], coefficient=1 / context.ranks)
    used: list[torch.Tensor] = []
    attended = bench.layer.attended
    bench.layer.attended = lambda indices: used.append(indices.clone()) or attended(indices)  # type: ignore[func-returns-value,method-assign]
    out = bench.step()
    indices, alone_out = in_one_process(shared, context)
    for name, chosen in zip(("forward", "recomputation"), used, strict=True):
        if not torch.equal(chosen, indices):
            raise CheckFailed(f"the {name} of rank {context.rank} selects other keys than one process does")
    if not torch.equal(out, alone_out):
        raise CheckFailed(f"the output of rank {context.rank} differs from that of one process with the same keys")
    whole = Bench(shared.layer(WholeSequence(shared.length, shared.device)), shared.states(), grad)
    whole_out = whole.step()
    whole_gradient = None if whole.x.grad is None else whole.x.grad[places]
    found = {"output": off_by(out, whole_out[places]), "gradient of x": off_by(bench.x.grad, whole_gradient)}
    worst, off = "", -1.0
    for (name, own), other in zip(bench.layer.named_parameters(), whole.layer.parameters(), strict=True):
        total = torch.full(own.shape, float("nan"), device=own.device) if own.grad is None else own.grad.float()
        dist.all_reduce(total)
        error = off_by(total, other.grad)
        # NaN is no smaller than anything.
        if not error <= off:
            worst, off = name, error
    found[f"gradient of {worst}"] = off
    limits = (TOLERANCE, GRADIENT_TOLERANCE, SUM_TOLERANCE)
    for (name, error), limit in zip(found.items(), limits, strict=True):
        if not error <= limit:
            raise CheckFailed(f"{name} of rank {context.rank} as {shared.system.name} is off by {error:.1e}")
    return found


@torch.no_grad()
def in_one_process(shared: Shared, context: GatheredKeys) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's selection and output by a process that computes the keys of every rank in turn.

    Products have as many rows as those of ranks, so that bits are those of ranks: libraries choose kernels by shape.

    Returns:
        int32 ``[n, topk]``, BF16 ``[n, hidden]``.
    """
    found: dict[str, list[torch.Tensor]] = {}
    for rank in range(context.ranks):
        places = zigzag_positions(shared.length, context.ranks, rank, shared.device)
        # Asked for in their order, each once a rank.
        shared.layer(_Given(shared.length, places, lambda name, own: found.setdefault(name, []).append(own))).project(
            shared.states(places)
        )
    whole = {name: in_order(torch.cat(rows), context.ranks) for name, rows in found.items()}
    layer = shared.layer(_Given(shared.length, context.positions, lambda name, own: whole[name]))
    out, _ = layer(shared.states(context.positions))
    assert layer.last is not None
    return layer.last[0], out


class _Given:
    """Rows of the whole sequence from whoever has them; None: the rank's own."""

    def __init__(
        self, length: int, positions: torch.Tensor, give: Callable[[str, torch.Tensor], torch.Tensor | None]
    ) -> None:
        self.length, self.positions, self._give = length, positions, give

    def whole(self, name: str, own: torch.Tensor) -> torch.Tensor:
        found = self._give(name, own)
        return own if found is None else found

    def coming(self, name: str, own: torch.Tensor, *, hidden: bool) -> Callable[[], torch.Tensor]:
        found = self.whole(name, own)
        return lambda: found


def equal_rows(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of queries for which the same keys were selected, in whatever order: of int32 ``[n, topk]``."""
    return float((found.sort(dim=1).values == expected.sort(dim=1).values).all(dim=1).double().mean())


def worst_over_ranks(value: float, device: str) -> float:
    """The least of what ranks found."""
    least: Any = torch.tensor(value, device=device, dtype=torch.float64)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return float(least)
