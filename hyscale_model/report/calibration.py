"""How well the fits of a profile predict what they have not seen, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.units import NOTHING, percent, signed_percent

_HEAD = ["family", "fit", "held", "median", "95th", "worst", "inside", "80 % is"]
_TRANSFER_HEAD = ["family", "points", "median", "95th", "worst"]


def render_fits(result: Mapping[str, Any], console: Console) -> None:
    """Print a profile's fits by family, with the errors of held-out points and of part of the SMs."""
    fits = result["fits"]
    canvas.sentence(
        console,
        f"{result['name']}: {result['measured']} points on {result['gpu']}, {len(result['failed'])} failed",
        "bold",
    )
    rows = [
        _row(name, entry["fit"]["n"], entry["held_out"], entry["spread"]) for name, entry in fits["families"].items()
    ]
    rows.append(_row("all", fits["fit"]["n"], fits["held_out"], None))
    canvas.heading(console, "Held-out errors")
    console.print(canvas.plain_table(_HEAD, rows, fold=(0,)))
    parts = [
        [canvas.printable(name), *_errors(entry["transfer"])]
        for name, entry in (*fits["families"].items(), ("all", fits))
        if entry["transfer"]["n"]
    ]
    if parts:
        canvas.heading(console, "On part of the SMs, predicted by the rule of transfer")
        console.print(canvas.plain_table(_TRANSFER_HEAD, parts, fold=(0,)))
    for name, reason in fits["unfitted"].items():
        canvas.sentence(console, f"not fitted: {name}: {reason}", "dim")
    if not result["collectives"]["measured"]:
        canvas.sentence(console, f"collectives were not measured: {result['collectives']['reason']}", "dim")


def _row(name: str, count: int, held: Mapping[str, Any], spread: float | None) -> list[str]:
    n, *errors = _errors(held)
    coverage = percent(held["coverage"]) if held["n"] else NOTHING
    return [
        canvas.printable(name),
        str(count),
        n,
        *errors,
        coverage,
        NOTHING if spread is None else f"±{percent(spread)}",
    ]


def _errors(entry: Mapping[str, Any]) -> list[str]:
    if not entry["n"]:
        return ["0", NOTHING, NOTHING, NOTHING]
    return [str(entry["n"]), percent(entry["median"]), percent(entry["p95"]), signed_percent(entry["worst"])]
