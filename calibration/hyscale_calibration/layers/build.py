"""A layer of a case with its weights, the keys of other ranks, and hidden states to put through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hyscale_calibration.layers.cases import Case
from hyscale_calibration.layers.context import Context, HeldKeys
from hyscale_calibration.layers.csa import CsaLayer
from hyscale_calibration.layers.dsa import DsaLayer
from hyscale_calibration.layers.facts import values_of
from hyscale_calibration.layers.layer import Options, SparseLayer
from hyscale_calibration.layers.parts import Device
from hyscale_calibration.layers.qsa import QsaLayer
from hyscale_calibration.layers.sizes import CsaSizes, DsaSizes, QsaSizes
from hyscale_calibration.layers.systems import Strategy

# Tokens between independent hidden states, and what positions count in an indexer's queries: neighbours then select
# nine keys of ten alike, as in trained models.
DRIFT = 64
POSITION_GAIN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of layer: its sizes from a configuration, its module, and the rows that it has of other ranks.

    Attributes:
        rows: sizes -> width and tokens a row stands for, by name of ``Context.whole``.
    """

    sizes: Callable[[Mapping[str, Any]], Any]
    layer: Callable[..., SparseLayer]
    rows: Callable[[Any], Mapping[str, tuple[int, int]]]


def _dsa_rows(sizes: DsaSizes) -> Mapping[str, tuple[int, int]]:
    return {"latent": (sizes.latent, 1), "index_keys": (sizes.index.width, 1)}


def _csa_rows(sizes: CsaSizes) -> Mapping[str, tuple[int, int]]:
    ratio = sizes.index.ratio
    return {"latent": (sizes.width, ratio), "index_keys": (sizes.index.width, ratio)}


def _qsa_rows(sizes: QsaSizes) -> Mapping[str, tuple[int, int]]:
    width = sizes.groups * sizes.width
    return {
        "attention_keys": (width, 1),
        "attention_values": (width, 1),
        "index_keys": (sizes.index.width, sizes.index.ratio),
    }


KINDS: Mapping[str, Kind] = {
    "dsa": Kind(sizes=DsaSizes.of, layer=DsaLayer, rows=_dsa_rows),
    "csa": Kind(sizes=CsaSizes.of, layer=CsaLayer, rows=_csa_rows),
    "qsa": Kind(sizes=QsaSizes.of, layer=QsaLayer, rows=_qsa_rows),
}


def layer_of(
    case: Case, system: Strategy, options: Options, *, sizes: Any = None, device: Device = "cpu", seed: int = 0
) -> SparseLayer:
    """The layer of a case on one rank; the same weights and keys for every system.

    Args:
        case: which; system: how it selects; options: how it computes.
        sizes: in place of those of the case's model.
    """
    kind = KINDS[case.layer]
    sizes = kind.sizes(values_of("models", case.model)) if sizes is None else sizes
    generator = torch.Generator(device).manual_seed(seed)
    rows = kind.rows(sizes)
    context = HeldKeys(
        case.length,
        case.ranks,
        case.rank,
        {name: width for name, (width, _) in rows.items()},
        ratios={name: ratio for name, (_, ratio) in rows.items()},
        device=device,
        generator=generator,
    )
    return layer_in(context, case.layer, sizes, system, options, device=device, generator=generator)


def layer_in(
    context: Context,
    layer: str,
    sizes: Any,
    system: Strategy,
    options: Options,
    *,
    device: Device = "cpu",
    generator: torch.Generator,
) -> SparseLayer:
    """A layer wherever the keys of other ranks come from; equal generators give equal weights."""
    found = KINDS[layer].layer(sizes, system, context, options, device=device, generator=generator)
    with torch.no_grad():
        found.index_query_weights().unflatten(0, (sizes.index.heads, -1))[:, -sizes.rope :] *= POSITION_GAIN
    return found


def hidden_states(
    tokens: int, width: int, *, places: torch.Tensor | None = None, device: Device = "cpu", seed: int = 1
) -> torch.Tensor:
    """BF16 ``[tokens, width]`` that requires a gradient: standard normal, and drifting from token to token.

    Between independent states ``DRIFT`` tokens apart, x = a cos phi + b sin phi.

    Args:
        places: int ``[n]``, of which tokens alone; the same values as among all.
    """
    generator = torch.Generator(device).manual_seed(seed)
    anchors = torch.randn(math.ceil(tokens / DRIFT) + 1, width, device=device, generator=generator)
    place = torch.arange(tokens, device=device) if places is None else places
    angle = (place % DRIFT / DRIFT * (math.pi / 2))[:, None]
    before = place // DRIFT
    found = anchors[before] * angle.cos() + anchors[before + 1] * angle.sin()
    return found.bfloat16().requires_grad_()


def shared_keys(indices: torch.Tensor, pairs: int = 256) -> float:
    """Share of selected keys that neighbouring queries have in common, over ``pairs`` of them spread evenly."""
    n, topk = indices.shape
    first = torch.linspace(0, n - 2, min(pairs, n - 1), device=indices.device).long()
    both = torch.cat([indices[first], indices[first + 1]], dim=1).sort(dim=1).values
    alike = (both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)
    return float(alike.sum() / (len(first) * topk))
