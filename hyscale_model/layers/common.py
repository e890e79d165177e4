"""Tasks that every block is made of: projections of tokens, passes over memory."""

from __future__ import annotations

from hyscale_model.arrays import Number
from hyscale_model.families.anatomy import Projection
from hyscale_model.layers.operation import Operation, Task
from hyscale_model.layers.sizes import BF16_BYTES
from hyscale_model.layers.tiles import product_turns

FP8_CAST_BYTES = 4


def gemm(
    name: str, term: str, tokens: Number, inputs: Number, outputs: Number, fp8: Number, backward: bool = False
) -> Task:
    """A product of ``tokens`` rows; its backward is two (input and weight gradient) of the same size."""
    return _product(name, term, tokens, inputs, outputs, 1, fp8, 2 if backward else 1)


def inverse_depth(tokens: Number, inputs: Number, outputs: Number, products: int) -> Number:
    """Mean of 1 over what products sum over: inputs forward, outputs and tokens in the two products of a backward."""
    return 1 / inputs if products == 1 else (1 / outputs + 1 / tokens) / 2


def projection(
    each: Projection, term: str, tokens: Number, tp: Number, fp8: Number, *, prefix: str, products: int = 1
) -> Task:
    """A projection of ``tokens`` rows on one tensor rank; ``products``: 1 forward or one gradient, 2 both gradients."""
    inputs = each.inputs / tp if each.split == "inputs" else each.inputs
    outputs = each.outputs / tp if each.split == "outputs" else each.outputs
    groups = each.groups / tp if each.split == "groups" else each.groups
    return _product(f"{prefix}.{each.name}", term, tokens, inputs, outputs, groups, fp8, products)


def _product(
    name: str, term: str, tokens: Number, inputs: Number, outputs: Number, groups: Number, fp8: Number, products: int
) -> Task:
    weights, values = groups * inputs * outputs, groups * (inputs + outputs)
    # Forward writes outputs; of two gradients one is of inputs, the other of weights.
    written = tokens * groups * outputs if products == 1 else tokens * groups * inputs + weights
    shallow = inverse_depth(tokens, inputs, outputs, products)
    work = Operation(
        family="gemm",
        flops=products * 2 * tokens * weights,
        hbm_bytes=products * BF16_BYTES * (tokens * values + weights),
        fp8=fp8,
        inverse_depth=shallow,
        launches=products,
        units=lambda: {"values": written},
        turns=lambda sms: product_turns(tokens, groups * outputs, sms),
    )
    return Task(name=name, term=term, work=work)


def cast(name: str, term: str, values: Number, fp8: Number) -> tuple[Task, ...]:
    """BF16 values of a product's input as FP8, in both orientations that its forward and backward read.

    2 bytes read and 2 x 1 written a value (Transformer Engine's rowwise and columnwise copies; scales are small).
    """
    if not fp8:
        return ()
    work = Operation(family="elementwise", hbm_bytes=FP8_CAST_BYTES * values)
    return (Task(name=f"{name}.cast", term=term, work=work),)


def elementwise(name: str, values: Number, term: str = "other_compute", launches: int = 1) -> Task:
    """A pass that reads and writes ``values`` BF16 values in all."""
    return Task(
        name=name, term=term, work=Operation(family="elementwise", hbm_bytes=BF16_BYTES * values, launches=launches)
    )
