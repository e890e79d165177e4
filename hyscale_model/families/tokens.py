"""What one token meets at a position: FLOP, keys scored, keys attended."""

from __future__ import annotations

from dataclasses import dataclass

from hyscale_model.families.anatomy import Anatomy, Core, count_parameters, layer_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlops:
    """Forward FLOP of one token by part; linear recurrences count with attention."""

    weights: float
    scores: float
    attention: float

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return self.weights + self.scores + self.attention


def attended(core: Core, position: float) -> float:
    """Keys that a query at a 1-based position attends to."""
    entries = position // core.ratio
    if core.form == "linear":
        return 0.0
    if core.form == "sparse":
        entries = min(core.topk, entries)
    return entries * core.entry_tokens + min(core.window, position)


def recurrence_flops(core: Core) -> float:
    """FLOP of one token in a chunked gated delta rule: state read, state update and the products inside a chunk."""
    return 6 * core.heads * core.key_width * core.value_width if core.form == "linear" else 0.0


def token_flops(anatomy: Anatomy, position: float, active_parameters: float | None = None) -> TokenFlops:
    """2 per active weight, 2 H D per scored key, 2 heads (key + value) per attended key, over all layers.

    ``active_parameters`` replaces the counted ones (without the input embedding, which is looked up).
    """
    count = count_parameters(anatomy)
    weights = count.multiplied if active_parameters is None else active_parameters
    scores = attention = 0.0
    for (kind, _), layers in layer_counts(anatomy):
        layer = anatomy.attention(kind)
        if layer.index:
            scores += 2 * layers * layer.index.heads * layer.index.head_dim * (position // layer.index.ratio)
        core = layer.core.flops_per_key * attended(layer.core, position) + recurrence_flops(layer.core)
        attention += layers * core
    return TokenFlops(weights=2 * weights, scores=scores, attention=attention)


def keys_at(anatomy: Anatomy, position: float) -> dict[str, float]:
    """Keys scored and keys attended by one token over all layers."""
    layers = [(anatomy.attention(kind), number) for (kind, _), number in layer_counts(anatomy)]
    return {
        "scored": sum(number * (position // each.index.ratio) for each, number in layers if each.index),
        "attended": sum(number * attended(each.core, position) for each, number in layers),
    }
