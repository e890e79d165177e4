"""Where kernels in Gluon run, and what they are launched with."""

from __future__ import annotations

from typing import Any, Literal

import torch

from hyscale_kernels.scoring.inputs import Scored

# How a kernel is written: the interpreter and other GPUs run the first, Hopper both. Bits are the same.
Impl = Literal["triton", "gluon"]
# Keys of a tile.
KEYS = 64


def use_gluon(impl: Impl | None, scored: Scored) -> bool:
    """Whether to launch the kernel in Gluon; None is for what is fastest here.

    Raises:
        ValueError: Gluon where it cannot run.
    """
    obstacle = no_gluon(scored)
    if impl == "gluon" and obstacle:
        raise ValueError(f"impl gluon cannot run: {obstacle}")
    return impl != "triton" and not obstacle


def no_gluon(scored: Scored) -> str:
    """Why kernels in Gluon cannot run, empty where they can."""
    _, heads, dim = scored.q.shape
    if not scored.q.is_cuda or torch.cuda.get_device_capability(scored.q.device) != (9, 0):
        return "it needs a Hopper GPU"
    if not 4 <= heads <= 64 or dim != 128:
        return f"it is made for 4 to 64 heads of 128, not {heads} of {dim}"
    if scored.keys.stride(0) != dim or scored.keys.data_ptr() % 16:
        return "keys must be contiguous, from a multiple of 16 bytes"
    if scored.keys.shape[0] < 32 * KEYS:
        return "there is no whole group of keys"
    return ""


def arguments(heads: int, dim: int, itemsize: int) -> dict[str, Any]:
    """What kernels in Gluon are compiled for, by the size of an element of keys."""
    # Experimental in Triton: nothing else needs it.
    from triton.experimental.gluon.language import NVMMASharedLayout

    return {
        "HEADS": heads,
        "DIM": dim,
        "STAGES": 8 // itemsize,
        "K": 32 // itemsize,
        "LAYOUT": NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8 * itemsize, rank=2),
    }


def launch(scored: Scored, apart: int) -> dict[str, Any]:
    """Arguments that kernels in Gluon share; rows of a tile of keys are ``apart`` keys from each other."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    _, heads, dim = scored.q.shape
    compiled = arguments(heads, dim, scored.dtype.itemsize)
    rows = scored.keys.shape[0] // apart
    return {
        "desc": TensorDescriptor(scored.keys, [rows, apart * dim], [apart * dim, 1], [KEYS, dim], compiled["LAYOUT"]),
        "SCALED": scored.key_scale is not None,
        "num_warps": 4,
        **compiled,
    }
