"""Units of deterministic sums: for each key one, as small as 31 bits allow."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from hyscale_kernels.sparse_attention.inputs import Attention
from hyscale_kernels.sparse_attention.triton.backward import bounds_kernel

# Of a sum of 2^30 units and half a unit for each addition, int32 holds 2^30 additions.
BITS = 30
# FP32 holds the number of units in 1, and its inverse, as normal numbers.
MOST_BITS = 126


class Bounds(NamedTuple):
    """What bounds the sums of each key, added up and compared as whole numbers, in no order.

    Attributes:
        q_most: FP32 ``[n, heads]``, largest magnitude of a row of q; grad_out_most: likewise.
        times: int32 ``[L, groups]``, additions.
        most: int32 ``[L, groups]``, bits of the largest bound of one of them; value_most: likewise, None where a key is
            its own value.
    """

    q_most: torch.Tensor
    grad_out_most: torch.Tensor
    times: torch.Tensor
    most: torch.Tensor
    value_most: torch.Tensor | None

    @classmethod
    def of(cls, given: Attention, grad_out: torch.Tensor) -> Bounds:
        """Of no additions."""
        none = torch.zeros(given.keys.shape[:2], dtype=torch.int32, device=given.q.device)
        return cls(
            given.q.abs().amax(-1).float(),
            grad_out.abs().amax(-1).float(),
            none,
            none.clone(),
            None if given.values is None else none.clone(),
        )

    def add(
        self,
        left: tuple[int, torch.Tensor, torch.Tensor],
        given: Attention,
    ) -> None:
        """Take account of what tasks left, from the first on."""
        first, shares, slopes = left
        tasks, padded, heads = shares.shape
        keys = 64
        bounds_kernel[(tasks, triton.cdiv(given.indices.shape[2], keys))](
            self.q_most,
            self.grad_out_most,
            shares_ptr=shares,
            slopes_ptr=slopes,
            most_ptr=self.most,
            value_most_ptr=self.value_most,
            times_ptr=self.times,
            first_task=first,
            padded=padded,
            indices_ptr=given.indices,
            k=given.indices.shape[2],
            **given.index_strides(),
            GROUPS=given.groups,
            GROUP_HEADS=given.group_heads,
            HEADS=heads,
            KEYS=keys,
        )

    def units(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Units in 1 of the sums of keys, and of values: FP32 ``[L, groups]``, powers of two, NaN without a bound."""
        return self._per_one(self.most), None if self.value_most is None else self._per_one(self.value_most)

    def _per_one(self, most: torch.Tensor) -> torch.Tensor:
        bound = most.view(torch.float32).double() * self.times
        _, exponent = torch.frexp(bound)
        bits = (BITS - exponent).clamp(-MOST_BITS, MOST_BITS)
        return torch.exp2(bits.double()).where(bound.isfinite(), torch.nan).float()
