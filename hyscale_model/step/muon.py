"""Muon: momentum of matrices made orthogonal by Newton-Schulz iterations, once a step (arXiv 2502.16982).

An iteration on X of g x o values, g the shorter side, multiplies X X^T, its square, and X by both:

    4 g^2 o + 2 g^3 FLOP,   BF16 values moved: 3 g o + 4 g^2

``muon_num_ns_steps`` times. Of a matrix that tensor ranks share (Megatron-LM --muon-tp-mode)

    blockwise     each rank iterates on its own part
    duplicated    parts are gathered, every rank iterates on the whole
    distributed   each rank keeps its part, with g the side that is whole, and sums g x g products over ranks each time

Where ZeRO spreads the state, a rank iterates on the matrices that its share holds, at least on a whole one, gathered in
BF16 over the ranks that hold it ("Distributed Muon" of the paper, whose upper bound of the bytes is taken here).
Embedding, output head and lookup tables stay with Adam.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.families import Anatomy, anatomy
from hyscale_model.families.anatomy import Projection
from hyscale_model.layers.model_blocks import block_names
from hyscale_model.layers.operation import Operation, Transfer
from hyscale_model.layers.sizes import BF16_BYTES
from hyscale_model.scenario.schema import Scenario

PRODUCTS = 3


@dataclass(frozen=True, slots=True)
class Matrices:
    """Alike matrices of a block: ``count`` of ``rows`` x ``columns``, ``shared_by`` tensor ranks along ``rows`` (0),
    ``columns`` (1) or not at all (None); ``experts``: over expert-parallel ranks."""

    rows: Number
    columns: Number
    count: Number = 1
    split: int | None = None
    experts: bool = False


@dataclass(frozen=True, slots=True)
class Iterations:
    """Newton-Schulz work of parameters that lie alike.

    Attributes:
        flops: of all matrices; ``largest``: of the largest one; ``edges``: FLOP over the length that is summed over.
        moved: bytes that cross HBM; ``matrices``: how many there are; ``values``: in all of them.
        gathered: bytes that tensor ranks gather; ``summed``: bytes that they sum up.
    """

    flops: Number = 0.0
    largest: Number = 0.0
    edges: Number = 0.0
    moved: Number = 0.0
    matrices: Number = 0.0
    values: Number = 0.0
    gathered: Number = 0.0
    summed: Number = 0.0

    def plus(self, other: Iterations, times: Number) -> Iterations:
        """With ``times`` as much of another."""
        sums = {
            name: getattr(self, name) + times * getattr(other, name)
            for name in self.__dataclass_fields__
            if name != "largest"
        }
        present = np.asarray(times) > 0
        return replace(self, **sums, largest=np.maximum(self.largest, np.where(present, other.largest, 0.0)))


def iterations(case: Scenario, each: Matrices) -> Iterations:
    """The work on the matrices that one rank holds of ``each``."""
    tp, mode = case.layout.tp, case.training.muon_tp_mode
    ranks = tp if each.split is not None else 1
    whole = (each.rows, each.columns)
    part = tuple(size / ranks if side == each.split else size for side, size in enumerate(whole))
    sides = whole if mode == "duplicated" else part
    short, long = np.minimum(*sides), np.maximum(*sides)
    if mode == "distributed" and each.split is not None and tp > 1:
        short, long = whole[1 - each.split], part[each.split]
    steps = case.training.muon_num_ns_steps
    flops = steps * (4 * short**2 * long + 2 * short**3)
    spread = each.split is not None and tp > 1
    return Iterations(
        flops=each.count * flops,
        largest=flops,
        edges=each.count * flops / short,
        moved=each.count * steps * BF16_BYTES * (3 * short * long + 4 * short**2),
        matrices=each.count,
        values=each.count * part[0] * part[1],
        gathered=each.count * BF16_BYTES * whole[0] * whole[1] if spread and mode == "duplicated" else 0.0,
        summed=each.count * steps * BF16_BYTES * short**2 if spread and mode == "distributed" else 0.0,
    )


def work_of_blocks(case: Scenario) -> dict[bool, dict[str, Iterations]]:
    """Work of one block on one rank by its name, of experts (True) and of all else (False)."""
    body = anatomy(case.model)
    found: dict[bool, dict[str, Iterations]] = {False: {}, True: {}}
    for name, each in _matrices(case, body):
        known = found[each.experts].get(name, Iterations())
        found[each.experts][name] = known.plus(iterations(case, each), 1.0)
    return found


def _matrices(case: Scenario, body: Anatomy) -> Iterator[tuple[str, Matrices]]:
    layout, hidden = case.layout, body.hidden
    for attention in body.attentions:
        name = f"{attention.kind}.input"
        for each in attention.projections:
            yield name, _of_projection(each, layout.tp)
        for each in attention.index.projections if attention.index else ():
            yield name, Matrices(each.inputs, each.outputs, each.groups)
    for ffn in body.feed_forwards:
        up = ffn.matrices - 1
        width = ffn.intermediate if ffn.kind == "dense_ffn" else ffn.shared_intermediate
        if width:
            yield ffn.kind, Matrices(hidden, width, up, split=1)
            yield ffn.kind, Matrices(width, hidden, split=0)
        if ffn.experts:
            held, narrow = ffn.experts / layout.ep, ffn.intermediate / layout.etp
            yield ffn.kind, Matrices(hidden, narrow, held * ffn.matrices, experts=True)
            yield ffn.kind, Matrices(hidden, ffn.experts)
    if body.predicted:
        yield "mtp", Matrices(2 * hidden, hidden, split=1)


def _of_projection(each: Projection, tp: Number) -> Matrices:
    if each.split == "groups":
        return Matrices(each.inputs, each.outputs, each.groups / tp)
    split = {"outputs": 1, "inputs": 0}.get(each.split)
    return Matrices(each.inputs, each.outputs, each.groups, split=split)


def rank_work(case: Scenario, counts: np.ndarray) -> dict[bool, Iterations]:
    """Work of the matrices that a rank holds: ``counts`` blocks in the order of ``block_names``."""
    names = block_names(anatomy(case.model))
    found = {}
    for experts, blocks in work_of_blocks(case).items():
        total = Iterations()
        for name, each in blocks.items():
            total = total.plus(each, counts[names.index(name)])
        found[experts] = total
    return found


def muon_operation(work: Iterations, replicas: Number) -> Operation:
    """The products of one rank, which ``replicas`` ranks share; no less than those of its largest matrix."""
    share = np.maximum(work.flops / replicas, work.largest) / np.maximum(work.flops, 1e-9)
    return Operation(
        family="gemm",
        flops=work.flops * share,
        hbm_bytes=work.moved * share,
        inverse_depth=work.edges / np.maximum(work.flops, 1e-9),
        launches=PRODUCTS * work.matrices * share,
        units=lambda: {"values": work.moved * share / BF16_BYTES},
    )


def muon_transfers(case: Scenario, work: Iterations, experts: bool) -> tuple[Transfer, ...]:
    """What ranks send each other for whole matrices: over tensor ranks, and over those that ZeRO spreads state over."""
    found = [
        Transfer(kind="all_gather", group="tp", payload_bytes=work.gathered),
        Transfer(kind="all_reduce", group="tp", payload_bytes=work.summed),
    ]
    if case.layout.zero:
        payload = BF16_BYTES * work.values
        found.append(Transfer(kind="all_gather", group="edp" if experts else "dp", payload_bytes=payload))
    return tuple(each for each in found if not isinstance(each.payload_bytes, float) or each.payload_bytes)
