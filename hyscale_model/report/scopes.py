"""What a layer may mean: the same prediction under every meaning, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.units import interval, nominal, or_nothing, ratio


def _meaning(include: Sequence[str]) -> str:
    """The parts of a layer in words; communication is always the last."""
    more = {"hyper_connections": "+ hyper-connections", "ffn": "+ FFN"}
    parts = [name for part, name in more.items() if part in include]
    start = ["attention"] if "attention" in include and not parts else []
    return " ".join(start + parts) + ("" if "communication" in include else ", no communication")


def render_scopes(variants: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Speed-ups of one layer, a line a meaning; the scenario's own is marked."""
    if not variants:
        return
    canvas.heading(console, "The layer, under each meaning of it")
    pairs = list(dict.fromkeys(pair for variant in variants for pair in variant["speedup"]))
    rows = [
        [
            _meaning(variant["include"]),
            pair,
            or_nothing(nominal(variant["speedup"][pair]), ratio),
            interval(variant["speedup"][pair], ratio),
            "declared" if variant["answer"] else "",
        ]
        for pair in pairs
        for variant in variants
    ]
    console.print(
        canvas.plain_table(
            ["layer includes", "speedup", "predicted", "p10 to p90", ""], rows, left=(0, 1, 4), fold=(0,)
        )
    )


def render_checked_scopes(scopes: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Reported speed-ups of layers beside every meaning of the layer."""
    if not scopes:
        return
    canvas.heading(console, "What a reported layer may include")
    rows = [
        [
            canvas.printable(scope["id"]),
            _meaning(scope["include"]),
            ratio(scope["reported"]),
            or_nothing(nominal(scope["predicted"]), ratio),
            interval(scope["predicted"], ratio),
            "declared" if scope["answer"] else "",
        ]
        for scope in scopes
    ]
    head = ["", "layer includes", "reported", "predicted", "p10 to p90", ""]
    console.print(canvas.plain_table(head, rows, left=(0, 1, 5)))
