"""In which order pipeline ranks run the passes of their micro-batches.

A pass is (kind, chunk, micro-batch): ``F`` forward, ``B`` backward (of the inputs alone where weight gradients are put
off), ``W`` weight gradients that were put off, ``I`` a backward of the inputs alone beside whole ones. A pair (``P``,
chunk, micro-batch, other) is the forward of a micro-batch of one chunk beside the backward of another of the other.

    1f1b, interleaved   Megatron-LM's (Narayanan et al., arXiv 2104.04473)
    zero_bubble         ZB-H1 (Qi et al., arXiv 2401.10241)
    dualpipe            micro-batches enter at both ends, and every rank holds a stage of each direction (DeepSeek-V3
                        report, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe)
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["1f1b", "zero_bubble", "dualpipe"]
Item = tuple[str, int, int] | tuple[str, int, int, int]


def orders_of(kind: Kind, pp: int, vpp: int, micro_batches: int) -> list[list[Item]]:
    """Passes of every rank in order."""
    if kind == "dualpipe":
        return [dual_order(rank, pp, micro_batches) for rank in range(pp)]
    if kind == "zero_bubble":
        return [list(order) for order in zero_bubble_orders(pp, micro_batches)]
    return [list(rank_order(rank, pp, vpp, micro_batches)) for rank in range(pp)]


def rank_order(rank: int, pp: int, vpp: int, micro_batches: int) -> list[tuple[str, int, int]]:
    """Passes of a rank in order: ("F" or "B", chunk, micro-batch)."""
    forward = _chunk_order(pp, vpp, micro_batches)
    warm_up = pp - rank - 1 if vpp == 1 else 2 * (pp - rank - 1) + (vpp - 1) * min(pp, micro_batches)
    warm_up = min(warm_up, len(forward))
    ahead = [("F", chunk, micro_batch) for chunk, micro_batch in forward]
    back = [("B", vpp - 1 - chunk, micro_batch) for chunk, micro_batch in forward]
    steady = [each for pair in zip(ahead[warm_up:], back, strict=False) for each in pair]
    return [*ahead[:warm_up], *steady, *back[len(forward) - warm_up :]]


def _chunk_order(pp: int, vpp: int, micro_batches: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) of a rank's passes: groups of pp micro-batches, the last perhaps smaller, go through
    chunk after chunk."""
    if vpp == 1:
        return [(0, micro_batch) for micro_batch in range(micro_batches)]
    return [
        (chunk, micro_batch)
        for first in range(0, micro_batches, pp)
        for chunk in range(vpp)
        for micro_batch in range(first, min(first + pp, micro_batches))
    ]


def zero_bubble_orders(pp: int, micro_batches: int) -> list[list[tuple[str, int, int]]]:
    """Passes of every rank in order: ("F", "B" or "W", 0, micro-batch), as ZB-H1 has them.

    Found by letting all passes take one unit of time: a rank takes a backward if one is ready, else a forward while
    fewer than pp - rank micro-batches are in flight, else a weight gradient that was put off.
    """
    orders: list[list[tuple[str, int, int]]] = [[] for _ in range(pp)]
    done = {kind: [0] * pp for kind in "FBW"}
    while done["W"][0] < micro_batches:
        # What was done before this unit of time is what a pass can build on.
        ahead, back = list(done["F"]), list(done["B"])
        for rank in range(pp):
            forwards, backwards, weights = (done[kind][rank] for kind in "FBW")
            sent = micro_batches if rank == 0 else ahead[rank - 1]
            returned = ahead[rank] if rank == pp - 1 else back[rank + 1]
            if backwards < min(forwards, returned):
                kind = "B"
            elif forwards < min(sent, micro_batches) and forwards - backwards < pp - rank:
                kind = "F"
            elif weights < backwards:
                kind = "W"
            else:
                continue
            orders[rank].append((kind, 0, done[kind][rank]))
            done[kind][rank] += 1
    # Ranks behind the first may still owe weight gradients.
    for rank in range(pp):
        orders[rank] += [("W", 0, each) for each in range(done["W"][rank], micro_batches)]
    return orders


def dual_order(rank: int, pp: int, micro_batches: int) -> list[Item]:
    """Passes of a rank under DualPipe; chunk 0 runs with the ranks, chunk 1 against them, half of the batch each.

    With ``near`` ranks to the nearer end: forwards of the near direction until the far one arrives, both in turn until
    backwards arrive, pairs of a forward and a backward as long as there are forwards, then backwards, of which the last
    half puts its weight gradients off to where the rank would wait.
    """
    half, near = pp // 2, min(rank, pp - 1 - rank)
    # The direction that enters at the nearer end, and the other one.
    one, other = (0, 1) if rank < half else (1, 0)
    before = half - near - 1
    begun = {(kind, chunk): 0 for kind in "FBW" for chunk in (0, 1)}
    owed: list[tuple[int, int]] = []
    order: list[Item] = []

    def number(kind: str, chunk: int) -> int:
        begun[kind, chunk] += 1
        return begun[kind, chunk] - 1

    def run(kind: str, chunk: int) -> None:
        order.append((kind, chunk, number("F" if kind == "F" else "B", chunk)))
        if kind == "I":
            owed.append((chunk, order[-1][2]))

    def pair(ahead: int) -> None:
        order.append(("P", ahead, number("F", ahead), number("B", 1 - ahead)))

    def pay() -> None:
        chunk, micro_batch = owed.pop(0)
        order.append(("W", chunk, micro_batch))

    for _ in range(2 * before):
        run("F", one)
    for _ in range(near + 1):
        run("F", one)
        run("F", other)
    for _ in range(before):
        run("I", other)
        pay()
        run("F", other)
    for turn in range(micro_batches // 2 - pp + near + 1):
        if turn == 0 and before == 0:
            # In the middle, the two would wait for each other's ranks.
            run("F", one)
            run("B", other)
        else:
            pair(one)
        pair(other)
    for _ in range(before):
        run("B", other)
        pair(other)
    for place, chunk in enumerate([other, one] * (near + 1)):
        run("B" if place <= near else "I", chunk)
    for _ in range(before):
        pay()
        run("I", one)
    for _ in range(near + 1):
        pay()
    return order


def pair_counts(rank: int, pp: int, micro_batches: int) -> tuple[int, int]:
    """Pairs of a rank in a step: with the forward of its stage nearer to the beginning of the model, and of the other.

    The nearer stage is the one of the direction that enters at the nearer end.
    """
    half, near = pp // 2, min(rank, pp - 1 - rank)
    turns = micro_batches // 2 - pp + near + 1
    return turns - (near == half - 1), turns + half - near - 1


def most_in_flight(order: list[Item]) -> int:
    """Passes whose activations a rank holds at its fullest: forwards begun, backwards not."""
    most = flying = 0
    for item in order:
        # The forward of a pair is begun before its backward has ended.
        most = max(most, flying + (item[0] in "FP"))
        flying += {"F": 1, "B": -1, "I": -1}.get(item[0], 0)
    return most
