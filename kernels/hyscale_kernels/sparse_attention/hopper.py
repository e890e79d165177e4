"""Where kernels in Gluon run, and what they are launched with."""

from __future__ import annotations

from typing import Any, Literal

import torch

from hyscale_kernels.sparse_attention.inputs import Attention

# How a kernel is written: the interpreter and other GPUs run the first, Hopper both.
Impl = Literal["triton", "gluon"]
HEADS, WIDE, REST = 64, 512, 64
# Keys of a tile; two tiles, what a program keeps of its query and 1 KiB of barriers are all of the shared memory.
FORWARD_KEYS, QUERIES_KEYS = 64, 32
STAGES = 2
# Of queries together: keys of a tile, columns of a program, and pieces of a tile, one a query, that are there at once.
TOGETHER_KEYS, TOGETHER_COLUMNS, TOGETHER_STAGES = 64, 128, 5


def use_gluon(impl: str | None, given: Attention) -> bool:
    """Whether to launch kernels in Gluon; None is for what is fastest here.

    Raises:
        ValueError: Gluon where it cannot run, or another name.
    """
    if impl not in (None, "triton", "gluon"):
        raise ValueError(f"impl must be triton, gluon or None, is {impl!r}")
    obstacle = no_gluon(given)
    if impl == "gluon" and obstacle:
        raise ValueError(f"impl gluon cannot run: {obstacle}")
    return impl != "triton" and not obstacle


def no_gluon(given: Attention) -> str:
    """Why kernels in Gluon cannot run, empty where they can."""
    if obstacle := _no_gluon_at_all(given):
        return obstacle
    if (given.q.shape[2], given.value_width) != (WIDE + REST, WIDE):
        return f"it is made for keys of {WIDE + REST} columns whose first {WIDE} are their value"
    if given.sinks is not None:
        return "it has no sinks"
    if given.keys.stride(0) % 16 or given.keys.data_ptr() % 16:
        return "keys must begin, and be apart, by multiples of 16"
    return ""


def _no_gluon_at_all(given: Attention) -> str:
    if not given.q.is_cuda or torch.cuda.get_device_capability(given.q.device) != (9, 0):
        return "it needs a Hopper GPU"
    if given.values is not None:
        return "it is made for keys whose first columns are their value"
    if given.groups != 1 or given.q.shape[1] % HEADS:
        return f"it is made for a multiple of {HEADS} heads with the same keys"
    return ""


def use_gluon_together(impl: str | None, given: Attention) -> bool:
    """Whether the keys of queries together are of the kernel in Gluon. It reads no keys, and knows no sinks."""
    parts, rest = together_parts(given)
    whole = parts * TOGETHER_COLUMNS == given.value_width and rest in (0, 16, 32)
    return impl != "triton" and whole and not _no_gluon_at_all(given)


def together_parts(given: Attention) -> tuple[int, int]:
    """Programs that share out the columns of values, and how many of the columns behind them each has too."""
    parts = max(1, given.value_width // TOGETHER_COLUMNS)
    rest, left = divmod(given.q.shape[2] - given.value_width, parts)
    return parts, rest if not left else -1


def launch(given: Attention, keys: int) -> dict[str, Any]:
    """Arguments of kernels in Gluon that read keys."""
    return {
        "index_stride": given.index_strides()["index_stride"],
        "key_stride": given.keys.stride(0),
        "BLOCKS": given.blocks(HEADS),
        "HEADS": HEADS,
        "WIDE": WIDE,
        "REST": REST,
        "KEYS": keys,
        "STAGES": STAGES,
        "LAYOUT": rows(64),
        "num_warps": 4,
    }


def rows(columns: int) -> Any:
    """Layout in shared memory of rows of BF16, whose parts of 128 bytes or less are apart."""
    # Experimental in Triton: nothing else needs it.
    from triton.experimental.gluon.language import NVMMASharedLayout

    return NVMMASharedLayout(swizzle_byte_width=min(128, 2 * columns), element_bitwidth=16, rank=2)
