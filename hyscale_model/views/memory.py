"""Memory: by kind against the capacity, by stage, and over the moments of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.figures.hover import origin_text
from hyscale_model.moments import memory_moments
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.report.as_json import in_order
from hyscale_model.report.markup import Markup
from hyscale_model.report.memory import verdict_text
from hyscale_model.report.units import NOTHING, gib, interval, ratio, seconds
from hyscale_model.views.cards import Card, Choice, sentences, table, tip, told
from hyscale_model.views.page import Page


def build(page: Page) -> list[Card]:
    """Kinds of memory of all systems; stages and moments of one of them."""
    data, theme = page.data, page.theme
    memories = {name: system["memory"] for name, system in data["systems"].items() if system.get("memory")}
    system = page.option("system", memories)
    moments = memory_moments(page.resolved, system)
    stages = {str(index): f"stage {index}" for index in range(len(moments["stages"]))}
    peak = str(memories[system]["peak_stage"])
    stage = page.options.get("stage", peak)
    stage = stage if stage in stages else peak
    verdicts = [verdict_text(name, memory) for name, memory in memories.items()]
    return [
        Card(
            name="memory-kinds",
            title="What fills the fullest GPU at its peak",
            about="Each system on its fullest stage, at its fullest moment.",
            figure=figures.memory_by_kind(data, theme),
            content=(sentences([*verdicts, *_feasible(data)]), _kinds(data, memories)),
            csv="memory",
            wide=True,
        ),
        Card(
            name="memory-stages",
            title="Peak of each pipeline stage",
            about=f"{system}; stages hold different layers and different numbers of micro-batches.",
            choices=(Choice("system", "System", {name: name for name in memories}, system),),
            figure=figures.memory_by_stage(data, system, theme),
            wide=True,
        ),
        Card(
            name="memory-moments",
            title="Over a step",
            about=f"{system}, stage {stage}: what is there at each moment, in the order in which a layer comes to it.",
            choices=(Choice("stage", "Stage", stages, stage),),
            figure=figures.memory_over_step(moments, int(stage), theme),
            wide=True,
        ),
    ]


def _kinds(data: Mapping[str, Any], memories: Mapping[str, Mapping[str, Any]]) -> Markup:
    seen: dict[str, None] = {}
    for memory in memories.values():
        seen |= dict.fromkeys(memory["at_peak_bytes"])
    rows: list[list[Any]] = [
        [kind, *(_cell(kind, name, memory, data) for name, memory in memories.items())]
        for kind in in_order(seen, MEMORY_KINDS)
    ]
    peaks = [
        told(gib(memory["peak_bytes"]), tip(f"80 % of the draws: {interval(memory['peak_interval_bytes'], gib)}"))
        for memory in memories.values()
    ]
    rows += [["peak", *peaks], ["capacity", *(gib(memory["capacity_bytes"]) for memory in memories.values())]]
    return table("memory", ["kind", *memories], rows, folded="All kinds as a table")


def _cell(kind: str, name: str, memory: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
    value = memory["at_peak_bytes"].get(kind)
    if value is None:
        return NOTHING
    lines = tip(MEMORY_KINDS.get(kind, ""), "nominal", f"origin: {origin_text(data, f'systems.{name}')}")
    return told(gib(value), lines)


def _feasible(data: Mapping[str, Any]) -> list[str]:
    """The nearest form of a system that fits, in a sentence each."""
    texts = []
    for name, feasible in data["nearest_feasible"].items():
        system = feasible["system"]
        if system is None:
            texts.append(f"No change of settings tried makes {name} fit.")
            continue
        changes = ", ".join(f"{path} = {value}" for path, value in feasible["changes"].items())
        text = f"Nearest {name} that fits: {changes}; a step takes {seconds(system['step_time_s']['nominal'])}"
        for pair, gain in feasible["speedup"].items():
            text += f"; {pair} {ratio(gain['nominal'])} ({interval(gain, ratio)})"
        texts.append(f"{text}.")
    return texts
