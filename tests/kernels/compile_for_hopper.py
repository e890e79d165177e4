"""Compiles kernels for a Hopper GPU, which needs none; prints each.

A program of its own: whether Triton compiles or interprets is decided before kernels are imported.
"""

import sys

import torch
import triton
import triton.language as tl
from hyscale_kernels.hytopk.gluon import filter_whole_kernel
from hyscale_kernels.hytopk.triton import compact_kernel, filter_kernel, threshold_kernel
from hyscale_kernels.index_loss.triton import divergence_kernel
from hyscale_kernels.replay.rescore import GATHERED
from hyscale_kernels.replay.triton import gradient_kernel, rescore_kernel
from hyscale_kernels.score_table.gluon import table_whole_kernel
from hyscale_kernels.score_table.triton import table_kernel
from hyscale_kernels.scoring.hopper import KEYS, arguments
from hyscale_kernels.scoring.tiles import NARROW, WIDE, Tile
from hyscale_kernels.sparse_attention import hopper
from hyscale_kernels.sparse_attention import tiles as attention_tiles
from hyscale_kernels.sparse_attention.gluon.backward import queries_kernel as latent_queries_kernel
from hyscale_kernels.sparse_attention.gluon.forward import forward_kernel as latent_forward_kernel
from hyscale_kernels.sparse_attention.gluon.keys import keys_kernel as latent_keys_kernel
from hyscale_kernels.sparse_attention.gradients import column_parts
from hyscale_kernels.sparse_attention.inputs import Attention
from hyscale_kernels.sparse_attention.pairs import TOGETHER
from hyscale_kernels.sparse_attention.triton.backward import (
    bounds_kernel,
    fixed_keys_kernel,
    keys_kernel,
    queries_kernel,
)
from hyscale_kernels.sparse_attention.triton.forward import forward_kernel, probabilities_kernel
from hyscale_kernels.sparse_attention.triton.pairs import merge_kernel, slots_kernel
from hyscale_kernels.top_k.triton import collect_kernel, exhaustive_kernel, pack_kernel, sample_kernel, short_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_MEMORY = 227 * 1024
# By the name of an argument; the others are whole numbers.
POINTERS = {
    "weights_ptr": "*fp32",
    "key_scale_ptr": "*fp32",
    "threshold_ptr": "*fp32",
    "samples_ptr": "*fp32",
    "scores_ptr": "*fp32",
    "table_ptr": "*fp32",
    "out_ptr": "*fp32",
    "lowest_ptr": "*fp32",
    "grads_ptr": "*fp32",
    "per_one_ptr": "*fp32",
    "dq_ptr": "*fp32",
    "dweights_ptr": "*fp32",
}
# The same of sparse attention, where results and what kernels leave to each other are BF16.
ATTENTION = {
    "values_ptr": "*bf16",
    "out_ptr": "*bf16",
    "grad_out_ptr": "*bf16",
    "weights_ptr": "*bf16",
    "shares_ptr": "*bf16",
    "slopes_ptr": "*bf16",
    "dq_ptr": "*bf16",
    "sinks_ptr": "*fp32",
    "lse_ptr": "*fp32",
    "grad_lse_ptr": "*fp32",
    "divisors_ptr": "*fp32",
    "probabilities_ptr": "*fp32",
    "dsinks_ptr": "*fp32",
    "q_most_ptr": "*fp32",
    "grad_out_most_ptr": "*fp32",
    "per_one_ptr": "*fp32",
    "scale": "fp32",
    "softmax_scale": "fp32",
}


def build(kernel, constants, tile, inputs="bf16", source=ASTSource, **types):
    """Compile and say so."""
    constants = {name: constants[name] for name in constants if name in kernel.arg_names}
    given = {"q_ptr": f"*{inputs}", "keys_ptr": f"*{inputs}", **POINTERS, **types}
    signature = {}
    for name in kernel.arg_names:
        integer = "*i32" if name.endswith("_ptr") else "i32"
        signature[name] = "constexpr" if name in constants else given.get(name, integer)
    # As at run time for whole rows; without it loads are neither wide nor ahead, and take less memory.
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(signature.values())
        if kind not in ("constexpr", "fp32")
        and not kind.startswith("tensordesc")
        and not kernel.params[place].do_not_specialize_on_alignment
    }
    source = GluonASTSource if kernel.is_gluon() else ASTSource
    built = triton.compile(
        source(kernel, signature, constants, aligned),
        target=HOPPER,
        options={"num_warps": tile.warps, "num_stages": tile.stages},
    )
    if built.metadata.shared > SHARED_MEMORY:
        raise SystemExit(f"{kernel.__name__} needs {built.metadata.shared} bytes of shared memory: {constants}")
    print(kernel.__name__, inputs, constants, built.metadata.shared, flush=True)


def build_attention(heads, groups, width, value_width, separate=False, sinks=False):
    """Forward with and without probabilities, and backward by both kinds of additions, one query and two."""
    q, keys = torch.empty(1, heads, width), torch.empty(1, groups, width)
    values = torch.empty(1, groups, value_width) if separate else None
    indices = torch.empty(1, 1, 1, dtype=torch.int32)
    given = Attention.of(q, keys, values, indices, torch.empty(heads) if sinks else None, 1.0, value_width)
    constants = {**given.constants(), "FACTOR": tl.bfloat16, "TILES": attention_tiles.ADDED_TILES}
    if not sinks:
        constants |= {"sinks_ptr": None, "dsinks_ptr": None}
    if not separate:
        constants["value_most_ptr"] = None
    for kernel, tile in (
        (forward_kernel, attention_tiles.FORWARD),
        (probabilities_kernel, attention_tiles.FORWARD),
        (queries_kernel, attention_tiles.QUERIES),
        (bounds_kernel, attention_tiles.QUERIES),
    ):
        tile = tile.at(given.group_heads)
        for weights in (False, True) if kernel is forward_kernel else (True,):
            left = {} if weights else {"weights_ptr": None, "divisors_ptr": None}
            build(
                kernel,
                {**constants, **left, "HEADS": tile.heads, "KEYS": tile.keys, "WEIGHTS": weights},
                tile,
                **ATTENTION,
            )
    for queries, tile in ((1, attention_tiles.KEYS), (TOGETHER, attention_tiles.PAIRS)):
        tile = tile.at(given.group_heads)
        alone = {"counts_ptr": None, "slots_ptr": None} if queries == 1 else {}
        for fixed in (False, True):
            sums = {} if fixed else {"per_one_ptr": None}
            for of_values, sum_width in ((False, width), (True, value_width)):
                if of_values and not separate:
                    continue
                for first, columns, parts in column_parts(sum_width, tile.columns):
                    chosen = {
                        **constants,
                        **sums,
                        **alone,
                        "HEADS": tile.heads,
                        "KEYS": tile.keys,
                        "SUM_WIDTH": sum_width,
                        "FIRST": first,
                        "COLUMNS": columns,
                        "PARTS": parts,
                        "SLOPES": not of_values,
                        "SHARES": of_values or (not separate and first < value_width),
                        "FIXED": fixed,
                        "QUERIES": queries,
                        "TOGETHER": TOGETHER,
                    }
                    kernel = fixed_keys_kernel if fixed else keys_kernel
                    build(
                        kernel,
                        chosen,
                        tile,
                        **{**ATTENTION, "keys_ptr": "*i32", "sums_ptr": "*i32" if fixed else "*fp32"},
                    )


def build_latent_attention():
    """Kernels in Gluon."""
    constants = {
        "BLOCKS": 1,
        "HEADS": hopper.HEADS,
        "WIDE": hopper.WIDE,
        "REST": hopper.REST,
        "STAGES": hopper.STAGES,
        "LAYOUT": hopper.rows(64),
        "NARROW": hopper.rows(hopper.QUERIES_KEYS),
    }
    tile = Tile(columns=1, keys=hopper.FORWARD_KEYS, warps=4, stages=hopper.STAGES)
    for weights in (False, True):
        left = {} if weights else {"weights_ptr": None, "divisors_ptr": None}
        build(
            latent_forward_kernel,
            {**constants, **left, "KEYS": hopper.FORWARD_KEYS, "WEIGHTS": weights},
            tile,
            source=GluonASTSource,
            **ATTENTION,
        )
    build(latent_queries_kernel, {**constants, "KEYS": hopper.QUERIES_KEYS}, tile, source=GluonASTSource, **ATTENTION)
    constants |= {"WIDTH": hopper.WIDE + hopper.REST, "VALUE_WIDTH": hopper.WIDE, "QUERIES": TOGETHER}
    constants |= {"KEYS": hopper.TOGETHER_KEYS, "STAGES": hopper.TOGETHER_STAGES}
    # The last takes the most shared memory.
    for fixed, rest in ((False, 16), (True, 16), (False, 0), (True, 32)):
        sums = {} if fixed else {"per_one_ptr": None}
        layouts = {"LAYOUT": hopper.rows(128), "REST_LAYOUT": hopper.rows(rest or 128)}
        build(
            latent_keys_kernel,
            {**constants, **sums, **layouts, "WIDTH": 512 + 4 * rest, "COLUMNS": 128, "REST": rest, "PARTS": 4},
            tile,
            source=GluonASTSource,
            **{**ATTENTION, "keys_ptr": "*i32", "sums_ptr": "*i32" if fixed else "*fp32"},
        )


def main():
    """All kernels, or with ``--few`` one of each."""
    build_attention(64, 1, 576, 512)
    build_latent_attention()
    if "--few" not in sys.argv:
        build_attention(128, 1, 576, 512)
        build_attention(64, 1, 512, 512, sinks=True)
        build_attention(24, 2, 256, 256, separate=True)
    few = (("bf16", 32, 128, False),)
    more = (
        *few,
        ("bf16", 2, 32, False),
        ("bf16", 4, 128, False),
        ("bf16", 128, 128, False),
        ("bf16", 64, 256, False),
        ("bf16", 32, 512, False),
        ("fp8e4nv", 64, 512, False),
        ("fp8e4nv", 32, 128, True),
    )
    for inputs, heads, dim, scaled in few if "--few" in sys.argv else more:
        itemsize = 1 if inputs == "fp8e4nv" else 2
        constants = {"HEADS": heads, "DIM": dim, "SCALED": scaled, "IMPRECISE": None, "TABLE": True, "COUNTED": True}
        constants["BORDERS"] = False
        constants |= {"COLUMNS": max(16, heads), "FIXED": scaled, "FACTOR": tl.bfloat16}
        if not scaled:
            constants |= {"key_scale_ptr": None, "per_one_ptr": None}
        for kernel, tile in (
            (table_kernel, WIDE),
            (table_kernel, NARROW),
            (filter_kernel, NARROW),
            (rescore_kernel, GATHERED),
            (gradient_kernel, Tile(columns=1, keys=32, warps=8, stages=2)),
        ):
            if kernel is not gradient_kernel:
                tile = tile.at(heads, dim, itemsize)
            constants |= {"QUERIES": tile.queries(heads), "KEYS": tile.keys, "LANES": tile.keys}
            build(kernel, constants, tile, inputs, dkeys_ptr="*i64" if scaled else "*fp32")
        if 4 <= heads <= 64 and dim == 128:
            tile = NARROW.at(heads, dim, itemsize)
            sizes = {"QUERIES": tile.queries(heads), "KEYS": KEYS, "LANES": KEYS}
            constants |= {**sizes, **arguments(heads, dim, itemsize)}
            desc = f"tensordesc<{inputs}[{KEYS}, {dim}],{constants['LAYOUT']!r}>"
            for kernel in (filter_whole_kernel, table_whole_kernel):
                build(kernel, constants, tile, inputs, desc=desc)
    for kernel, constants in (
        (threshold_kernel, {"SAMPLES": 8192}),
        (compact_kernel, {"BLOCK": 256}),
        (short_kernel, {"NARROW": 8192, "WIDE": 16384}),
        (sample_kernel, {"SAMPLES": 4096}),
        (pack_kernel, {"WORDS": 128, "TIMES": 8}),
        (collect_kernel, {"BLOCK": 256}),
        (exhaustive_kernel, {"BLOCK": 4096}),
        (merge_kernel, {"LISTS": 1, "SLOTS": 2048, "STEPS": 12, "counts_ptr": None}),
        (merge_kernel, {"LISTS": 1, "SLOTS": 4096, "STEPS": 13}),
        (slots_kernel, {"LISTS": 1, "SLOTS": 2048}),
    ):
        build(kernel, constants, WIDE)
    build(divergence_kernel, {"BLOCK": 2048}, WIDE, teacher_ptr="*fp32", losses_ptr="*fp32", scale="fp32")


if __name__ == "__main__":
    main()
