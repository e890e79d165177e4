"""Selection: a table of scores against HyTopK, by length, bytes and roofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model import figures
from hyscale_model.derivation import derive
from hyscale_model.lengths import Lengths, over_lengths
from hyscale_model.report.canvas import noun
from hyscale_model.report.markup import Markup
from hyscale_model.report.units import NOTHING, count, gib, or_nothing, seconds, significant
from hyscale_model.views.cards import Card, sentences, table, told
from hyscale_model.views.page import Page


def build(page: Page) -> list[Card]:
    """Selection time and speed-up over the sequence length, traffic and roofline of one layer's selection."""
    data, theme = page.data, page.theme
    if not any(system["time_s"].get("selection_forward") for system in data["systems"].values()):
        return [
            Card(name="nothing", title="Selection", about="This model attends to every key: there is no selection.")
        ]
    found = over_lengths(page.resolved)
    parts = {name: derive(page.resolved, name, "selection_forward")["parts"] for name in data["systems"]}
    about = "Layout and all else as in the scenario; ribbons span 80 % of the draws, the dashed line is its own length."
    cards = [
        Card(
            name="selection-lengths",
            title="Selection by sequence length",
            about=f"Forward and recomputation in a {noun(data)}. {about}",
            figure=figures.selection_over_lengths(found, data, theme),
        )
    ]
    if found.speedup:
        cards.append(
            Card(
                name="gain-lengths",
                title=f"Speed-up of a {noun(data)} by sequence length",
                about=f"Over {next(iter(data['systems']))}. {about}",
                figure=figures.gain_over_lengths(found, data, theme),
                content=(sentences([_crossover(found, name) for name in found.speedup]),),
            )
        )
    cards += [
        Card(
            name="selection-bytes",
            title="Memory traffic of one selection",
            about="Fewest bytes through the memory of a GPU, one layer and micro-batch, forward.",
            figure=figures.selection_bytes(parts, theme),
        ),
        Card(
            name="roofline",
            title="Selection under the roofs",
            about="Operations with matrix products: what they reach, beside the peaks of the GPU.",
            figure=figures.roofline(parts, data["scenario"]["cluster"]["gpu"], theme),
        ),
        Card(
            name="selection-parts",
            title="The operations of one selection",
            about="One layer and micro-batch, forward, nominal.",
            content=(sentences(_held(data)), _table(parts)),
            csv="selection-parts",
            wide=True,
        ),
    ]
    return cards


def _crossover(found: Lengths, name: str) -> str:
    length = found.pays_from(name)
    if length is None:
        return f"{name} brings 1 % or more in nine draws of ten at none of the lengths up to the longest."
    if length == found.lengths[0]:
        return f"{name} brings 1 % or more in nine draws of ten at every length shown, from {count(length)} tokens on."
    return f"{name} brings 1 % or more in nine draws of ten from {count(length)} tokens on."


def _held(data: Mapping[str, Any]) -> list[str]:
    """Memory that a selection needs while it runs, in a sentence for each system."""
    kinds = (("score_table", "score table"), ("candidates", "candidates"))
    texts = []
    for name, system in data["systems"].items():
        memory = system["memory"]["per_layer_bytes"]
        held = [f"{gib(memory[kind])} of {word}" for kind, word in kinds if memory.get(kind)]
        texts.append(f"{name} holds {' and '.join(held) or 'nothing more'} while a layer selects.")
    return texts


def _table(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Markup:
    rows = []
    for name, each in parts.items():
        for part in each:
            flops, moved = part["flops"], part["bytes"]
            rows.append(
                [
                    name,
                    told(part["name"].removeprefix("selection."), part["kind"]),
                    significant(flops / 1e12, 3) if flops else NOTHING,
                    significant(moved / 1e9, 3) if moved else NOTHING,
                    told(seconds(part["seconds"]), f"nominal\norigin: {part['origin']}, {part['detail']}"),
                    or_nothing(part["floor_s"], seconds),
                    significant(flops / part["seconds"] / 1e12, 3) if flops else NOTHING,
                    significant(moved / part["seconds"] / 1e9, 3) if moved else NOTHING,
                ]
            )
    head = ["system", "operation", "TFLOP", "GB", "time", "at the peaks", "TFLOP/s", "GB/s"]
    return table("selection-parts", head, rows, left=2)
