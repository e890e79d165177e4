"""Memory: what fills the fullest GPU, by kind, by stage and over the moments of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import kind_colour
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.report.as_json import in_order
from hyscale_model.report.units import GIB, finite, gib, percent

BAR_HEIGHT = 34
# For the name of the capacity line.
ABOVE = 16


def memory_by_kind(data: Mapping[str, Any], theme: Theme) -> Figure:
    """Kinds of memory at the peak of each system, stacked, against the capacity."""
    memories = {name: system["memory"] for name, system in data["systems"].items() if system.get("memory")}
    names = list(memories)
    columns = [memory["at_peak_bytes"] for memory in memories.values()]
    heads = [f"{name}, stage {memory['peak_stage']}" for name, memory in memories.items()]
    origins = [hover.origin_text(data, f"systems.{name}") for name in names]
    return _stacked(names, columns, heads, origins, _capacity(memories), theme)


def memory_by_stage(data: Mapping[str, Any], system: str, theme: Theme) -> Figure:
    """Kinds of memory at the peak of each pipeline stage of one system."""
    memory = data["systems"][system]["memory"]
    stages = memory["stages"]
    heads = [f"stage {row['stage']}, {row['peak_when']}" for row in stages]
    origin = hover.origin_text(data, f"systems.{system}")
    return _stacked(
        [f"stage {row['stage']}" for row in stages],
        [row["at_peak_bytes"] for row in stages],
        heads,
        [origin] * len(stages),
        finite(memory["capacity_bytes"]),
        theme,
    )


def memory_over_step(moments: Mapping[str, Any], stage: int, theme: Theme) -> Figure:
    """Kinds of memory of one stage at each moment of a step.

    Args:
        moments: of one system, as ``memory_moments`` gives them.
        stage: the pipeline stage.
        theme: the look.
    """
    rows = moments["stages"][stage]
    names = list(moments["moments"])
    heads = [f"stage {stage}, {name}" for name in names]
    return _stacked(names, rows, heads, [moments["origin"]] * len(names), finite(moments["capacity_bytes"]), theme)


def _capacity(memories: Mapping[str, Mapping[str, Any]]) -> float:
    return max(finite(memory["capacity_bytes"]) for memory in memories.values())


def _stacked(
    names: Sequence[str],
    columns: Sequence[Mapping[str, Any]],
    heads: Sequence[str],
    origins: Sequence[str],
    capacity: float,
    theme: Theme,
) -> Figure:
    seen: dict[str, None] = {}
    for column in columns:
        seen |= dict.fromkeys(kind for kind, value in column.items() if value)
    totals = [sum(finite(value) for value in column.values()) for column in columns]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind.replace("_", " "),
            "y": list(names),
            "x": [finite(column.get(kind, 0.0)) / GIB for column in columns],
            "customdata": [
                hover.number(
                    f"{head}: {kind}",
                    column.get(kind, 0.0),
                    gib,
                    origin=origin,
                    notes=(
                        MEMORY_KINDS.get(kind, ""),
                        f"{percent(finite(column.get(kind, 0.0)) / total) if total else '-'} of {gib(total)}",
                    ),
                )
                for head, column, total, origin in zip(heads, columns, totals, origins, strict=True)
            ],
            "hovertemplate": hover.TEMPLATE,
            "marker": {"color": kind_colour(kind), "line": {"color": theme.surface, "width": 1}},
        }
        for kind in in_order(seen, MEMORY_KINDS)
    ]
    return figure(
        traces,
        theme,
        height=bars_height(len(names), each=BAR_HEIGHT) + ABOVE,
        x_title="memory of a GPU, GiB",
        legend=True,
        barmode="stack",
        **named_rows(names, ABOVE),
        xaxis={"range": [0, 1.08 * max(capacity, *totals) / GIB]},
        shapes=[
            {
                "type": "line",
                "x0": capacity / GIB,
                "x1": capacity / GIB,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.ink, "width": 2, "dash": "dash"},
            }
        ],
        annotations=[
            {
                "x": capacity / GIB,
                "yref": "paper",
                "y": 1,
                "yanchor": "bottom",
                "xanchor": "center",
                "text": f"capacity {gib(capacity)}",
                "showarrow": False,
                "font": {"size": 11, "color": theme.muted},
            }
        ],
    )
