"""The decision for people: before and after side by side, what each technique brings, what stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.units import NOTHING, count, gib, money, percent, ratio, seconds, significant

SAID = {
    "port": "Port: {target} over {without} is {low:.3f}x to {high:.3f}x, more than {worth:.2f}x even at the low end.",
    "flags": "Flip the flags: {target} over {without} is {low:.3f}x to {high:.3f}x, less than {worth:.2f}x at best.",
    "stay": "Stay: {target} over {without} is {low:.3f}x to {high:.3f}x, less than {worth:.2f}x at best.",
    "measure": "Measure first: {target} over {without} is {low:.3f}x to {high:.3f}x, on both sides of {worth:.2f}x.",
}
FITS = {"fits": "fits", "at_risk": "may not fit", "does_not_fit": "does not fit"}


def render_decision(data: Mapping[str, Any], console: Console) -> None:
    """The answer first, then the sheet."""
    answer, systems = data["answer"], data["systems"]
    canvas.heading(
        console, f"{data['name']}: {significant(data['tokens'] / 1e9)} billion tokens on {data['gpus']:,} GPUs"
    )
    gain = answer["gain"]
    said = SAID[answer["answer"]].format(
        target=answer["target"],
        without=answer["without_port"],
        low=gain["p10"],
        high=gain["p90"],
        worth=answer["worth"],
    )
    canvas.sentence(console, said, "bold")
    if answer["target_fits"] != "fits":
        canvas.sentence(
            console, f"In this layout {answer['target']} {FITS[answer['target_fits']]}; see hyscale search."
        )
    lines = {title: [show(system) for system in systems.values()] for title, show in ROWS}
    known = {title: cells for title, cells in lines.items() if any(cell != NOTHING for cell in cells)}
    title_width, cell_width = max(map(len, known)), max(len(cell) for cells in known.values() for cell in cells)
    each = max(1, (console.width - title_width) // (cell_width + 2))
    for places in canvas.in_groups(list(range(len(systems))), each):
        names = [list(systems)[place] for place in places]
        rows = [[title, *(cells[place] for place in places)] for title, cells in known.items()]
        console.print(canvas.plain_table(["", *names], rows, fold=range(1, 1 + len(names))))
        console.print()
    missing = [HINTS[title] for title in lines if title not in known]
    if missing:
        canvas.sentence(console, f"Not told, since not known: {', '.join(missing)}")
    _render_techniques(data, console)
    canvas.heading(console, "What to do")
    for step in data["work"]:
        canvas.sentence(console, f"{step['change']}: {step['what']}")
    _render_assumptions(data, console)


def _interval(show: Callable[[Any], str]) -> Callable[[Mapping[str, float] | None], str]:
    def text(value: Mapping[str, float] | None) -> str:
        return NOTHING if value is None else f"{show(value['nominal'])} ({show(value['p10'])} to {show(value['p90'])})"

    return text


def _energy(system: Mapping[str, Any]) -> str:
    energy = system["energy_mwh"]
    return NOTHING if energy is None else f"{significant(energy['low'], 3)} to {significant(energy['high'], 3)} MWh"


def _evidence(system: Mapping[str, Any]) -> str:
    return ", ".join(f"{percent(share)} {origin}" for origin, share in system["evidence"].items())


ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("step", lambda system: _interval(seconds)(system["step_time_s"])),
    ("tokens a second", lambda system: _interval(count)(system["tokens_per_s"])),
    ("days", lambda system: _interval(lambda value: significant(value, 3))(system["days"])),
    ("GPU-hours", lambda system: _interval(count)(system["gpu_hours"])),
    ("cost", lambda system: _interval(money)(system["cost_usd"])),
    ("energy of the GPUs", _energy),
    ("failures, time lost", lambda system: f"{count(round(system['failures']))}, {percent(system['lost_share'])}"),
    ("selection, of a step", lambda system: _interval(percent)(system["selection_share_of_step"])),
    ("memory left", lambda system: _headroom(system["memory"])),
    ("evidence", _evidence),
)
# Rows that need something the scenario may not say.
HINTS = {
    "cost": "cost (--set cluster.usd_per_gpu_hour=2.5)",
    "energy of the GPUs": "energy (--set cluster.gpu.power_watts=700)",
}


def _headroom(memory: Mapping[str, Any]) -> str:
    left = memory["headroom_bytes"]
    return gib(left) if left >= 0 else f"{gib(-left)} too much"


def _render_techniques(data: Mapping[str, Any], console: Console) -> None:
    rows = data["techniques"]
    if not rows:
        return
    canvas.heading(console, "What each change brings, in every order")
    lines = [
        [
            row["change"],
            NOTHING if row["alone"] is None else ratio(row["alone"]),
            NOTHING if row["last"] is None else ratio(row["last"]),
            f"{row['lowest']:.2f} to {row['highest']:.2f}",
            NOTHING if row["share"] is None else percent(row["share"]),
        ]
        for row in rows
    ]
    console.print(canvas.plain_table(["change", "alone", "on top", "any order", "share of the gain"], lines))


def _render_assumptions(data: Mapping[str, Any], console: Console) -> None:
    operation = data["operation"]
    canvas.heading(console, "Assumed")
    low, high = operation["power_share"]
    canvas.sentence(
        console,
        f"{significant(1e6 * operation['failures_per_gpu_hour'], 3)} failures in a million GPU-hours (Llama 3 405B), "
        f"{seconds(operation['restart_s'])} to restart, a checkpoint every {seconds(operation['checkpoint_s'])}; "
        f"boards at {percent(low)} to {percent(high)} of their power limit, hosts, network and cooling left out.",
    )
