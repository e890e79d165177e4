"""Memory of the fullest GPU: what fills it, whether it fits, and the nearest baseline that does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.report import canvas
from hyscale_model.report.as_json import in_order
from hyscale_model.report.units import GIB, finite, gib, interval, nominal, percent, ratio, seconds

VERDICTS: Mapping[str, str] = {"fits": "fits", "at_risk": "at risk", "does_not_fit": "DOES NOT FIT"}
_STYLE = {"fits": "green", "at_risk": "yellow", "does_not_fit": "bold red"}


def verdict_text(name: str, memory: Mapping[str, Any]) -> str:
    """One sentence: does the system fit, by how much, and which kind of memory is to blame when not."""
    peak, capacity = memory.get("peak_bytes"), memory.get("capacity_bytes")
    verdict = memory.get("verdict")
    words = f"{name}: {VERDICTS.get(str(verdict), 'no verdict')}"
    if peak is None or not capacity:
        return f"{words}."
    words += f", {gib(peak)} of {gib(capacity)} ({percent(finite(peak) / finite(capacity))})"
    if memory.get("peak_stage") is not None:
        words += f" on stage {memory['peak_stage']}"
    if memory.get("peak_when"):
        words += f", {memory['peak_when']}"
    if verdict != "does_not_fit":
        return f"{words}."
    overflow = memory.get("overflow") or _guilty(memory, finite(peak) - finite(capacity))
    if not overflow:
        return f"{words}."
    kind = str(overflow.get("kind"))
    meaning = f" ({MEMORY_KINDS[kind]})" if kind in MEMORY_KINDS else ""
    return f"{words}. {kind}{meaning} overflows by {gib(overflow['by_bytes'])}."


def _guilty(memory: Mapping[str, Any], by_bytes: float) -> dict[str, Any] | None:
    kinds = memory.get("at_peak_bytes")
    return {"kind": max(kinds, key=lambda kind: kinds[kind]), "by_bytes": by_bytes} if kinds else None


def render_memory(data: Mapping[str, Any], console: Console) -> None:
    """GiB per kind at the peak of each system, the verdicts, and the nearest baseline that fits."""
    memories = {name: system["memory"] for name, system in data.get("systems", {}).items() if system.get("memory")}
    if memories:
        canvas.heading(console, "Memory of the fullest GPU at its peak, GiB")
        seen: dict[str, None] = {}
        for memory in memories.values():
            seen |= dict.fromkeys(memory.get("at_peak_bytes") or {})
        kinds = [
            kind
            for kind in in_order(seen, MEMORY_KINDS)
            if any((memory.get("at_peak_bytes") or {}).get(kind) for memory in memories.values())
        ]
        label = max(len(kind) for kind in ["capacity", *kinds]) + 2
        cell = max(14, *(len(name) for name in memories)) + 2
        for names in canvas.in_groups(list(memories), (console.width - label) // cell):
            rows: list[list[str | Text]] = [
                [kind, *(_gib_number((memories[name].get("at_peak_bytes") or {}).get(kind)) for name in names)]
                for kind in kinds
            ]
            rows.append([Text("peak", "bold"), *(_gib_number(memories[name].get("peak_bytes")) for name in names)])
            rows.append(["capacity", *(_gib_number(memories[name].get("capacity_bytes")) for name in names)])
            rows.append(["", *(_verdict(memories[name]) for name in names)])
            console.print(canvas.plain_table(["kind", *map(canvas.printable, names)], rows))
        for name, memory in memories.items():
            canvas.sentence(console, verdict_text(name, memory), _STYLE.get(str(memory.get("verdict")), ""))
    _render_feasible(data, console)


def _gib_number(value: Any) -> str:
    return "-" if value is None else f"{finite(value) / GIB:,.2f}"


def _verdict(memory: Mapping[str, Any]) -> Text:
    verdict = str(memory.get("verdict"))
    return Text(VERDICTS.get(verdict, "-"), style=_STYLE.get(verdict, ""))


def _render_feasible(data: Mapping[str, Any], console: Console) -> None:
    for name, feasible in (data.get("nearest_feasible") or {}).items():
        if not feasible:
            canvas.sentence(console, f"No change of layout tried makes {name} fit.")
            continue
        changes = ", ".join(f"{path} = {value}" for path, value in (feasible.get("changes") or {}).items())
        text = f"Nearest {name} that fits: {changes or 'no change needed'}"
        step = (feasible.get("system") or {}).get("step_time_s")
        if nominal(step) is not None:
            text += f"; a step takes {seconds(nominal(step))}"
        gains = feasible.get("speedup") or {}
        gains = {"": gains} if "nominal" in gains else gains
        for pair, gain in gains.items():
            if nominal(gain) is not None:
                between = interval(gain, ratio)
                text += f"; {pair or 'speedup'} {ratio(nominal(gain))}"
                text += f" ({between})" if between != "-" else ""
        canvas.sentence(console, f"{text}.")
