"""Checked inputs, in the one form that kernels take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton

from hyscale_kernels.sparse_attention.pairs import TOGETHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What is attended.

    Attributes:
        q: ``[n, heads, width]``, contiguous.
        keys: ``[L, groups, width]``, columns adjacent; as many heads to each group.
        values: ``[L, groups, value_width]``, columns adjacent, or None for the first columns of keys.
        indices: int32 ``[n, groups or 1, k]``, contiguous.
        sinks: FP32 ``[heads]``, or None.
        softmax_scale: what products are multiplied by.
        value_width: columns of a value.
    """

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor | None
    indices: torch.Tensor
    sinks: torch.Tensor | None
    softmax_scale: float
    value_width: int

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor | None,
        indices: torch.Tensor,
        sinks: torch.Tensor | None,
        softmax_scale: float,
        value_width: int,
    ) -> Attention:
        """Inputs that ``check`` let pass, outside of what autograd records."""
        with torch.no_grad():
            return cls(
                q=q.detach().contiguous(),
                keys=_by_group(keys),
                values=None if values is None else _by_group(values),
                indices=(indices[:, None] if indices.ndim == 2 else indices).contiguous(),
                sinks=None if sinks is None else sinks.detach().float().contiguous(),
                softmax_scale=softmax_scale,
                value_width=value_width,
            )

    @property
    def groups(self) -> int:
        """Groups of heads that share keys."""
        return self.keys.shape[1]

    @property
    def group_heads(self) -> int:
        """Heads of a group."""
        return self.q.shape[1] // self.groups

    @property
    def value_like(self) -> torch.Tensor:
        """Where kernels find values."""
        return self.keys if self.values is None else self.values

    def blocks(self, heads: int) -> int:
        """Programs of a query that have as many heads each, which share their keys."""
        return self.groups * triton.cdiv(self.group_heads, heads)

    def index_strides(self) -> dict[str, int]:
        """Arguments of kernels: distances between the indices of queries, and of groups."""
        _, lists, k = self.indices.shape
        return {"index_stride": lists * k, "index_group_stride": k if lists > 1 else 0}

    def strides(self) -> dict[str, int]:
        """Arguments of kernels: distances between rows, and between groups."""
        return {
            **self.index_strides(),
            "key_stride": self.keys.stride(0),
            "key_group_stride": self.keys.stride(1),
            "value_stride": self.value_like.stride(0),
            "value_group_stride": self.value_like.stride(1),
        }

    def constants(self) -> dict[str, Any]:
        """Arguments of kernels that are known when they are compiled."""
        width = self.q.shape[2]
        wide = widest_part(width)
        return {
            "GROUPS": self.groups,
            "GROUP_HEADS": self.group_heads,
            "WIDTH": width,
            "WIDE": wide,
            "REST": max(16, triton.next_power_of_2(width - wide)) if width > wide else 0,
            "VALUE_WIDTH": self.value_width,
            "VALUE": max(16, triton.next_power_of_2(self.value_width)),
            "SHARED": self.values is None,
            "SINKS": self.sinks is not None,
        }


def widest_part(width: int) -> int:
    """The highest power of two in a width, 16 at least: that many columns are multiplied first, then the rest."""
    return max(16, 2 ** (width.bit_length() - 1))


def check(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    indices: torch.Tensor,
    sinks: torch.Tensor | None,
    softmax_scale: float,
    value_width: int | None,
) -> None:
    """Raise ValueError, with what would be right, unless shapes and types fit each other."""
    if q.ndim != 3 or not q.shape[1] or not q.shape[2]:
        raise ValueError(f"q must be (n, heads, width), is {tuple(q.shape)}")
    n, heads, width = q.shape
    if keys.ndim not in (2, 3) or keys.shape[-1] != width:
        raise ValueError(f"keys must be (L, {width}) or (L, groups, {width}), are {tuple(keys.shape)}")
    groups = keys.shape[1] if keys.ndim == 3 else 1
    if not groups or heads % groups:
        raise ValueError(f"every group of keys must have as many of the {heads} heads, there are {groups} groups")
    if values is not None and value_width is not None:
        raise ValueError("give values or value_width, the first columns of a key that are its value, not both")
    if value_width is not None and not 1 <= value_width <= width:
        raise ValueError(f"value_width must be 1 to {width}, is {value_width}")
    if values is not None and (values.shape[:-1] != keys.shape[:-1] or not values.shape[-1]):
        shape = ", ".join(map(str, keys.shape[:-1]))
        raise ValueError(f"values must be ({shape}, value width), are {tuple(values.shape)}")
    for name, given in (("q", q), ("keys", keys), ("values", values)):
        if given is not None and given.dtype != torch.bfloat16:
            raise ValueError(f"{name} must be bfloat16, not {given.dtype}")
    rows = indices.shape[:1] == (n,) and (indices.ndim == 2 or (indices.ndim == 3 and indices.shape[1] == groups))
    if indices.dtype != torch.int32 or not rows:
        raise ValueError(
            f"indices must be int32 ({n}, k) or ({n}, {groups}, k), are {indices.dtype} {tuple(indices.shape)}"
        )
    if sinks is not None and (sinks.shape != (heads,) or not sinks.dtype.is_floating_point):
        raise ValueError(f"sinks must be floating point ({heads},), are {sinks.dtype} {tuple(sinks.shape)}")
    if not math.isfinite(softmax_scale):
        raise ValueError(f"softmax_scale must be finite, is {softmax_scale}")
    others = [each for each in (keys, values, indices, sinks) if each is not None]
    if any(each.device != q.device for each in others):
        raise ValueError(
            f"all inputs must be on {q.device}, they are on {', '.join(str(each.device) for each in others)}"
        )


def check_pairs(pairs: tuple[torch.Tensor, ...], indices: torch.Tensor) -> None:
    """Raise ValueError unless pairs can be of these indices."""
    keys, counts, slots = pairs
    n, groups, k = indices.shape[0], 1 if indices.ndim == 2 else indices.shape[1], indices.shape[-1]
    lists = (triton.cdiv(n, TOGETHER), groups)
    fit = keys.ndim == slots.ndim == 3 and keys.shape[:2] == counts.shape == lists and slots.shape[:2] == (n, groups)
    if not fit or not keys.shape[2] == slots.shape[2] >= k:
        raise ValueError(f"pairs must be those of these indices, {tuple(indices.shape)}, not {tuple(slots.shape)}")
    if any(each.device != indices.device for each in pairs):
        raise ValueError(f"pairs must be on {indices.device}")


def _by_group(rows: torch.Tensor) -> torch.Tensor:
    """``[L, width]`` or ``[L, groups, width]`` as the latter, copied only if its columns are apart."""
    rows = rows.detach()
    rows = rows[:, None] if rows.ndim == 2 else rows
    return rows if rows.stride(2) == 1 or rows.shape[2] == 1 else rows.contiguous()
