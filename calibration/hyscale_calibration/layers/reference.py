"""Layers in float64, obvious and slow: what a layer and its gradients should be for given selections."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from hyscale_calibration.layers.context import HeldKeys
from hyscale_calibration.layers.csa import CsaLayer
from hyscale_calibration.layers.dsa import DsaLayer
from hyscale_calibration.layers.layer import SparseLayer
from hyscale_calibration.layers.parts import NORM_EPSILON, ROPE_BASE
from hyscale_calibration.layers.qsa import QsaLayer

Weights = Mapping[str, torch.Tensor]
# Query by query: keys [k, heads, width], values [k, heads, value width] and whether a key counts, bool [k].
Attended = Callable[[int], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def exact_weights(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by name in float64, with gradients of their own."""
    return {name: value.detach().double().requires_grad_() for name, value in layer.named_parameters()}


def reference(
    layer: SparseLayer, weights: Weights, x: torch.Tensor, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states ``[n, hidden]`` and the index loss of a layer, for ``x`` in float64 and given selections."""
    if isinstance(layer, DsaLayer):
        return _dsa(layer, weights, x, indices)
    if isinstance(layer, CsaLayer):
        return _csa(layer, weights, x, indices)
    assert isinstance(layer, QsaLayer)
    return _qsa(layer, weights, x, indices)


def _rms(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + NORM_EPSILON) ** -0.5 * scale


def _turn(x: torch.Tensor, positions: torch.Tensor, width: int, sign: int = 1) -> torch.Tensor:
    """The last ``width`` columns of ``[n, ..., columns]`` as complex numbers, turned by their positions."""
    half = width // 2
    speeds = ROPE_BASE ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    turns = torch.polar(torch.ones_like(speeds).expand(len(x), -1), sign * positions[:, None].double() * speeds)
    turns = turns.view(len(x), *[1] * (x.ndim - 2), half)
    end = torch.complex(x[..., -width:-half], x[..., -half:]) * turns
    return torch.cat([x[..., :-width], end.real, end.imag], dim=-1)


def _whole(layer: SparseLayer, weights: Weights, name: str, own: torch.Tensor, ratio: int = 1) -> torch.Tensor:
    """Rows of the sequence: own ones at their positions, the others' in order between them."""
    context = layer.context
    if not isinstance(context, HeldKeys):
        return own
    found = own.new_zeros(context.length // ratio, own.shape[1])
    mine = context.positions[::ratio] // ratio
    free = torch.ones(len(found), dtype=torch.bool, device=own.device)
    free[mine] = False
    found = found.index_put((mine,), own)
    return found.index_put((free.nonzero()[:, 0],), weights[f"context.others.{name}"])


def _attend(
    q: torch.Tensor, of_query: Attended, scale: float, sinks: torch.Tensor | None = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Outputs ``[n, heads, value]``, and of each query the probabilities of its keys summed over heads."""
    outs, sums = [], []
    for t in range(len(q)):
        keys, values, some = of_query(t)
        logits = scale * torch.einsum("hd,khd->hk", q[t], keys)
        logits = logits.masked_fill(~some, -torch.inf)
        extra = logits if sinks is None else torch.cat([logits, sinks[:, None]], dim=1)
        shares = extra.softmax(1)[:, : logits.shape[1]]
        outs.append(torch.einsum("hk,khv->hv", shares, values))
        sums.append(shares.sum(0).detach())
    return torch.stack(outs), sums


def _loss(
    layer: SparseLayer,
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor | None,
    indices: torch.Tensor,
    teacher: list[torch.Tensor],
) -> torch.Tensor:
    losses = []
    for t, row in enumerate(indices):
        some = row >= 0
        products = torch.relu(q[t] @ keys[row[some].long()].T)
        scores = products.sum(0) if head_weights is None else head_weights[t] @ products
        student = (layer.index_scale * scores).log_softmax(0)
        shares = teacher[t][: len(row)][some]
        shares = shares / shares.sum()
        losses.append((shares * (shares.log() - student)).sum())
    return torch.stack(losses).mean()


def _dsa(
    layer: DsaLayer, weights: Weights, x: torch.Tensor, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Not absorbed: every head has keys and values of its own, made of the latent."""
    sizes, positions = layer.sizes, layer.context.positions
    hidden = _rms(x, weights["input_norm"])
    low = _rms(hidden @ weights["q_down"].T, weights["q_norm"])
    q = _turn((low @ weights["q_up"].T).unflatten(1, (sizes.heads, -1)), positions, sizes.rope)
    down = hidden @ weights["kv_down"].T
    latent = _rms(down[:, : sizes.kv_rank], weights["kv_norm"])
    latent = torch.cat([latent, _turn(down[:, sizes.kv_rank :], positions, sizes.rope)], dim=1)
    latent = _whole(layer, weights, "latent", latent)

    def of_query(t: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = latent[indices[t].clamp(min=0).long()]
        low_rank, rope = rows[:, : sizes.kv_rank], rows[:, None, sizes.kv_rank :].expand(-1, sizes.heads, -1)
        keys = torch.cat([torch.einsum("kr,hrd->khd", low_rank, weights["q_absorb"]), rope], dim=-1)
        return keys, torch.einsum("kr,hvr->khv", low_rank, weights["v_absorb"]), indices[t] >= 0

    out, sums = _attend(q, of_query, layer.softmax_scale)
    index_q, index_keys, head_weights = _weighted_index(layer, weights, low, hidden)
    loss = _loss(layer, index_q, _whole(layer, weights, "index_keys", index_keys), head_weights, indices, sums)
    return x + out.flatten(1) @ weights["output"].T, loss


def _weighted_index(
    layer: DsaLayer | CsaLayer, weights: Weights, low: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    index, rope, positions = layer.index, layer.sizes.rope, layer.context.positions
    low, hidden = low.detach(), hidden.detach()
    q = _turn((low @ weights["indexer.query"].T).unflatten(1, (index.heads, -1)), positions, rope)
    head_weights = hidden @ weights["indexer.weights"].T * (index.heads * index.width) ** -0.5
    raw = hidden @ weights["indexer.key"].T
    scale = weights["indexer.key_norm"]
    if isinstance(layer, CsaLayer):
        keys = _rms(_pooled(layer, raw, weights["index_gate_bias"]), scale)
        return q, _turn(keys, positions[:: index.ratio], rope), head_weights
    centred = raw - raw.mean(-1, keepdim=True)
    return q, _turn(_rms(centred, scale) + weights["indexer.key_bias"], positions, rope), head_weights


def _pooled(layer: CsaLayer, raw: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Entry by entry, of tokens ``[n, 4, width]``: keys of its own block, of the one before, and both gates."""
    ratio, width, positions = layer.index.ratio, bias.shape[1], layer.context.positions
    tokens, found = raw.unflatten(1, (4, width)), []
    for first in range(0, len(tokens), ratio):
        own = tokens[first : first + ratio]
        keys, gates = own[:, 0], own[:, 2] + bias[:ratio]
        if first and positions[first - ratio] == positions[first] - ratio:
            before = tokens[first - ratio : first]
            keys, gates = torch.cat([keys, before[:, 1]]), torch.cat([gates, before[:, 3] + bias[ratio:]])
        found.append((gates.softmax(0) * keys).sum(0))
    return torch.stack(found)


def _csa(
    layer: CsaLayer, weights: Weights, x: torch.Tensor, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    sizes, positions, ratio = layer.sizes, layer.context.positions, layer.index.ratio
    hidden = _rms(x, weights["input_norm"])
    low = _rms(hidden @ weights["q_down"].T, weights["q_norm"])
    q = _turn((low @ weights["q_up"].T).unflatten(1, (sizes.heads, -1)), positions, sizes.rope)
    raw = _turn(_rms(hidden @ weights["kv"].T, weights["kv_norm"]), positions, sizes.rope)
    pooled = _pooled(layer, hidden @ weights["compressor"].T, weights["gate_bias"])
    entries = _turn(_rms(pooled, weights["kv_norm"]), positions[::ratio], sizes.rope)
    entries = _whole(layer, weights, "latent", entries, ratio)

    def of_query(t: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        near = (positions <= positions[t]) & (positions > positions[t] - sizes.window)
        # Of another chunk what is near in position is not near in rows.
        near &= (torch.arange(len(positions), device=x.device) - t) == positions - positions[t]
        rows = torch.cat([entries[indices[t].clamp(min=0).long()], raw[near]])
        some = torch.cat([indices[t] >= 0, near[near]])
        keys = rows[:, None].expand(-1, sizes.heads, -1)
        return keys, keys, some

    out, sums = _attend(q, of_query, layer.softmax_scale, weights["sinks"])
    index_q, index_keys, head_weights = _weighted_index(layer, weights, low, hidden)
    index_keys = _whole(layer, weights, "index_keys", index_keys, ratio)
    loss = _loss(layer, index_q, index_keys, head_weights, indices, sums)
    groups = _turn(out, positions, sizes.rope, -1).flatten(1).unflatten(1, (sizes.groups, -1))
    back = torch.einsum("ngi,goi->ngo", groups, weights["output_groups"]).flatten(1)
    return x + back @ weights["output"].T, loss


def _qsa(
    layer: QsaLayer, weights: Weights, x: torch.Tensor, indices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    sizes, positions, ratio = layer.sizes, layer.context.positions, layer.index.ratio
    hidden = _rms(x, weights["input_norm"])
    q, gate = (hidden @ weights["q"].T).unflatten(1, (sizes.heads, 2, -1)).unbind(2)
    q = _turn(_rms(q, weights["q_norm"]), positions, sizes.rope)
    keys, values = (hidden @ weights["kv"].T).unflatten(1, (2, sizes.groups, -1)).unbind(1)
    keys = _turn(_rms(keys, weights["k_norm"]), positions, sizes.rope)
    keys, values = (
        _whole(layer, weights, f"attention_{name}", each.flatten(1)).unflatten(1, (sizes.groups, -1))
        for name, each in (("keys", keys), ("values", values))
    )
    of_group = torch.arange(sizes.heads, device=x.device) // (sizes.heads // sizes.groups)

    def of_query(t: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        blocks = indices[t].repeat_interleave(ratio)
        tokens = blocks * ratio + torch.arange(ratio, device=x.device).repeat(len(indices[t]))
        end = int(positions[t]) + 1
        own = torch.arange(end // ratio * ratio, end, device=x.device)
        rows = torch.cat([tokens.clamp(min=0), own]).long()
        some = torch.cat([blocks >= 0, torch.ones(len(own), dtype=torch.bool, device=x.device)])
        return keys[rows][:, of_group], values[rows][:, of_group], some

    out, sums = _attend(q, of_query, layer.softmax_scale)
    detached = hidden.detach()
    index_q = (detached @ weights["index_query"].T).unflatten(1, (layer.index.heads, -1))
    index_q = _turn(_rms(index_q, weights["index_q_norm"]), positions, sizes.rope)
    index_keys = _turn(_rms(detached @ weights["index_key"].T, weights["index_k_norm"]), positions, sizes.rope)
    blocks = _whole(layer, weights, "index_keys", index_keys.unflatten(0, (-1, ratio)).mean(1), ratio)
    taught = [each[: layer.index.topk * ratio].view(-1, ratio).sum(1) for each in sums]
    loss = _loss(layer, index_q, blocks, None, indices, taught)
    return x + (out * torch.sigmoid(gate)).flatten(1) @ weights["output"].T, loss
