"""Compiles kernels for a Hopper GPU, which needs none; prints each.

A program of its own: whether Triton compiles or interprets is decided before kernels are imported.
"""

import sys

import triton
import triton.language as tl
from hyscale_kernels.hytopk.triton import compact_kernel, filter_kernel, threshold_kernel
from hyscale_kernels.replay.triton import gradient_kernel, rescore_kernel
from hyscale_kernels.score_table.triton import table_kernel
from hyscale_kernels.top_k.triton import collect_kernel, exhaustive_kernel, short_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

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


def build(kernel, constants, warps, inputs="bf16", **types):
    """Compile and say so."""
    constants = {name: constants[name] for name in constants if name in kernel.arg_names}
    given = {"q_ptr": f"*{inputs}", "keys_ptr": f"*{inputs}", **POINTERS, **types}
    signature = {}
    for name in kernel.arg_names:
        integer = "*i32" if name.endswith("_ptr") else "i32"
        signature[name] = "constexpr" if name in constants else given.get(name, integer)
    aligned = {(place,): [["tt.divisibility", 16]] for place, kind in enumerate(signature.values()) if kind[0] == "*"}
    built = triton.compile(
        ASTSource(kernel, signature, constants, aligned), target=HOPPER, options={"num_warps": warps, "num_stages": 3}
    )
    if built.metadata.shared > SHARED_MEMORY:
        raise SystemExit(f"{kernel.__name__} needs {built.metadata.shared} bytes of shared memory: {constants}")
    print(kernel.__name__, inputs, constants, built.metadata.shared, flush=True)


def main():
    """All kernels, or with ``--few`` one of each."""
    few = [("bf16", 32, False)]
    more = [*few, *(("bf16", heads, False) for heads in (2, 4, 8, 16, 64, 128)), ("fp8e4nv", 32, True)]
    for inputs, heads, scaled in few if "--few" in sys.argv else more:
        constants = {"HEADS": heads, "DIM": 128, "KEYS": 64, "LANES": 64, "SCALED": scaled, "IMPRECISE": None}
        constants |= {"QUERIES": min(64, max(4, 256 // heads)), "TABLE": True, "COUNTED": True}
        constants |= {"COLUMNS": max(16, heads), "FIXED": scaled, "FACTOR": tl.bfloat16}
        if not scaled:
            constants |= {"key_scale_ptr": None, "per_one_ptr": None}
        warps = 8 if heads > 64 else 4
        for kernel in (table_kernel, filter_kernel, rescore_kernel, gradient_kernel):
            build(kernel, constants, warps, inputs, dkeys_ptr="*i64" if scaled else "*fp32")
    build(threshold_kernel, {"SAMPLES": 8192}, 8)
    build(compact_kernel, {"BLOCK": 256}, 1)
    build(short_kernel, {"NARROW": 8192, "WIDE": 16384}, 8)
    build(collect_kernel, {"SAMPLES": 4096, "BLOCK": 2048}, 4)
    build(exhaustive_kernel, {"BLOCK": 4096}, 8)


if __name__ == "__main__":
    main()
