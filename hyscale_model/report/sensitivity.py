"""What moves the answer, for people: a tornado of text, lengths and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.times import label
from hyscale_model.report.units import NOTHING, percent, ratio, seconds

MOST_INPUTS = 15
BAR = 24
# Gains worth showing though they are not chosen, and unknowns named that nothing settles.
LEAST_GAIN, MOST_OTHERS = 0.005, 5


def render_sensitivity(data: Mapping[str, Any], console: Console) -> None:
    """The widest swings first, then what would have to be true for no gain, and from which length on there is one."""
    name = data["metric"].removeprefix("speedup.")
    canvas.heading(console, f"{data['name']}: what moves {name} = {ratio(data['nominal'])}")
    _render_inputs(data["inputs"], data["nominal"], console)
    against = data["all_against"]
    ending = "and still a gain" if against["holds"] else "no gain is left"
    canvas.sentence(
        console, f"All of them against it at once, each at its worse end: {ratio(against['speedup'])}, {ending}."
    )
    _render_vanishing(data["vanishes"], console)
    _render_lengths(data["break_even"], console)
    if "measure_first" in data:
        _render_measurements(data["measure_first"], console)


def _render_inputs(rows: Sequence[Mapping[str, Any]], nominal: float, console: Console) -> None:
    if not rows:
        canvas.sentence(console, "Nothing does: no assumption and no rate is uncertain.")
        return
    low = min(setting["speedup"] for row in rows for setting in row["settings"])
    high = max(setting["speedup"] for row in rows for setting in row["settings"])
    low, high = min(low, nominal), max(high, nominal)
    wide = console.width >= canvas.WIDE
    blocks = canvas.blocks_allowed(console)
    lines = []
    for row in rows[:MOST_INPUTS]:
        found = sorted(row["settings"], key=lambda setting: setting["speedup"])
        line = [
            canvas.printable(row["input"]),
            _setting(found[0]),
            _setting(found[-1]),
            percent(row["share"]),
        ]
        if wide:
            line.append(_bar(found[0]["speedup"], found[-1]["speedup"], nominal, low, high, blocks=blocks))
        lines.append(line)
    head = [
        "input",
        "lowest",
        "highest",
        "share",
        *(
            [
                "",
            ]
            if wide
            else []
        ),
    ]
    console.print(canvas.plain_table(head, lines, left=(0, 4)))
    if len(rows) > MOST_INPUTS:
        rest = sum(row["share"] for row in rows[MOST_INPUTS:])
        canvas.sentence(console, f"and {len(rows) - MOST_INPUTS} more, {percent(rest)} together")


def _setting(setting: Mapping[str, Any]) -> str:
    value = setting["value"]
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{ratio(setting['speedup'])} at {shown}"


def _bar(low: float, high: float, nominal: float, first: float, last: float, *, blocks: bool) -> str:
    """A line from the lowest to the highest, with the nominal value marked."""
    scale = (BAR - 1) / (last - first) if last > first else 0.0
    left, right, middle = (round((value - first) * scale) for value in (min(low, nominal), max(high, nominal), nominal))
    fill, mark = ("━", "┃") if blocks else ("=", "|")
    cells = [fill if left <= place <= right else " " for place in range(BAR)]
    cells[middle] = mark
    return "".join(cells)


def _render_vanishing(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not rows:
        return
    canvas.heading(console, "What would have to be true for no gain at all")
    lines = []
    for row in rows:
        if row["needed_s"] is None:
            needed = "even 0 s would leave a gain"
        else:
            needed = f"{seconds(row['needed_s'])}, {row['times_faster']:.1f} times faster"
        lines.append([label(row["part"]), seconds(row["seconds"]), needed])
    console.print(canvas.plain_table(["of the first system", "is", "would have to be"], lines, left=(0, 2)))


def _render_lengths(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not rows:
        return
    canvas.heading(console, "From which sequence length on each change alone is worth 1 %")
    lengths = [gain["tokens"] for gain in rows[0]["gains"]]
    shown = lengths if console.width >= canvas.WIDE else lengths[-3:]
    lines = [
        [
            row["change"],
            _tokens(row["from_tokens"]),
            _tokens(row["sure_from_tokens"]),
            *(ratio(gain["nominal"]) for gain in row["gains"] if gain["tokens"] in shown),
        ]
        for row in rows
    ]
    head = ["change", "from", "sure from", *(_tokens(tokens) for tokens in shown)]
    console.print(canvas.plain_table(head, lines))


def _tokens(tokens: int | None) -> str:
    if tokens is None:
        return NOTHING
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K"


def _render_measurements(first: Mapping[str, Any], console: Console) -> None:
    """What to measure, what it is worth, and what to type."""
    canvas.heading(console, f"What to measure first, in {first['budget_s'] / 60:.3g} minutes on your {first['gpu']}")
    shown = [row for row in first["measurements"] if row["chosen"] or row["gain"] >= LEAST_GAIN]
    if not shown:
        canvas.sentence(console, "Nothing that can be measured would narrow it.")
    else:
        lines = [
            [
                row["name"],
                percent(row["gain"]),
                f"{row['seconds']:.0f} s",
                "yes" if row["chosen"] else "too long",
            ]
            for row in shown
        ]
        head = ["", "of the variance", "takes about", "chosen"]
        console.print(canvas.plain_table(head, lines, left=(0, 3)))
    if first["commands"]:
        now, then = first["now"], first["then"]
        canvas.sentence(
            console,
            f"With these the interval is expected to narrow from {ratio(now['p10'])} to {ratio(now['p90'])} now to "
            f"{ratio(then['p10'])} to {ratio(then['p90'])}.",
        )
        for command in first["commands"]:
            # Lines of a shell, which can be copied as they stand.
            kept = command.replace("--op ", "--op\0")
            parts = wrap(kept, console.width - 6, break_long_words=False, break_on_hyphens=False)
            console.print(
                "  " + " \\\n    ".join(parts).replace("\0", " "), markup=False, highlight=False, soft_wrap=True
            )
    if first["others"]:
        told = ", ".join(f"{row['input']} {percent(row['share'])}" for row in first["others"][:MOST_OTHERS])
        canvas.sentence(console, f"No benchmark settles {told}: decide them, or fit a step of your own (fit-run).")
