"""From the baseline to the last system, one change at a time, as a waterfall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyscale_model.figures import hover
from hyscale_model.figures.style import Figure, Theme, bars_height, figure, named_rows
from hyscale_model.report.times import scale_of
from hyscale_model.report.units import finite, ratio, seconds

_SAVED, _LOST = "#009E73", "#D55E00"


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar: from ``start`` on by ``length`` seconds, which may be negative."""

    name: str
    length: float
    start: float
    colour: str
    text: str
    hover: str


def ablation(data: Mapping[str, Any], theme: Theme) -> Figure:
    """Step time of the baseline, what each change takes away or adds, and the step time of the last system.

    Baseline plus all changes is the last system's time: every bar begins where the one above it ends.
    """
    steps = data["ablation"]
    systems = data["systems"]
    base = _baseline(data)
    start = finite(systems[base]["step_time_s"]["nominal"])
    factor, unit, _ = scale_of(start)
    last = list(systems)[-1]
    rows = [_Bar(base, start, 0.0, theme.muted, seconds(start), _whole(base, data))]
    before = start
    for step in steps:
        after = finite(step["step_time_s"]["nominal"])
        change = after - before
        text = f"{'+' if change > 0 else '−'}{seconds(abs(change))}"
        colour = _SAVED if change <= 0 else _LOST
        rows.append(_Bar(_breakable(str(step["change"])), change, before, colour, text, _change(step, change, data)))
        before = after
    rows.append(_Bar(last, before, 0.0, theme.muted, seconds(before), _whole(last, data)))
    names = [row.name for row in rows]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [row.length * factor for row in rows],
        "base": [row.start * factor for row in rows],
        "marker": {"color": [row.colour for row in rows]},
        "text": [row.text for row in rows],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [row.hover for row in rows],
        "hovertemplate": hover.TEMPLATE,
    }
    return figure(
        [trace],
        theme,
        height=bars_height(len(names)),
        x_title=f"time of a step, {unit}",
        **named_rows(names),
        xaxis={"range": [0, max(start, before) * factor * 1.3]},
    )


def _breakable(text: str) -> str:
    """A change on two lines, which leaves more of a narrow page to the bars."""
    return text.replace(": ", ":<br>", 1)


def _baseline(data: Mapping[str, Any]) -> str:
    return next(iter(data["systems"]))


def _whole(name: str, data: Mapping[str, Any]) -> str:
    spread = data["systems"][name]["step_time_s"]
    origin = hover.origin_text(data, f"systems.{name}")
    return hover.number(f"{name}: step time", spread["nominal"], seconds, spread=spread, origin=origin)


def _change(step: Mapping[str, Any], difference: float, data: Mapping[str, Any]) -> str:
    gain, total = step["gain"], step["speedup"]
    notes = (
        f"this change alone {ratio(gain['nominal'])} ({ratio(gain['p10'])} to {ratio(gain['p90'])})",
        f"all so far {ratio(total['nominal'])} ({ratio(total['p10'])} to {ratio(total['p90'])})",
        f"the step then takes {seconds(step['step_time_s']['nominal'])}",
    )
    return hover.number(
        str(step["change"]), difference, seconds, origin=hover.origin_text(data, "ablation"), notes=notes
    )
