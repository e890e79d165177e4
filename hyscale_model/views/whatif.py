"""What-if: the answer at a glance, beside a pinned one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.figures.hover import origin_text
from hyscale_model.report.canvas import noun
from hyscale_model.report.markup import Markup, element
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
from hyscale_model.views.cards import Card, command_box, table, tip, told
from hyscale_model.views.page import Page

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


def build(page: Page) -> list[Card]:
    """Tiles of the systems, step times, speed-ups, peak memory, and everything as a table."""
    data, theme = page.data, page.theme
    before = page.pinned
    pinned = " The pinned prediction is the coloured line." if before else ""
    tiles = element("div", *(_system(name, page) for name in data["systems"]), class_="tiles")
    cards = [
        Card(name="systems", content=(tiles,), wide=True),
        Card(
            name="step-times",
            title=f"Time of a {noun(data)}",
            about=f"Nominal time by what it is spent on; the line spans 80 % of the draws.{pinned}",
            figure=figures.step_times(data, theme, before),
        ),
        Card(
            name="peak-memory",
            title="Memory of the fullest GPU",
            about=f"Peak at nominal inputs, its interval, and what a GPU has.{pinned}",
            figure=figures.peak_memory(data, theme, before),
        ),
        Card(
            name="speedups",
            title="Speed-up",
            about=f"Both systems share their draws, so this is the interval of the ratio.{pinned}",
            figure=figures.speedups(data, theme, before),
        ),
        Card(
            name="numbers",
            title="Numbers",
            about="Point at a number for its interval and origin.",
            content=(_numbers(data),),
            csv="numbers",
        ),
        _command(page),
    ]
    return [card for card in cards if card.name != "speedups" or data["speedup"]]


def _system(name: str, page: Page) -> Markup:
    data = page.data
    system = data["systems"][name]
    step = system["step_time_s"]
    base = next(iter(data["systems"]))
    origin = f"origin: {origin_text(data, f'systems.{name}')}"
    return element(
        "article",
        element("h3", name),
        element("div", told(seconds(step["nominal"]), tip(_between(step, seconds), origin)), class_="big"),
        element("div", f"80 %: {interval(step, seconds)}", class_="sub"),
        _gain(data, name, base),
        _memory(system.get("memory"), origin),
        _change(name, page),
        class_="tile",
    )


def _between(spread: Mapping[str, Any], show: Any) -> str:
    return f"80 % of the draws: {interval(spread, show)}"


def _gain(data: Mapping[str, Any], name: str, base: str) -> Markup:
    gain = data["speedup"].get(f"{name}/{base}")
    if gain is None:
        return element("div", "the baseline", class_="line")
    origin = f"origin: {origin_text(data, 'speedup')}"
    value = told(ratio(gain["nominal"]), tip(_between(gain, ratio), origin), "strong")
    return element("div", value, f" as fast as {base}", class_="line")


def _memory(memory: Mapping[str, Any] | None, origin: str) -> Markup | None:
    if not memory:
        return None
    peak, capacity = memory["peak_bytes"], memory["capacity_bytes"]
    where = f"stage {memory['peak_stage']}, {memory['peak_when']}"
    text = told(f"{gib(peak)} of {gib(capacity)}", tip(_between(memory["peak_interval_bytes"], gib), where, origin))
    verdict = str(memory["verdict"])
    return element(
        "div", element("span", VERDICTS.get(verdict, NOTHING), class_=f"verdict {verdict}"), " ", text, class_="line"
    )


def _change(name: str, page: Page) -> Markup | None:
    """How the step time differs from the pinned one."""
    if page.pinned is None:
        return None
    before = page.pinned["systems"].get(name)
    if before is None:
        return element("div", "not in the pinned prediction", class_="line pinned")
    then, now = finite(nominal(before["step_time_s"])), finite(nominal(page.data["systems"][name]["step_time_s"]))
    return element("div", f"pinned {seconds(then)}, {signed_percent(now / then - 1)} since", class_="line pinned")


def _numbers(data: Mapping[str, Any]) -> Markup:
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


def _command(page: Page) -> Card:
    return Card(
        name="command",
        title="The same on the command line",
        about="Add --json for every number, --require-fit for scripts.",
        content=(command_box(page.command),),
        wide=True,
    )
