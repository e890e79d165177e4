"""The communication graph of each system on the terminal: collectives, groups, and the busiest links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.units import percent, seconds, significant


def _gb(size: float) -> str:
    return significant(size / 1e9, 3)


def render_network(data: Mapping[str, Any], console: Console, group: str | None = None) -> None:
    """Every system of ``hyscale network``, of one parallel group alone if told."""
    for found in data["systems"].values():
        _system(found if group is None else _alone(found, group), console)


def _alone(found: Mapping[str, Any], group: str) -> dict[str, Any]:
    """What one group sends."""
    step_s = found["step_time_s"]
    links = [{**link, **link["groups"][group]} for link in found["links"] if group in link["groups"]]
    return {
        **found,
        "collectives": [row for row in found["collectives"] if row["group"] == group],
        "groups": {name: entry for name, entry in found["groups"].items() if name == group},
        "links": [{**link, "load": link["seconds"] / step_s} for link in links],
    }


def _system(found: Mapping[str, Any], console: Console) -> None:
    canvas.heading(console, f"{found['system']}: communication of a step on stage {found['stage']}")
    if not found["collectives"]:
        canvas.sentence(console, "A single GPU sends nothing.")
        return
    head = ["collective", "runs", "MB each", "on the wire", "exposed", "hidden"]
    rows = [
        [
            collective_label(row, found["collectives"]),
            significant(row["runs"], 3),
            significant(row["payload_bytes"] / 1e6, 3),
            *(seconds(row[name]) for name in ("seconds", "exposed_s", "hidden_s")),
        ]
        for row in found["collectives"]
    ]
    console.print(canvas.plain_table(head, rows, fold=(0,)))
    canvas.heading(console, "By group")
    head = ["group", "ranks", "nodes", "on the wire", "exposed", "hidden", "busiest link", "GB on it"]
    rows = [
        [
            name,
            str(entry["ranks"]),
            significant(entry["nodes"], 3),
            *(seconds(entry[key]) for key in ("seconds", "exposed_s", "hidden_s")),
            _link(entry["bottleneck"]),
            _gb(entry["bottleneck"]["bytes"]) if entry["bottleneck"] else "",
        ]
        for name, entry in found["groups"].items()
    ]
    console.print(canvas.plain_table(head, rows, left=(0, 6)))
    canvas.heading(console, "Busiest link of each kind, of one node that stands for all")
    head = ["link", "kind", "GB", "busy for", "of the step"]
    busiest: dict[str, Mapping[str, Any]] = {}
    for link in found["links"]:
        if link["kind"] not in busiest or link["seconds"] > busiest[link["kind"]]["seconds"]:
            busiest[link["kind"]] = link
    rows = [
        [_link(link), link["kind"], _gb(link["bytes"]), seconds(link["seconds"]), percent(link["load"])]
        for link in sorted(busiest.values(), key=lambda link: -link["seconds"])
    ]
    console.print(canvas.plain_table(head, rows, left=(0, 1)))


def collective_label(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Name and phase, and the block where several have a collective of that name."""
    if row["block"] == row["phase"]:
        return f"{row['name']}: {row['kind']} ({row['group']})"
    blocks = {other["block"] for other in rows if other["name"] == row["name"]}
    where = f" of {row['block']}" if len(blocks) > 1 else ""
    return f"{row['name']}{where}, {row['phase']}"


def _link(link: Mapping[str, Any] | None) -> str:
    return f"{link['from']} - {link['to']}" if link else ""
