"""The result of ``hyscale check`` on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.compared import render_comparison
from hyscale_model.report.scopes import render_checked_scopes
from hyscale_model.report.units import NOTHING, finite, interval, nominal, or_nothing, percent, signed_percent, unit_of

# More rows than this are shown as the worst ones only; the JSON has all.
_ROWS_SHOWN = 20
_WORST_SHOWN = 10
_GRID_METRICS = 3


def failed_bars(data: Mapping[str, Any]) -> list[str]:
    """What fails in a result of ``check``: every entry with ``passed`` false, as a sentence.

    Bars stand under ``bars`` of the result or of a group's summary; a whole group may carry ``passed`` too.
    """
    failed = [_bar_text(bar) for bar in data.get("bars") or [] if bar.get("passed") is False]
    for group, summary in (data.get("summary") or {}).items():
        bars = [bar for bar in summary.get("bars") or [] if bar.get("passed") is False]
        failed += [f"{group}: {_bar_text(bar)}" for bar in bars]
        if summary.get("passed") is False and not bars:
            failed.append(f"{group}: its bar is not met")
    return failed


def _bar_text(bar: Mapping[str, Any]) -> str:
    """``median error is 6.1 %, the bar is at most 4 %``."""
    told = percent if bar["unit"] == "fraction" else str
    limits = [f"{word} {told(bar[key])}" for key, word in _LIMITS.items() if bar[key] is not None]
    return f"{bar['id']} is {told(bar['value'])}, the bar is {' and '.join(limits)}"


_LIMITS = {"at_least": "at least", "at_most": "at most"}


def render_check(data: Mapping[str, Any], console: Console) -> None:
    """Print a check for a person to read: a summary of each group, its rows, the grid, and what failed."""
    _summary(data, console)
    rows = data.get("rows") or []
    for group in dict.fromkeys(str(row.get("group")) for row in rows):
        members = [row for row in rows if str(row.get("group")) == group]
        canvas.heading(console, f"{group}: {len(members)} rows")
        if len(members) > _ROWS_SHOWN:
            members = sorted(members, key=lambda row: -abs(finite(row.get("error") or 0.0)))[:_WORST_SHOWN]
            canvas.sentence(console, f"The {_WORST_SHOWN} with the largest error; --json has all.", "dim")
        render_comparison(members, console)
    render_checked_scopes(data.get("scopes") or [], console)
    _grid(data.get("grid") or {}, {str(row.get("id")): str(row.get("metric")) for row in rows}, console)
    failed = failed_bars(data)
    canvas.heading(console, "Result")
    for text in failed:
        canvas.sentence(console, f"FAILED {text}", "bold red")
    if not failed:
        canvas.sentence(console, "No bar failed.", "green")
    for text in data.get("unmeasured") or []:
        canvas.sentence(console, text, "bold yellow")


def _summary(data: Mapping[str, Any], console: Console) -> None:
    summary = data.get("summary") or {}
    if not summary:
        return
    console.print("Predicted against reported", style="bold cyan")
    rows = []
    for group, entry in _with_parts(summary):
        families = entry.get("families")
        rows.append(
            [
                canvas.printable(group),
                or_nothing(entry.get("n"), str),
                or_nothing(len(families) if isinstance(families, (list, dict)) else families, str),
                or_nothing(entry.get("mape"), percent),
                or_nothing(entry.get("bias"), signed_percent),
                or_nothing(entry.get("coverage"), percent),
                _worst(entry.get("worst")),
            ]
        )
    head = ["group", "rows", "families", "mean error", "bias", "inside 80 %", "worst"]
    console.print(canvas.plain_table(head, rows, left=(0, 6), fold=(6,)))
    for group, entry in summary.items():
        if entry.get("by_family"):
            _families(group, entry["by_family"], console)


def _families(group: str, families: Mapping[str, Any], console: Console) -> None:
    """Errors of the families of a group, each with its worst row."""
    canvas.heading(console, f"{group} by family")
    rows = [
        [
            canvas.printable(family),
            str(entry["n"]),
            percent(entry["median"]),
            signed_percent(entry["bias"]),
            or_nothing(entry["coverage"], percent),
            _worst(entry["worst"]),
        ]
        for family, entry in families.items()
    ]
    head = ["family", "rows", "median", "bias", "inside 80 %", "worst"]
    console.print(canvas.plain_table(head, rows, left=(0, 5), fold=(0, 5)))


def _with_parts(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each group, then its splits and series."""
    for group, entry in summary.items():
        yield group, entry
        for part, of_part in (entry.get("parts") or {}).items():
            yield f"  {part.replace('_', ' ')}", of_part


def _worst(worst: Any) -> str:
    if isinstance(worst, Mapping):
        error = worst.get("error")
        return canvas.printable(f"{worst.get('id', '')} {or_nothing(error, signed_percent)}".strip())
    if isinstance(worst, (int, float)):
        return signed_percent(worst)
    return canvas.printable(worst) if worst else NOTHING


def _grid(grid: Mapping[str, Any], metric_of: Mapping[str, str], console: Console) -> None:
    """The points nobody stated, by axis: the range of each metric over all points with one value of one axis.

    Columns of the grid are metrics, or ids of rows (or the beginnings of ids), which then tell the unit.
    """
    points: Sequence[Mapping[str, Any]] = grid.get("rows") or []
    axes: Mapping[str, Sequence[Any]] = grid.get("axes") or {}
    if not points:
        return
    canvas.heading(console, f"Unstated inputs: {len(points)} combinations")
    metrics = list(dict.fromkeys(_metrics(points, axes)))[:_GRID_METRICS]
    units = {name: next((metric_of[key] for key in metric_of if key.startswith(name)), name) for name in metrics}
    rows = []
    for axis, values in axes.items():
        for value in values:
            chosen = [point for point in points if _point_value(point, axis) == value]
            ranges = [_range([_number(point, metric) for point in chosen], units[metric]) for metric in metrics]
            rows.append([canvas.printable(axis), canvas.printable(value), str(len(chosen)), *ranges])
    everything = [_range([_number(point, metric) for point in points], units[metric]) for metric in metrics]
    rows.append(["all", "", str(len(points)), *everything])
    head = ["input", "value", "points", *metrics]
    console.print(canvas.plain_table(head, rows, left=(0, 1), fold=range(len(head))))
    for name, share in (grid.get("share_within_10_percent") or {}).items():
        if share is not None:
            canvas.sentence(
                console, f"{name}: {percent(share)} of the combinations lie within 10 % of the reported value."
            )


def _point_value(point: Mapping[str, Any], axis: str) -> Any:
    for holder in (point, point.get("inputs"), point.get("axes")):
        if isinstance(holder, Mapping) and axis in holder:
            return holder[axis]
    return None


def _metrics(points: Sequence[Mapping[str, Any]], axes: Mapping[str, Any]) -> Iterator[str]:
    for point in points:
        for key in _values(point):
            if key not in axes and isinstance(_number(point, key), (int, float)):
                yield key


def _values(point: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = point.get("predicted") or point.get("metrics")
    return inner if isinstance(inner, Mapping) and "nominal" not in inner else point


def _number(point: Mapping[str, Any], metric: str) -> Any:
    value = nominal(_values(point).get(metric))
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _range(values: Sequence[Any], metric: str) -> str:
    numbers = [finite(value) for value in values if value is not None]
    if not numbers:
        return NOTHING
    return interval({"p10": min(numbers), "p90": max(numbers)}, unit_of(metric))
