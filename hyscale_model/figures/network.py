"""The communication graph: links of one node that stands for all, as wide as their bytes, coloured by their load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import plotly.graph_objects as go

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES
from hyscale_model.figures.style import Theme, figure
from hyscale_model.report.units import finite, gb_per_s, percent, seconds, significant

HEIGHT = 340
# Pixels of the widest link and of the narrowest that is drawn.
WIDEST, NARROWEST = 14.0, 1.0
_LAYERS = {"host": 0, "nvlink": 1, "adapter": 3}
_GPUS = 2
_KINDS = {"nvlink": "NVLink", "adapter": "network adapter", "host": "PCIe or NVLink-C2C"}


def network(data: Mapping[str, Any], theme: Theme, group: str | None = None) -> go.Figure:
    """Links of a node in one step.

    Args:
        data: of one system, as ``traffic`` gives it.
        theme: the look.
        group: only what this parallel group sends; None: all.
    """
    links = _links(data, group)
    places = _places(links)
    most = max((link["bytes"] for link in links), default=1.0)
    highest = max((link["load"] for link in links), default=0.0)
    colours = (theme.grid, FAMILIES["communication"][0])
    traces = [_line(link, places, most, highest, colours) for link in links]
    if links:
        traces += [_loads(links, places, highest, colours, theme), *_names(places, theme)]
    what = "all groups" if group is None else f"group {group.upper()}"
    title = f"bytes (width) and load (colour) of the links of one of {data['nodes']} nodes in a step, {what}"
    hidden = {"visible": False, "fixedrange": True}
    return figure(
        traces,
        theme,
        height=HEIGHT,
        x_title=None,
        xaxis=hidden,
        yaxis=hidden,
        margin={"t": 34},
        title=_title(title, theme),
    )


def _places(links: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[float]]:
    """Host, NVSwitch, GPUs and rails in rows, the ends of a link in the same column where they have one."""
    graph = nx.Graph((link["from"], link["to"]) for link in links)
    ends = {link["from"]: _GPUS for link in links} | {link["to"]: _LAYERS[link["kind"]] for link in links}
    layers: dict[int, list[str]] = {}
    for name in sorted(ends, key=_number):
        layers.setdefault(ends[name], []).append(name)
    found: dict[str, Sequence[float]] = nx.multipartite_layout(graph, subset_key=layers, align="horizontal")
    return found


def _number(name: str) -> int:
    number = name.rpartition(" ")[2]
    return int(number) if number.isdecimal() else 0


def _title(text: str, theme: Theme) -> dict[str, Any]:
    return {"text": text, "font": {"size": 12, "color": theme.muted}, "x": 0.01, "y": 0.98}


def _links(data: Mapping[str, Any], group: str | None) -> list[dict[str, Any]]:
    """Links from each GPU, with the fuller of both directions."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for link in data["links"]:
        mine = {"bytes": link["bytes"], "seconds": link["seconds"]} if group is None else link["groups"].get(group)
        if not mine:
            continue
        ends = sorted((link["from"], link["to"]), key=lambda name: not name.startswith("GPU"))
        row = {
            "from": ends[0],
            "to": ends[1],
            "kind": link["kind"],
            "bytes_per_s": link["bytes_per_s"],
            **mine,
            "load": finite(mine["seconds"]) / finite(data["step_time_s"]),
            "groups": link["groups"] if group is None else {group: mine},
        }
        known = found.get((ends[0], ends[1]))
        if known is None or row["bytes"] > known["bytes"]:
            found[ends[0], ends[1]] = row
    return list(found.values())


def _line(
    link: Mapping[str, Any],
    places: Mapping[str, Sequence[float]],
    most: float,
    highest: float,
    colours: tuple[str, str],
) -> dict[str, Any]:
    ends = [places[link["from"]], places[link["to"]]]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [float(place[0]) for place in ends],
        "y": [float(place[1]) for place in ends],
        "line": {
            "width": max(WIDEST * link["bytes"] / most, NARROWEST),
            "color": blended(*colours, link["load"] / highest if highest else 0.0),
        },
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _loads(
    links: Sequence[Mapping[str, Any]],
    places: Mapping[str, Sequence[float]],
    highest: float,
    colours: tuple[str, str],
    theme: Theme,
) -> dict[str, Any]:
    """A mark in the middle of each link: what to hover over, and the scale of the colours."""
    middle = [[(a + b) / 2 for a, b in zip(places[link["from"]], places[link["to"]], strict=True)] for link in links]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [float(place[0]) for place in middle],
        "y": [float(place[1]) for place in middle],
        "marker": {
            "size": 9,
            "color": [100 * link["load"] for link in links],
            "cmin": 0,
            "cmax": 100 * highest or 1,
            "colorscale": [[0, colours[0]], [1, colours[1]]],
            "line": {"width": 1, "color": theme.muted},
            "colorbar": {
                "title": {"text": "busy, % of the step", "side": "right", "font": {"size": 11}},
                "thickness": 10,
                "outlinewidth": 0,
            },
        },
        "customdata": [_told(link) for link in links],
        "hovertemplate": hover.TEMPLATE,
        "showlegend": False,
    }


def _told(link: Mapping[str, Any]) -> str:
    shares = ", ".join(
        f"{group.upper()} {significant(mine['bytes'] / 1e9, 3)} GB" for group, mine in link["groups"].items()
    )
    return hover.number(
        f"{link['from']} to {link['to']}",
        link["bytes"],
        lambda size: f"{significant(size / 1e9)} GB a step in the fuller direction",
        origin="computed from shapes; nominal",
        notes=(
            f"{_KINDS[link['kind']]}, {gb_per_s(link['bytes_per_s'])}",
            f"busy for {seconds(link['seconds'])}, {percent(link['load'])} of the step",
            shares,
        ),
    )


def _names(places: Mapping[str, Sequence[float]], theme: Theme) -> list[dict[str, Any]]:
    heights = sorted({float(place[1]) for place in places.values()})
    rows = [[name for name, place in places.items() if float(place[1]) == height] for height in heights]
    return [
        {
            "type": "scatter",
            "mode": "markers+text",
            "x": [float(places[name][0]) for name in row],
            "y": [float(places[name][1]) for name in row],
            "text": row if len(row) <= 16 else ["" for _ in row],
            "textposition": "top center" if row is rows[-1] else "bottom center",
            "textfont": {"size": 11, "color": theme.ink},
            "marker": {
                "size": 14,
                "color": theme.surface,
                "symbol": "square",
                "line": {"width": 1.5, "color": theme.ink},
            },
            "hovertext": row,
            "hoverinfo": "text",
            "showlegend": False,
            "cliponaxis": False,
        }
        for row in rows
    ]


def blended(low: str, high: str, share: float) -> str:
    """The colour at ``share`` of the way from one to another, each as #RRGGBB."""
    ends = [[int(colour[start : start + 2], 16) for start in (1, 3, 5)] for colour in (low, high)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(*ends, strict=True))
