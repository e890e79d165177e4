"""The answer at a glance: step time and peak memory of each system, with intervals and what was pinned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES, VERDICTS, term_family
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.report.memory import VERDICTS as VERDICT_WORDS
from hyscale_model.report.times import scale_of
from hyscale_model.report.units import GIB, finite, gib, seconds


def step_times(data: Mapping[str, Any], theme: Theme, pinned: Mapping[str, Any] | None = None) -> Figure:
    """Step time of each system by what it is spent on, with p10 to p90; pinned ones as lines."""
    systems = data["systems"]
    before = pinned["systems"] if pinned else {}
    names = list(dict.fromkeys([*systems, *before]))
    longest = max(finite(s["step_time_s"]["nominal"]) for s in (*systems.values(), *before.values()))
    factor, unit, _ = scale_of(longest)
    hovers = [_step_hover(name, data) for name in systems]
    traces: list[dict[str, Any]] = [
        _part(label, colour, values, factor, hovers, theme)
        for family, (colour, label) in FAMILIES.items()
        if any((values := _family(systems, family, factor)).values())
    ]
    traces.append(_whiskers({name: systems[name]["step_time_s"] for name in systems}, factor, theme))
    if before:
        values = {name: finite(before[name]["step_time_s"]["nominal"]) * factor for name in before}
        traces.append(_outline(values, [_step_hover(name, pinned or {}, "pinned, ") for name in before], theme))
    return figure(
        traces,
        theme,
        height=bars_height(len(names)),
        x_title=f"step time, {unit}",
        legend=True,
        barmode="stack",
        **named_rows(names),
    )


def peak_memory(data: Mapping[str, Any], theme: Theme, pinned: Mapping[str, Any] | None = None) -> Figure:
    """Peak of the fullest GPU of each system, its interval and the capacity."""
    memories = {name: system["memory"] for name, system in data["systems"].items() if system.get("memory")}
    before = {name: s["memory"] for name, s in (pinned["systems"] if pinned else {}).items() if s.get("memory")}
    names = list(dict.fromkeys([*memories, *before]))
    capacities = {name: finite(memory["capacity_bytes"]) / GIB for name, memory in memories.items()}
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": "peak",
            "y": list(memories),
            "x": [finite(memory["peak_bytes"]) / GIB for memory in memories.values()],
            "customdata": [_memory_hover(name, memory, data) for name, memory in memories.items()],
            "hovertemplate": hover.TEMPLATE,
            "showlegend": False,
            "marker": {
                "color": [VERDICTS.get(memory["verdict"], theme.muted) for memory in memories.values()],
                "line": {"color": theme.surface, "width": 1},
            },
            "text": [VERDICT_WORDS.get(memory["verdict"], "") for memory in memories.values()],
            "textposition": "inside",
            "insidetextanchor": "start",
            "textfont": {"color": "#FFFFFF", "size": 12},
        },
        _whiskers({name: memory.get("peak_interval_bytes") for name, memory in memories.items()}, 1 / GIB, theme),
        {
            "type": "scatter",
            "mode": "markers",
            "name": "capacity of a GPU",
            "y": list(capacities),
            "x": list(capacities.values()),
            "hovertemplate": "capacity: %{x:.1f} GiB" + hover.ONLY,
            "marker": {"symbol": "line-ns", "size": 30, "line": {"width": 3, "color": theme.ink}},
        },
    ]
    if before:
        values = {name: finite(memory["peak_bytes"]) / GIB for name, memory in before.items()}
        hovers = [_memory_hover(name, memory, pinned or {}, "pinned, ") for name, memory in before.items()]
        traces.append(_outline(values, hovers, theme))
    return figure(
        traces,
        theme,
        height=bars_height(len(names)),
        x_title="peak memory, GiB",
        legend=True,
        barmode="overlay",
        **named_rows(names),
        xaxis={"rangemode": "tozero"},
    )


def _family(systems: Mapping[str, Any], family: str, factor: float) -> dict[str, float]:
    """What the terms of a family take in each system."""
    return {
        name: factor * sum(finite(value) for term, value in system["time_s"].items() if term_family(term) == family)
        for name, system in systems.items()
    }


def _part(
    name: str, colour: str, values: Mapping[str, float], factor: float, hovers: Sequence[str], theme: Theme
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(values),
        "x": list(values.values()),
        "customdata": [
            f"{text}<br>{name}: {seconds(value / factor)}" for text, value in zip(hovers, values.values(), strict=True)
        ],
        "hovertemplate": hover.TEMPLATE,
        "marker": {"color": colour, "line": {"color": theme.surface, "width": 1}},
    }


def _whiskers(spreads: Mapping[str, Mapping[str, Any] | None], factor: float, theme: Theme) -> dict[str, Any]:
    """p10 to p90 as a line with its median as a dot."""
    known = {name: spread for name, spread in spreads.items() if spread}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "80 % of the draws, median",
        "y": list(known),
        "x": [spread["p50"] * factor for spread in known.values()],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [(spread["p90"] - spread["p50"]) * factor for spread in known.values()],
            "arrayminus": [(spread["p50"] - spread["p10"]) * factor for spread in known.values()],
            "color": theme.ink,
            "thickness": 1.5,
            "width": 5,
        },
        "hoverinfo": "skip",
        "marker": {"color": theme.surface, "size": 8, "line": {"color": theme.ink, "width": 1.5}},
    }


def _outline(values: Mapping[str, float], hovers: Sequence[str], theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "pinned",
        "y": list(values),
        "x": list(values.values()),
        "customdata": list(hovers),
        "hovertemplate": hover.TEMPLATE,
        "marker": {"symbol": "line-ns", "size": 26, "line": {"width": 3, "color": theme.emphasis}},
    }


def _step_hover(name: str, data: Mapping[str, Any], prefix: str = "") -> str:
    system = data["systems"][name]
    spread = system["step_time_s"]
    origin = hover.origin_text(data, f"systems.{name}")
    return hover.number(f"{prefix}{name}: step time", spread["nominal"], seconds, spread=spread, origin=origin)


def _memory_hover(name: str, memory: Mapping[str, Any], data: Mapping[str, Any], prefix: str = "") -> str:
    where = f"stage {memory['peak_stage']}, {memory['peak_when']}"
    return hover.number(
        f"{prefix}{name}: peak memory",
        memory["peak_bytes"],
        gib,
        spread=memory.get("peak_interval_bytes"),
        origin=hover.origin_text(data, f"systems.{name}"),
        notes=(where, f"of {gib(memory['capacity_bytes'])}"),
    )
