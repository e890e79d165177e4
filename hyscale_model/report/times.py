"""Where the time of a step goes: one line a term, one column a system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hyscale_model.prediction import TERMS
from hyscale_model.report import canvas
from hyscale_model.report.as_json import in_order
from hyscale_model.report.units import finite

LIMITS: Mapping[str, str] = {
    "tensor": "tensor cores",
    "sm": "CUDA cores",
    "hbm": "GPU memory bandwidth",
    "network": "network",
}
_LETTER = {"tensor": "T", "sm": "C", "hbm": "M", "network": "N"}
_SHORTER = (("_communication_exposed", "_comm"), ("_forward", "_fwd"), ("_backward", "_bwd"), ("_recompute", "_rec"))


def label(term: str, *, short: bool = False) -> str:
    """The name of a term: its JSON key, shortened where the terminal is narrow."""
    if short:
        for long, brief in _SHORTER:
            term = term.replace(long, brief)
    return term


def shares(time_s: Mapping[str, Any]) -> dict[str, float]:
    """The share of each term in their sum; the shares sum to one (to zero where no term takes time)."""
    total = sum(finite(value) for value in time_s.values())
    return {term: finite(value) / total if total else 0.0 for term, value in time_s.items()}


def scale_of(longest_s: float) -> tuple[float, str, int]:
    """Factor, unit and decimals that show durations up to ``longest_s`` in one column."""
    if longest_s >= 10:
        return 1.0, "s", 2
    return (1.0, "s", 3) if longest_s >= 1 else (1e3, "ms", 2)


def terms_of(systems: Mapping[str, Any]) -> list[str]:
    """Every term any of the systems has, in the order of ``TERMS``."""
    seen: dict[str, None] = {}
    for system in systems.values():
        seen |= dict.fromkeys(system.get("time_s") or {})
    return list(in_order(seen, TERMS))


def render_times(data: Mapping[str, Any], console: Console) -> None:
    """Seconds and share of each term, what limits it, and a bar, for all systems side by side.

    A full bar is the longest term of any system, so that bars compare across systems too.
    """
    systems = {name: system for name, system in data.get("systems", {}).items() if system.get("time_s")}
    if not systems:
        return
    canvas.heading(console, "Where the time goes")
    wide = console.width >= canvas.WIDE
    terms = terms_of(systems)
    shown = [term for term in terms if any(system["time_s"].get(term) for system in systems.values())]
    labels = {term: label(term, short=not wide) for term in terms}
    origins = {term: _origin(term, systems) for term in shown} if wide else {}
    fixed = max([len("term"), *(len(labels[term]) for term in shown)]) + (14 if any(origins.values()) else 0)

    longest = max(finite(systems[name]["time_s"].get(term, 0.0)) for name in systems for term in terms)
    totals = {name: sum(finite(value) for value in system["time_s"].values()) for name, system in systems.items()}
    scale = scale_of(max(totals.values()))
    limit_width = max(map(len, LIMITS)) if wide else 1
    number_width = max(len(f"{total * scale[0]:,.{scale[2]}f}") for total in totals.values())
    cell = number_width + 1 + 5 + 1 + limit_width
    # Three systems are the usual comparison: they get one table on 80 columns, their bars what is left.
    each = max(1, min(len(systems), (console.width - fixed) // (cell + 2)))
    bar_width = min(12, (console.width - fixed) // each - cell - 3)
    for names in canvas.in_groups(list(systems), each):
        columns = [
            _column(systems[name], shown, longest, scale, number_width, limit_width, bar_width, console)
            for name in names
        ]
        unit = f"{scale[1]:>{number_width}} {'%':>5}"
        head = ["\nterm", *(f"{canvas.printable(name)[:cell]}\n{unit}" for name in names)]
        rows: list[list[str | Text]] = [
            [labels[term], *(column[index] for column in columns)] for index, term in enumerate(shown)
        ]
        rows.append(
            [
                Text(canvas.noun(data), style="bold"),
                *(f"{totals[n] * scale[0]:>{number_width},.{scale[2]}f} 100.0" for n in names),
            ]
        )
        if any(origins.values()):
            head.append("\norigin")
            for row, term in zip(rows, shown, strict=False):
                row.append(origins[term])
            rows[-1].append("")
        console.print(canvas.plain_table(head, rows, left=range(len(head))))
    unused = [labels[term] for term in terms if term not in shown]
    if unused:
        canvas.sentence(console, f"0 in every system: {', '.join(unused)}.", "dim")
    _legend(console, systems, wide)


def _column(
    system: Mapping[str, Any],
    terms: Sequence[str],
    longest: float,
    scale: tuple[float, str, int],
    number_width: int,
    limit_width: int,
    bar_width: int,
    console: Console,
) -> list[Text]:
    factor, _, decimals = scale
    bound_by = system.get("bound_by") or {}
    share_of = shares(system["time_s"])
    cells = []
    for term in terms:
        share = share_of.get(term, 0.0)
        limit = bound_by.get(term) or "-"
        limit = limit if limit_width > 1 else _LETTER.get(limit, limit[:1])
        time = finite(system["time_s"].get(term, 0.0))
        text = f"{time * factor:>{number_width},.{decimals}f} {100 * share:>5.1f} "
        cell = Text(text + limit.ljust(limit_width))
        if bar_width >= 3:
            cell.append(
                " " + canvas.bar(time / longest if longest else 0.0, bar_width, blocks=canvas.blocks_allowed(console)),
                style="cyan",
            )
        cells.append(cell)
    return cells


def _origin(term: str, systems: Mapping[str, Any]) -> str:
    found: dict[str, None] = {}
    for system in systems.values():
        origin = ((system.get("terms") or {}).get(term) or {}).get("origin")
        if origin and system["time_s"].get(term):
            found[str(origin)] = None
    return "/".join(found) if len(found) < 2 else "mixed"


def _legend(console: Console, systems: Mapping[str, Any], wide: bool) -> None:
    parts = []
    if any(system.get("bound_by") for system in systems.values()):
        marks = [
            f"{key if wide else _LETTER[key]} = {meaning}"
            for key, meaning in LIMITS.items()
            if key != meaning or not wide
        ]
        parts.append(f"Limited by: {', '.join(marks)}.")
    parts.append("Communication counts only where nothing hides it.")
    stages = {system["critical_stage"] for system in systems.values() if system.get("critical_stage") is not None}
    if stages:
        named = ", ".join(str(stage) for stage in sorted(stages))
        parts.append(f"Times are those of the critical stage ({named}).")
    canvas.sentence(console, " ".join(parts), "dim")
