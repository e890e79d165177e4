"""The tables of docs/accuracy.md as Markdown: ``python -m hyscale_model.checks.tables``, and with ``layers`` those of
whole layers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hyscale_model.checks.check import check
from hyscale_model.checks.layers import GROUP as LAYERS
from hyscale_model.checks.layers import MEMORY, PART, TIME

GIB = 2.0**30
# A metric is shown in the first unit whose beginning or end it has.
_UNITS = (
    ("bus_bytes_per_s", 1e9, " GB/s"),
    ("memory.", GIB, " GiB"),
    ("step_time_s", 1.0, " s"),
    ("model_flops_utilization", 0.01, " %"),
)


_INSIDE = {True: "yes", False: "**no**", None: ""}


def summary_table(summaries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One line a part of each group."""
    yield "| group | rows | families | mean error | bias | inside 80 % | worst |"
    yield "|---|---|---|---|---|---|---|"
    for group, summary in summaries.items():
        for part, entry in {"all": summary, **summary["parts"]}.items():
            yield (
                f"| {group}, {part} | {entry['n']} | {entry['families']} | {_percent(entry['mape'], '.1f')} | "
                f"{_percent(entry['bias'], '+.1f')} | {_percent(entry['coverage'], '.0f')} | {_worst(entry['worst'])} |"
            )


def row_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line a row."""
    yield "| | split | reported | predicted | 10 to 90 % | error | inside |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        scale, unit = _unit(row["metric"])
        low, middle, high = (row["predicted"][key] / scale for key in ("p10", "nominal", "p90"))
        bound = "at most " if row["relation"] == "at_most" else ""
        error = _percent(row["error"], "+.1f") if row["relation"] == "equal" else ""
        yield (
            f"| {row['id']} | {row['split'].replace('_', ' ')} | {bound}{row['reported'] / scale:.4g}{unit} | "
            f"{middle:.4g}{unit} | {low:.4g} to {high:.4g}{unit} | {error} | {_INSIDE[row['inside']]} |"
        )


def _unit(metric: str) -> tuple[float, str]:
    return next(((scale, unit) for mark, scale, unit in _UNITS if mark in metric), (1.0, ""))


def _percent(value: float | None, form: str) -> str:
    return "" if value is None else f"{100 * value:{form}} %"


def _worst(worst: Mapping[str, Any] | None) -> str:
    return "" if worst is None else f"{worst['id']} {_percent(worst['error'], '+.1f')}"


def tables() -> str:
    """Summary and rows of the published runs and collectives."""
    groups = ("memory", "runs", "collectives")
    data = check(groups)
    lines = [*summary_table(data["summary"])]
    for group in groups:
        lines += ["", f"### {group}", "", *row_table([row for row in data["rows"] if row["group"] == group])]
    return "\n".join(lines)


def layer_tables() -> str:
    """Measured layers of one GPU, their bars, and their parts."""
    data = check((LAYERS,))
    rows = {split: [row for row in data["rows"] if row["split"] == split] for split in (TIME, MEMORY, PART)}
    bars = data["summary"][LAYERS]["bars"][:3]
    families = data["summary"][LAYERS]["by_family"]
    parts = dict.fromkeys(row["family"] for row in rows[PART])
    return "\n".join(
        [
            *_layer_table(rows[TIME], rows[MEMORY]),
            "",
            "| bar | reached | met |",
            "|---|---|---|",
            *(f"| {bar['id']} | {100 * bar['value']:.1f} % | {_INSIDE[bar['passed']]} |" for bar in bars),
            "",
            "| part | rows | median error | bias | worst |",
            "|---|---|---|---|---|",
            *(_part_line(family.partition(": ")[2], families[family]) for family in parts),
        ]
    )


def _layer_table(times: Sequence[Mapping[str, Any]], memories: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = ("measured", "predicted", "10 to 90 %", "error", "inside", "memory", "predicted", "error")
    yield f"| layer, tokens / ranks, system | {' | '.join(columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for time, memory in zip(times, memories, strict=True):
        low, middle, high = (1e3 * time["predicted"][key] for key in ("p10", "nominal", "p90"))
        held, expected = memory["reported"] / GIB, memory["predicted"]["nominal"] / GIB
        yield (
            f"| {time['id']} | {1e3 * time['reported']:.1f} ms | {middle:.1f} ms | {low:.1f} to {high:.1f} ms | "
            f"{_percent(time['error'], '+.1f')} | {_INSIDE[time['inside']]} | {held:.2f} GiB | {expected:.2f} GiB | "
            f"{_percent(memory['error'], '+.1f')} |"
        )


def _part_line(name: str, summary: Mapping[str, Any]) -> str:
    median, bias = _percent(summary["median"], ".1f"), _percent(summary["bias"], "+.1f")
    return f"| {name} | {summary['n']} | {median} | {bias} | {_percent(summary['worst']['error'], '+.1f')} |"


if __name__ == "__main__":
    print(layer_tables() if sys.argv[1:] == [LAYERS] else tables())
