"""Network: which links the collectives of a step load, what computation waits for and what it hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.report.canvas import noun
from hyscale_model.report.markup import Markup
from hyscale_model.report.network import collective_label
from hyscale_model.report.units import NOTHING, percent, seconds, significant
from hyscale_model.traffic import traffic
from hyscale_model.views.cards import Card, Choice, sentences, table, told
from hyscale_model.views.page import Page

ALL = "all"
# What it is drawn for unless the reader wants another group.
USUAL = "cp"


def build(page: Page) -> list[Card]:
    """The links of one node that stands for all, the groups, and every collective."""
    systems = page.data["systems"]
    system = page.option("system", systems)
    found = traffic(page.resolved, system)
    if not found["groups"]:
        about = f"Nothing crosses a link in a {noun(page.data)} of {system}: every group is a single GPU."
        return [Card(name="nothing", title="Network", about=about, wide=True)]
    offered = {ALL: "all"} | {name: name.upper() for name in found["groups"]}
    group = page.options.get("network-group", USUAL)
    group = group if group in offered else ALL
    shown = None if group == ALL else group
    what = "all groups" if shown is None else f"the {group.upper()} group"
    return [
        Card(
            name="network",
            title="What crosses which link",
            about=f"One of {found['nodes']} nodes, which all carry the same, in a {noun(page.data)} of {system}, stage "
            f"{found['stage']}, {what}: the wider the more bytes, the stronger the colour the longer busy.",
            choices=(
                Choice("system", "System", {name: name for name in systems}, system, clears="network-group"),
                Choice("network-group", "Group", offered, group),
            ),
            figure=figures.network(found, page.theme, shown),
            content=(sentences(_bottlenecks(found, shown)),),
            wide=True,
        ),
        Card(
            name="network-groups",
            title="By parallel group",
            about="Time on the wire; exposed is what computation waits for.",
            content=(_groups(found),),
            csv="network-groups",
            wide=True,
        ),
        Card(
            name="collectives",
            title="Every collective",
            about="All its runs together, nominal.",
            content=(_collectives(found, shown),),
            csv="collectives",
            wide=True,
        ),
    ]


def _bottlenecks(found: Mapping[str, Any], group: str | None) -> list[str]:
    """The link that is busy for longest, and what the step sees of it."""
    entry = found if group is None else found["groups"][group]
    link = entry["bottleneck"]
    texts = []
    if link:
        texts.append(
            f"The bottleneck is {link['from']} to {link['to']}: {_gb(link['bytes'])} GB keep it busy for "
            f"{seconds(link['seconds'])}, {percent(link['seconds'] / found['step_time_s'])} of the step."
        )
    groups = found["groups"] if group is None else {group: entry}
    for name, each in groups.items():
        texts.append(
            f"{name.upper()}: {seconds(each['exposed_s'])} exposed, {seconds(each['hidden_s'])} hidden behind "
            "computation."
        )
    return texts


def _groups(found: Mapping[str, Any]) -> Markup:
    rows = []
    for name, entry in found["groups"].items():
        link = entry["bottleneck"]
        rows.append(
            [
                name.upper(),
                f"{link['from']} to {link['to']}" if link else NOTHING,
                str(entry["ranks"]),
                significant(entry["nodes"], 3),
                *(seconds(entry[key]) for key in ("seconds", "exposed_s", "hidden_s")),
                _gb(link["bytes"]) if link else NOTHING,
            ]
        )
    head = ["group", "busiest link", "ranks", "nodes", "on the wire", "exposed", "hidden", "GB on that link"]
    return table("network-groups", head, rows, left=2)


def _collectives(found: Mapping[str, Any], group: str | None) -> Markup:
    rows = [
        [
            told(collective_label(row, found["collectives"]), f"{row['kind']} of group {row['group'].upper()}"),
            row["group"].upper(),
            significant(row["runs"], 3),
            significant(row["payload_bytes"] / 1e6, 3),
            *(seconds(row[key]) for key in ("seconds", "exposed_s", "hidden_s")),
            row["bottleneck"] or NOTHING,
        ]
        for row in found["collectives"]
        if group in (None, row["group"])
    ]
    head = ["collective", "group", "runs", "MB each", "on the wire", "exposed", "hidden", "binds"]
    return table("collectives", head, rows, left=2)


def _gb(size: float) -> str:
    return significant(size / 1e9, 3)
