"""Memory: by kind against the capacity, by stage, and over the moments of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html
from dash.development.base_component import Component

from hyscale_model import figures
from hyscale_model.dashboard.components import card, choice, table, tip, told
from hyscale_model.dashboard.views.page import Page
from hyscale_model.figures.hover import origin_text
from hyscale_model.moments import memory_moments
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.report.as_json import in_order
from hyscale_model.report.memory import verdict_text
from hyscale_model.report.units import NOTHING, gib, interval, ratio, seconds


def build(page: Page) -> list[Component]:
    """Kinds of memory of all systems; stages and moments of one of them."""
    data, theme = page.data, page.theme
    memories = {name: system["memory"] for name, system in data["systems"].items() if system.get("memory")}
    system = page.option("system", memories)
    moments = memory_moments(page.answer.resolved, system)
    stages = {str(index): f"stage {index}" for index in range(len(moments["stages"]))}
    peak = str(memories[system]["peak_stage"])
    stage = page.options.get("stage", peak)
    stage = stage if stage in stages else peak
    return [
        card(
            "memory-kinds",
            "What fills the fullest GPU at its peak",
            "Each system on its fullest stage, at its fullest moment.",
            html.Ul([html.Li(verdict_text(name, memory)) for name, memory in memories.items()], className="sentences"),
            *_feasible(data),
            _kinds(data, memories),
            figure=figures.memory_by_kind(data, theme),
            csv="memory",
            wide=True,
        ),
        html.Div(
            [
                choice("system", "Stages and moments of", {name: name for name in memories}, system),
                choice("stage", "Moments on", stages, stage),
            ],
            className="choices",
        ),
        card(
            "memory-stages",
            f"{system}: peak of each pipeline stage",
            "Stages hold different layers and different numbers of micro-batches.",
            figure=figures.memory_by_stage(data, system, theme),
            wide=True,
        ),
        card(
            "memory-moments",
            f"{system}: over a step, stage {stage}",
            "What is there at each moment of a step, in the order in which a layer comes to them.",
            figure=figures.memory_over_step(moments, int(stage), theme),
            wide=True,
        ),
    ]


def _kinds(data: Mapping[str, Any], memories: Mapping[str, Mapping[str, Any]]) -> Component:
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


def _feasible(data: Mapping[str, Any]) -> list[Component]:
    """The nearest form of a system that fits, in a sentence each."""
    sentences = []
    for name, feasible in data["nearest_feasible"].items():
        system = feasible["system"]
        if system is None:
            sentences.append(f"No change of settings tried makes {name} fit.")
            continue
        changes = ", ".join(f"{path} = {value}" for path, value in feasible["changes"].items())
        text = f"Nearest {name} that fits: {changes}; a step takes {seconds(system['step_time_s']['nominal'])}"
        for pair, gain in feasible["speedup"].items():
            text += f"; {pair} {ratio(gain['nominal'])} ({interval(gain, ratio)})"
        sentences.append(f"{text}.")
    return [html.Ul([html.Li(text) for text in sentences], className="sentences")] if sentences else []
