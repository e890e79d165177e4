"""When what runs: the passes of a step over the pipeline, and the streams of one stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES, hatch, term_colour, term_family
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.report.times import scale_of
from hyscale_model.report.units import seconds
from hyscale_model.timeline import COMPUTE, Interval, Timeline

_KINDS: Mapping[str, str] = {
    "F": "forward",
    "P": "forward beside another backward",
    "B": "recomputation and backward",
    "I": "backward without weight gradients",
    "W": "weight gradients put off",
}
_RANK_HEIGHT = 30
_STREAM_HEIGHT = 46


def pipeline(found: Timeline, system: str, origin: str, theme: Theme) -> Figure:
    """Passes of each pipeline stage over time; gaps are the bubble."""
    names = [f"stage {rank}" for rank in sorted({each.rank for each in found.passes})]
    factor, unit, _ = scale_of(found.step_s)
    traces: list[dict[str, Any]] = []
    colours = {
        "F": theme.emphasis,
        "P": FAMILIES["attention"][0],
        "B": theme.muted,
        "I": FAMILIES["other"][0],
        "W": FAMILIES["feed_forward"][0],
    }
    for kind, colour in colours.items():
        mine = [each for each in found.passes if each.kind == kind]
        if not mine:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _KINDS[kind],
                "y": [names[each.rank] for each in mine],
                "base": [each.start_s * factor for each in mine],
                "x": [(each.end_s - each.start_s) * factor for each in mine],
                "customdata": [
                    hover.number(
                        f"{system}, stage {each.rank}: {_KINDS[kind]} of micro-batch {each.micro_batch}",
                        each.end_s - each.start_s,
                        seconds,
                        origin=origin,
                        notes=(f"model chunk {each.chunk}", f"from {seconds(each.start_s)} to {seconds(each.end_s)}"),
                    )
                    for each in mine
                ],
                "hovertemplate": hover.TEMPLATE,
                "marker": {"color": colour, "line": {"color": theme.surface, "width": 1}},
            }
        )
    if found.shown == found.micro_batches and found.ending_s > 0:
        last = max(each.end_s for each in found.passes)
        text = hover.number(f"{system}: gradient exchange and optimizer", found.ending_s, seconds, origin=origin)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": "gradient exchange and optimizer",
                "y": names,
                "base": [last * factor] * len(names),
                "x": [found.ending_s * factor] * len(names),
                "customdata": [text] * len(names),
                "hovertemplate": hover.TEMPLATE,
                "marker": {"color": FAMILIES["state"][0]},
            }
        )
    return figure(
        traces,
        theme,
        height=bars_height(len(names), each=_RANK_HEIGHT),
        x_title=f"time since the step began, {unit}",
        legend=True,
        barmode="overlay",
        bargap=0.15,
        dragmode="zoom",
        xaxis={"range": [0, 1.01 * max(each.end_s for each in found.passes) * factor]},
        **named_rows(names),
    )


def streams(found: Timeline, stage: int, system: str, origins: Mapping[str, str], theme: Theme) -> Figure:
    """Each kind of block of a virtual stage once, forward and then back, by stream.

    Args:
        found: the timeline.
        stage: virtual stage.
        system: whose timeline it is.
        origins: of each term.
        theme: the look.
    """
    rows = _laid_out(found, stage)
    names = list(dict.fromkeys([COMPUTE, *(row.stream for row, _ in rows)]))
    longest = max((row.end_s + offset for row, offset in rows), default=0.0)
    factor, unit, _ = scale_of(longest)
    runs = found.stages[stage]
    traces: list[dict[str, Any]] = []
    seen: set[str] = set()
    for term in dict.fromkeys(row.term for row, _ in rows):
        mine = [(row, offset) for row, offset in rows if row.term == term]
        family = term_family(term)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": FAMILIES[family][1],
                "showlegend": family not in seen,
                "y": [_label(row.stream) for row, _ in mine],
                "base": [(row.start_s + offset) * factor for row, offset in mine],
                "x": [(row.end_s - row.start_s) * factor for row, _ in mine],
                "customdata": [
                    hover.number(
                        f"{system}: {row.name}",
                        row.end_s - row.start_s,
                        seconds,
                        origin=origins.get(term) or "network of the cluster",
                        notes=(f"{row.block}, {row.phase}; {runs[row.block]} times a pass", term),
                    )
                    for row, _ in mine
                ],
                "hovertemplate": hover.TEMPLATE,
                "marker": {
                    "color": term_colour(term),
                    "pattern": {"shape": hatch(term), "size": 6, "solidity": 0.2, "fgcolor": theme.surface},
                    "line": {"color": theme.surface, "width": 0.5},
                },
            }
        )
        seen.add(family)
    return figure(
        traces,
        theme,
        height=bars_height(len(names), each=_STREAM_HEIGHT),
        x_title=f"time since the first block began, {unit}",
        legend=True,
        barmode="overlay",
        dragmode="zoom",
        xaxis={"range": [0, 1.01 * longest * factor]},
        **named_rows([_label(name) for name in names]),
    )


def _label(stream: str) -> str:
    return stream if stream == COMPUTE else f"{stream.upper()} transfers"


def _laid_out(found: Timeline, stage: int) -> list[tuple[Interval, float]]:
    """Tasks with the beginning of their block's phase: all blocks forward, then each back in reverse order."""
    blocks = [found.blocks[name] for name in found.stages[stage]]
    order: list[tuple[tuple[Interval, ...], tuple[str, ...]]] = [(block, ("forward",)) for block in blocks]
    order += [(block, ("recompute", "backward")) for block in reversed(blocks)]
    laid: list[tuple[Interval, float]] = []
    now = 0.0
    for block, phases in order:
        for phase in phases:
            mine = [row for row in block if row.phase == phase]
            laid += [(row, now) for row in mine]
            now += max((row.end_s for row in mine), default=0.0)
    return laid
