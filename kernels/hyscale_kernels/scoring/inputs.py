"""Inputs of every scoring kernel: checked, filled up and ready to launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
import triton

from hyscale_kernels.spans import beyond_message, bounded_spans

FP8 = torch.float8_e4m3fn
# Four queries of a tile are in shared memory at once, beside the tiles of keys.
QUERY_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Inputs of a scoring kernel: heads and widths filled up to powers of two, query scales in the head weights."""

    q: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor
    key_scale: torch.Tensor | None
    spans: torch.Tensor
    dtype: torch.dtype

    @classmethod
    def of(
        cls,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        spans: torch.Tensor,
        q_scale: torch.Tensor | None = None,
        key_scale: torch.Tensor | None = None,
    ) -> Scored:
        """Check inputs and prepare them.

        Raises:
            ValueError: as ``prepared``, or a value on the device that is wrong.
        """
        scored, wrong = cls.prepared(q, keys, weights, spans, q_scale, key_scale)
        scored.check(wrong.tolist())
        return scored

    @classmethod
    def prepared(
        cls,
        q: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None,
        spans: torch.Tensor,
        q_scale: torch.Tensor | None = None,
        key_scale: torch.Tensor | None = None,
    ) -> tuple[Scored, torch.Tensor]:
        """Prepare inputs without waiting for the device, which first may be given work to do.

        Kernels read no memory but that of the inputs, whatever is wrong. That is told by ``check``, of a bool tensor
        that comes with the inputs.

        Args:
            q: BF16 or FP8 E4M3 ``[n, heads, dim]``; keys: the same type, ``[L, dim]``.
            weights: ``[n, heads]`` of any sign, or None for ones.
            spans: int ``[n, 2]``, first visible key and the key behind the last (see ``spans.causal_spans``).
            q_scale: positive ``[n, heads]``; key_scale: positive ``[L]``; scales of quantised inputs.

        Raises:
            ValueError: a shape or type that does not fit the others, with what would.
        """
        if q.ndim != 3 or keys.ndim != 2 or q.shape[-1] != keys.shape[-1]:
            raise ValueError(
                f"q must be [n, heads, dim] and keys [L, dim], they are {tuple(q.shape)} and {tuple(keys.shape)}"
            )
        if q.dtype != keys.dtype or q.dtype not in (torch.bfloat16, FP8):
            raise ValueError(f"q and keys must both be bfloat16 or float8_e4m3fn, they are {q.dtype} and {keys.dtype}")
        n, heads, dim = q.shape
        if heads < 1 or heads > 128:
            raise ValueError(f"1 to 128 heads are supported, q has {heads}")
        expected = {
            "weights": (weights, (n, heads)),
            "q_scale": (q_scale, (n, heads)),
            "key_scale": (key_scale, keys.shape[:1]),
        }
        for name, (value, shape) in expected.items():
            if value is not None and tuple(value.shape) != tuple(shape):
                raise ValueError(f"{name} must be {tuple(shape)}, is {tuple(value.shape)}")
        length = keys.shape[0]
        if length >= 2**31:
            raise ValueError(f"indices are int32, there are {length} keys")
        spans, beyond = bounded_spans(spans, n, length)
        scales = [torch.zeros_like(beyond) if scale is None else (scale <= 0).any() for scale in (q_scale, key_scale)]
        wrong = torch.stack([beyond, *scales])
        # No gradient comes from here: operations that have one save what they need themselves.
        q, keys = q.detach(), keys.detach()
        folded = torch.ones(n, heads, device=q.device) if weights is None else weights.detach().float()
        if q_scale is not None:
            # relu(c x) = c relu(x) for a positive scale.
            folded = folded * q_scale.detach().float()
        # Columns of a tile are ordered by pairs of heads.
        more_heads = max(triton.next_power_of_2(heads), 2) - heads
        more_dims = max(triton.next_power_of_2(dim), 32) - dim
        largest = QUERY_BYTES // q.element_size()
        if (heads + more_heads) * (dim + more_dims) > largest:
            raise ValueError(f"heads * dim must be at most {largest}, each rounded up to a power of two")
        if more_heads:
            # Some heads twice at half their weight: zeros would make NaN of an infinite key.
            folded = torch.cat([folded[:, :more_heads] / 2, folded[:, more_heads:], folded[:, :more_heads] / 2], dim=1)
            q = torch.cat([q, q[:, :more_heads]], dim=1)
        if more_dims:
            q = torch.cat([q, q.new_zeros(n, q.shape[1], more_dims)], dim=2)
            keys = torch.cat([keys, keys.new_zeros(length, more_dims)], dim=1)
        dtype = q.dtype
        if triton.knobs.runtime.interpret and q.dtype == torch.bfloat16:
            # The interpreter multiplies the bits of BF16 as integers; in FP32 the products are the same.
            q, keys = q.float(), keys.float()
        if keys.stride(1) != 1:
            keys = keys.contiguous()
        prepared = cls(
            q=q.contiguous(),
            keys=keys,
            weights=folded.contiguous(),
            key_scale=None if key_scale is None else key_scale.detach().float().contiguous(),
            spans=spans,
            dtype=dtype,
        )
        return prepared, wrong

    def check(self, wrong: Iterable[bool]) -> None:
        """Raise ValueError of the first that is wrong, of what came with ``prepared`` inputs."""
        positive = (f"{name} must be positive" for name in ("q_scale", "key_scale"))
        for fault, message in zip(wrong, (beyond_message(self.keys.shape[0]), *positive), strict=True):
            if fault:
                raise ValueError(message)

    def of_queries(self, rows: slice | torch.Tensor) -> Scored:
        """The same keys for some of the queries."""
        return replace(self, q=self.q[rows], weights=self.weights[rows], spans=self.spans[rows])

    def of_keys(self, places: torch.Tensor) -> Scored:
        """The same queries for some of the keys, in ascending order: int64 ``[M]``."""
        return replace(
            self,
            keys=self.keys[places],
            key_scale=None if self.key_scale is None else self.key_scale[places],
            spans=torch.searchsorted(places, self.spans.long()).to(torch.int32),
        )
