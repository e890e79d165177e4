"""A prediction on the terminal: the answer first, then where it comes from and how sure it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from hyscale_model.prediction import ORIGINS
from hyscale_model.report import canvas
from hyscale_model.report.compared import render_comparison
from hyscale_model.report.memory import render_memory
from hyscale_model.report.scopes import render_scopes
from hyscale_model.report.times import label, render_times
from hyscale_model.report.units import (
    NOTHING,
    count,
    finite,
    interval,
    money,
    nominal,
    or_nothing,
    percent,
    ratio,
    seconds,
)

_ORIGIN_MEANS: Mapping[str, str] = {
    "given": "stated by you",
    "measured": "on this very GPU",
    "transferred": "measured elsewhere, scaled",
    "published": "from a source",
    "assumed": "a range with a reason",
}


def render_prediction(data: Mapping[str, Any], console: Console) -> None:
    """Print a prediction (the JSON of ``hyscale predict``) for a person to read; absent parts are left out."""
    sections: tuple[Callable[[Mapping[str, Any], Console], None], ...] = (
        _header,
        _summary,
        render_times,
        _scopes,
        _ablation,
        render_memory,
        _reported,
        _assumptions,
        _warnings,
        _origins,
    )
    for section in sections:
        section(data, console)


def _header(data: Mapping[str, Any], console: Console) -> None:
    scenario = data.get("scenario") or {}
    console.print(Text(canvas.printable(scenario.get("name") or "Prediction"), style="bold"))
    cluster, facts = scenario.get("cluster") or {}, []
    if isinstance(cluster, Mapping) and cluster.get("nodes") and cluster.get("gpus_per_node"):
        gpu = cluster.get("gpu") or {}
        gpu_name = gpu.get("name", "GPUs") if isinstance(gpu, Mapping) else gpu
        facts.append(f"{count(cluster['nodes'] * cluster['gpus_per_node'])} x {gpu_name}")
    model = scenario.get("model")
    if model:
        facts.append(f"model {model.get('name') if isinstance(model, Mapping) else model}")
    workload = scenario.get("workload") or {}
    if workload.get("sequence_length"):
        facts.append(f"{count(workload['sequence_length'])} tokens a sequence")
    if workload.get("global_batch_size"):
        facts.append(f"{count(workload['global_batch_size'])} sequences a step")
    if scenario.get("profile"):
        facts.append(f"profile {scenario['profile']}")
    if data.get("draws") is not None:
        facts.append(f"{data['draws']} draws, seed {data.get('seed', 0)}")
    if facts:
        canvas.sentence(console, ", ".join(facts))
    for pair, gain in (data.get("speedup") or {}).items():
        if nominal(gain) is None:
            continue
        faster, _, base = pair.partition("/")
        # One draw has no spread, and claiming one would be claiming certainty.
        between = NOTHING if data.get("draws") == 1 else interval(gain, ratio)
        sure = f", {between} in 80 % of the draws" if between != NOTHING else ""
        text = f"{faster} runs a {canvas.noun(data)} {ratio(nominal(gain))} as fast as {base}{sure}."
        canvas.sentence(console, text, "bold green")


def _summary(data: Mapping[str, Any], console: Console) -> None:
    systems = data.get("systems") or {}
    if not systems:
        return
    speedup = data.get("speedup") or {}
    base = next((pair.partition("/")[2] for pair in speedup), next(iter(systems)))
    lines: list[tuple[str, Callable[[str, Mapping[str, Any]], str]]] = [
        (f"{canvas.noun(data)} time", lambda _, s: or_nothing(nominal(s.get("step_time_s")), seconds)),
        ("  p10 to p90", lambda _, s: interval(s.get("step_time_s"), seconds)),
        (f"speedup over {base}", lambda n, _: or_nothing(nominal(speedup.get(f"{n}/{base}")), ratio)),
        ("  p10 to p90", lambda n, _: interval(speedup.get(f"{n}/{base}"), ratio)),
        (
            "selection, share of time" if canvas.noun(data) != "step" else "selection, share of step",
            lambda _, s: or_nothing(nominal(s.get("selection_share_of_step")), percent),
        ),
        ("selection, share of busy", lambda _, s: or_nothing(nominal(s.get("selection_share_of_busy")), percent)),
        ("tokens/s per GPU", lambda _, s: or_nothing(nominal(s.get("tokens_per_s_per_gpu")), count)),
        ("model FLOP utilisation", lambda _, s: or_nothing(nominal(s.get("model_flops_utilization")), percent)),
        ("GPU hours per 1e9 tokens", lambda _, s: or_nothing(nominal(s.get("gpu_hours_per_billion_tokens")), count)),
        ("cost per 1e9 tokens", lambda _, s: or_nothing(nominal(s.get("cost_per_billion_tokens")), money)),
    ]
    canvas.heading(console, "Systems")
    label = max(len(title) for title, _ in lines) + 2
    cell = max(18, *(len(name) + 2 for name in systems))
    for names in canvas.in_groups(list(systems), (console.width - label) // cell):
        rows = [[title, *(show(name, systems[name]) for name in names)] for title, show in lines]
        rows = [row for row in rows if any(value != NOTHING for value in row[1:])]
        console.print(canvas.plain_table(["", *map(canvas.printable, names)], rows))


def _ablation(data: Mapping[str, Any], console: Console) -> None:
    steps = data.get("ablation") or []
    if not steps:
        return
    steps = [*_baseline(steps[0], data), *steps]
    canvas.heading(console, "From the baseline to the last system, one change at a time")
    times = [nominal(step.get("step_time_s")) for step in steps]
    longest = max([finite(time) for time in times if time is not None], default=0.0)
    label = max(len("change"), *(len(str(step.get("change"))) for step in steps))
    label = min(label, max(20, console.width - 48))
    bar_width = min(40, console.width - label - 42)
    before: float | None = None
    rows: list[list[str | Text]] = []
    for step, time in zip(steps, times, strict=True):
        saved = NOTHING if before is None or time is None else _signed_seconds(finite(time) - before)
        row: list[str | Text] = [
            canvas.printable(step.get("change")),
            or_nothing(time, seconds),
            saved,
            or_nothing(nominal(step.get("speedup")), ratio),
        ]
        if bar_width >= 8:
            filled = finite(time) / longest if time is not None and longest else 0.0
            row.append(Text(canvas.bar(filled, bar_width, blocks=canvas.blocks_allowed(console)), style="cyan"))
        rows.append(row)
        before = before if time is None else finite(time)
    head = ["change", canvas.noun(data), "difference", "speedup", *([""] if bar_width >= 8 else [])]
    console.print(canvas.plain_table(head, rows, left=(0, 4), fold=(0,)))


def _baseline(first: Mapping[str, Any], data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The row the first change starts from, where the ablation does not have it itself."""
    time, gain = nominal(first.get("step_time_s")), nominal(first.get("speedup"))
    if time is None or gain is None or gain == 1:
        return []
    before = finite(time) * finite(gain)
    for name, system in (data.get("systems") or {}).items():
        other = nominal(system.get("step_time_s"))
        if other is not None and math.isclose(finite(other), before, rel_tol=1e-6):
            return [{"change": name, "step_time_s": before, "speedup": 1.0}]
    return [{"change": "baseline", "step_time_s": before, "speedup": 1.0}]


def _signed_seconds(value: float) -> str:
    return f"+{seconds(value)}" if value > 0 else seconds(value)


def _reported(data: Mapping[str, Any], console: Console) -> None:
    rows = data.get("reported") or []
    if not rows:
        return
    canvas.heading(console, "Reported by others, and predicted here")
    render_comparison(rows, console)


def _scopes(data: Mapping[str, Any], console: Console) -> None:
    render_scopes(data.get("scope_variants") or [], console)


def _assumptions(data: Mapping[str, Any], console: Console) -> None:
    assumptions = data.get("assumptions") or (data.get("scenario") or {}).get("assumptions") or []
    if not assumptions:
        return
    canvas.heading(console, "Assumed, and drawn from")
    drawn: dict[tuple[str, str, str], None] = {}
    for assumption in assumptions:
        path = str(assumption.get("path"))
        # What is drawn for every system alike is one line.
        shown = f"systems.*.{path.rpartition('.')[2]}" if path.startswith("systems.") else path
        drawn.setdefault((shown, _drawn(assumption), str(assumption.get("reason", ""))))
    rows = [[canvas.printable(text) for text in row] for row in drawn]
    console.print(canvas.plain_table(["field", "values", "reason"], rows, left=(0, 1, 2), fold=(1, 2)))


def _drawn(assumption: Mapping[str, Any]) -> str:
    if assumption.get("range"):
        return " to ".join(str(end) for end in assumption["range"])
    choices = assumption.get("choices") or []
    weights = choices.values() if isinstance(choices, Mapping) else assumption.get("weights")
    if not weights:
        return ", ".join(str(choice) for choice in choices)
    total = sum(weights)
    return ", ".join(f"{choice} ({percent(weight / total)})" for choice, weight in zip(choices, weights, strict=True))


def _warnings(data: Mapping[str, Any], console: Console) -> None:
    warnings = data.get("warnings") or []
    if warnings:
        canvas.heading(console, "Warnings")
    for warning in warnings:
        canvas.sentence(console, f"- {warning}", "yellow")


def _origins(data: Mapping[str, Any], console: Console) -> None:
    inputs = Counter(str(entry.get("origin")) for entry in (data.get("origins") or {}).values())
    times = Counter(
        str(term["origin"])
        for system in (data.get("systems") or {}).values()
        for term in (system.get("terms") or {}).values()
        if term.get("origin")
    )
    known = [origin for origin in ORIGINS if inputs[origin] or times[origin]]
    if not known:
        return
    canvas.heading(console, "Where the numbers come from")
    rows = [[origin, _ORIGIN_MEANS[origin], str(inputs[origin]), str(times[origin])] for origin in known]
    console.print(canvas.plain_table(["origin", "meaning", "inputs", "times"], rows, left=(0, 1)))
    for name, system in (data.get("systems") or {}).items():
        if system.get("extrapolated"):
            terms = ", ".join(label(term) for term in system["extrapolated"])
            canvas.sentence(console, f"Of {name}, beyond what the profile measured: {terms}.")
