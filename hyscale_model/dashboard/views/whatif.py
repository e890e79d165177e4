"""What-if: the answer at a glance, beside a pinned one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from hyscale_model import figures
from hyscale_model.dashboard.components import card, table, tip, told
from hyscale_model.dashboard.views.page import Page
from hyscale_model.figures.hover import origin_text
from hyscale_model.report.canvas import noun
from hyscale_model.report.memory import VERDICTS
from hyscale_model.report.units import (
    NOTHING,
    count,
    finite,
    gib,
    interval,
    money,
    nominal,
    or_nothing,
    percent,
    ratio,
    seconds,
    signed_percent,
)

# What the table shows: title, where it stands in a system's JSON, how it is written.
_ROWS = (
    ("selection, share of the step", "selection_share_of_step", percent),
    ("selection, share of busy time", "selection_share_of_busy", percent),
    ("tokens/s a GPU", "tokens_per_s_per_gpu", count),
    ("model FLOP utilisation", "model_flops_utilization", percent),
    ("GPU hours for 1e9 tokens", "gpu_hours_per_billion_tokens", count),
    ("US dollars for 1e9 tokens", "cost_per_billion_tokens", money),
    ("micro-batches a rank", "micro_batches", count),
    ("data-parallel ranks", "data_parallel", count),
)


def build(page: Page) -> list[Component]:
    """Cards of the systems, step times, speed-ups, peak memory, and everything as a table."""
    data, theme = page.data, page.theme
    before = page.pinned.data if page.pinned else None
    what = noun(data)
    pinned = " The pinned prediction is the coloured line." if before else ""
    parts: list[Component] = [html.Div([_system(name, page) for name in data["systems"]], className="tiles")]
    parts.append(
        card(
            "step-times",
            f"Time of a {what}",
            f"Nominal time, selection apart; the line spans 80 % of the draws.{pinned}",
            figure=figures.step_times(data, theme, before),
        )
    )
    if data["speedup"]:
        parts.append(
            card(
                "speedups",
                "Speed-up",
                f"Both systems share their draws, so this is the interval of the ratio.{pinned}",
                figure=figures.speedups(data, theme, before),
            )
        )
    parts += [
        card(
            "peak-memory",
            "Memory of the fullest GPU",
            f"Peak at nominal inputs, its interval, and what a GPU has.{pinned}",
            figure=figures.peak_memory(data, theme, before),
        ),
        card("numbers", "Numbers", "Point at a number for its interval and origin.", _numbers(data), csv="numbers"),
        _command(page),
    ]
    return parts


def _system(name: str, page: Page) -> Component:
    data = page.data
    system = data["systems"][name]
    step = system["step_time_s"]
    base = next(iter(data["systems"]))
    origin = f"origin: {origin_text(data, f'systems.{name}')}"
    lines: list[Component | None] = [
        html.H3(name),
        html.Div(told(seconds(step["nominal"]), tip(_between(step, seconds), origin)), className="big"),
        html.Div(["80 %: ", interval(step, seconds)], className="sub"),
        _gain(data, name, base),
        _memory(system.get("memory"), origin),
        _change(name, page),
    ]
    return html.Article([line for line in lines if line is not None], className="tile")


def _between(spread: Mapping[str, Any], show: Any) -> str:
    return f"80 % of the draws: {interval(spread, show)}"


def _gain(data: Mapping[str, Any], name: str, base: str) -> Component:
    gain = data["speedup"].get(f"{name}/{base}")
    if gain is None:
        return html.Div("the baseline", className="line")
    origin = f"origin: {origin_text(data, 'speedup')}"
    value = told(ratio(gain["nominal"]), tip(_between(gain, ratio), origin), "strong")
    return html.Div([value, f" as fast as {base}"], className="line", title=_between(gain, ratio))


def _memory(memory: Mapping[str, Any] | None, origin: str) -> Component | None:
    if not memory:
        return None
    peak, capacity = memory["peak_bytes"], memory["capacity_bytes"]
    where = f"stage {memory['peak_stage']}, {memory['peak_when']}"
    text = told(f"{gib(peak)} of {gib(capacity)}", tip(_between(memory["peak_interval_bytes"], gib), where, origin))
    verdict = str(memory["verdict"])
    return html.Div(
        [html.Span(VERDICTS.get(verdict, NOTHING), className=f"verdict {verdict}"), " ", text], className="line"
    )


def _change(name: str, page: Page) -> Component | None:
    """How the step time differs from the pinned one."""
    if page.pinned is None:
        return None
    before = page.pinned.data["systems"].get(name)
    if before is None:
        return html.Div("not in the pinned prediction", className="line pinned")
    then, now = finite(nominal(before["step_time_s"])), finite(nominal(page.data["systems"][name]["step_time_s"]))
    return html.Div(f"pinned {seconds(then)}, {signed_percent(now / then - 1)} since", className="line pinned")


def _numbers(data: Mapping[str, Any]) -> Component:
    systems = data["systems"]
    rows = []
    for title, key, show in _ROWS:
        cells = [_cell(system.get(key), show, data, name) for name, system in systems.items()]
        if any(cell != NOTHING for cell in cells):
            rows.append([title, *cells])
    return table("numbers", ["", *systems], rows)


def _cell(value: Any, show: Any, data: Mapping[str, Any], name: str) -> Any:
    text = or_nothing(nominal(value), show)
    if text == NOTHING:
        return text
    spread = _between(value, show) if isinstance(value, Mapping) else "nominal"
    return told(text, tip(spread, f"origin: {origin_text(data, f'systems.{name}')}"))


def _command(page: Page) -> Component:
    command = page.answer.command()
    return card(
        "command",
        "The same on the command line",
        "Add --json for every number, --require-fit for scripts.",
        html.Div(
            [html.Code(command, id="command"), dcc.Clipboard(target_id="command", title="Copy", className="small")],
            className="command",
        ),
        wide=True,
    )
