"""The communication graph: links of one node that stands for all, as wide as their bytes, coloured by their load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx

from hyscale_model.figures import hover
from hyscale_model.figures.palette import FAMILIES
from hyscale_model.figures.style import Figure, Theme, figure
from hyscale_model.report.units import finite, gb_per_s, percent, seconds, significant

HEIGHT = 350
# Below the graph, for the scale of the colours.
_BELOW = 64
# Pixels of the widest link and of the narrowest that is drawn.
WIDEST, NARROWEST = 14.0, 1.0
_LAYERS = {"host": 0, "nvlink": 1, "adapter": 3}
_GPUS = 2
_KINDS = {"nvlink": "NVLink", "adapter": "network adapter", "host": "PCIe or NVLink-C2C"}


def network(data: Mapping[str, Any], theme: Theme, group: str | None = None) -> Figure:
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
        traces += [_loads(data, links, places, highest, colours, theme), _ends(places, theme)]
    hidden = {"visible": False, "fixedrange": True}
    return figure(
        traces,
        theme,
        height=HEIGHT,
        x_title=None,
        xaxis=hidden,
        yaxis=hidden,
        margin={"l": 64, "t": 20, "b": _BELOW},
        annotations=_rows(places, theme),
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
    data: Mapping[str, Any],
    links: Sequence[Mapping[str, Any]],
    places: Mapping[str, Sequence[float]],
    highest: float,
    colours: tuple[str, str],
    theme: Theme,
) -> dict[str, Any]:
    """A mark in the middle of each link, larger on the busiest: what to hover over, and the scale of the colours."""
    middle = [[(a + b) / 2 for a, b in zip(places[link["from"]], places[link["to"]], strict=True)] for link in links]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [float(place[0]) for place in middle],
        "y": [float(place[1]) for place in middle],
        "marker": {
            # Marks of several sizes would be half transparent.
            "opacity": 1.0,
            "size": [15 if link["load"] == highest else 9 for link in links],
            "color": [100 * link["load"] for link in links],
            "cmin": 0,
            "cmax": 100 * highest or 1,
            "colorscale": [[0, colours[0]], [1, colours[1]]],
            "line": {
                "width": [2 if link["load"] == highest else 1 for link in links],
                "color": [theme.ink if link["load"] == highest else theme.muted for link in links],
            },
            "colorbar": {
                "title": {"text": "busy, % of the step", "side": "bottom", "font": {"size": 12, "color": theme.muted}},
                "orientation": "h",
                "x": 0.5,
                "len": 0.6,
                "y": -0.03,
                "yanchor": "top",
                "ypad": 0,
                "thickness": 8,
                "outlinewidth": 0,
                "tickfont": {"size": 11},
                "nticks": 5,
            },
        },
        "customdata": [_told(link, data["groups"], link["load"] == highest) for link in links],
        "hovertemplate": hover.TEMPLATE,
        "showlegend": False,
    }


def _told(link: Mapping[str, Any], groups: Mapping[str, Any], busiest: bool) -> str:
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
            *(
                f"{name.upper()}: {seconds(groups[name]['exposed_s'])} exposed, "
                f"{seconds(groups[name]['hidden_s'])} hidden"
                for name in link["groups"]
            ),
            "the bottleneck" if busiest else "",
        ),
    )


def _ends(places: Mapping[str, Sequence[float]], theme: Theme) -> dict[str, Any]:
    """What links join, each with its number in it."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [float(place[0]) for place in places.values()],
        "y": [float(place[1]) for place in places.values()],
        "text": [name.rpartition(" ")[2] if name[-1].isdecimal() else "" for name in places],
        "textfont": {"size": 11, "color": theme.ink},
        "marker": {"size": 21, "color": theme.surface, "symbol": "square", "line": {"width": 1.5, "color": theme.ink}},
        "hovertext": list(places),
        "hoverinfo": "text",
        "showlegend": False,
        "cliponaxis": False,
    }


def _rows(places: Mapping[str, Sequence[float]], theme: Theme) -> list[dict[str, Any]]:
    """What stands in each row, on its left."""
    rows: dict[float, list[str]] = {}
    for name, place in places.items():
        rows.setdefault(float(place[1]), []).append(name)
    return [
        {
            "xref": "paper",
            "x": 0,
            "xanchor": "right",
            "y": height,
            "text": f"{names[0].rpartition(' ')[0]}s" if names[0][-1].isdecimal() else names[0],
            "showarrow": False,
            "font": {"size": 12, "color": theme.muted},
        }
        for height, names in rows.items()
    ]


def blended(low: str, high: str, share: float) -> str:
    """The colour at ``share`` of the way from one to another, each as #RRGGBB."""
    ends = [[int(colour[start : start + 2], 16) for start in (1, 3, 5)] for colour in (low, high)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(*ends, strict=True))
