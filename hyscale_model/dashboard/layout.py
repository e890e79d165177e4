"""The frame of a page: header, controls, navigation, message, view.

Few parts are Dash's own: each of those costs time at every change. What stands in a part with an id is HTML that
``assets/dashboard.js`` puts there.
"""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from hyscale_model.views import VIEWS, Card

# No toolbar: its buttons overlap the figure; downloads have buttons of their own.
_CONFIG: Any = {"displayModeBar": False, "responsive": True, "doubleClick": "reset"}


def frame() -> Component:
    """The page before it asked anything."""
    return html.Div(
        [
            *_stores(),
            html.A("Skip to the figures", href="#view", className="skip"),
            html.Header(
                [
                    html.Div([html.H1("HyScale model"), html.Div(id="headline", className="headline")]),
                    html.Div(_buttons(), className="buttons"),
                ]
            ),
            html.Div(
                [
                    html.Aside(
                        [html.Div(id="scenarios", className="group first"), html.Div(id="sidebar")],
                        id="controls",
                        **attributes(aria_label="Controls"),
                    ),
                    html.Main(
                        [
                            html.Nav(_tabs(), **attributes(aria_label="Views")),
                            html.Div(id="changes", className="changes"),
                            html.Div(id="view", className="view", tabIndex="-1"),
                            html.Div(id="notes"),
                        ],
                        id="main",
                    ),
                ],
                className="columns",
            ),
            html.Div(id="message", **attributes(aria_live="assertive")),
        ],
        id="page",
    )


def attributes(**named: str) -> dict[str, Any]:
    """Attributes of an element whose names have dashes."""
    return {name.replace("_", "-"): value for name, value in named.items()}


def _stores() -> list[Component]:
    return [
        dcc.Location(id="url", refresh=False),
        # What the page asks and shows; it is its address in another form.
        dcc.Store(id="state"),
        # What the controls are made from: set when they must be made anew.
        dcc.Store(id="frame"),
        # What the server says: cards with their figures and texts, controls, what is wrong with an upload.
        dcc.Store(id="answer"),
        dcc.Store(id="controls-text"),
        dcc.Store(id="message-text"),
        # Scenarios that stay in the browser, and one that was just chosen there.
        dcc.Store(id="uploads", storage_type="session"),
        dcc.Store(id="upload"),
        dcc.Store(id="uploaded"),
        dcc.Store(id="theme"),
        # Studies that the page waits for, and how far they are.
        dcc.Store(id="waiting"),
        dcc.Store(id="progress"),
        dcc.Store(id="yaml-wanted"),
        dcc.Download(id="yaml"),
    ]


def _buttons() -> list[Component]:
    opener = attributes(aria_expanded="false", data_act="controls")
    return [
        html.Button("Controls", className="only-narrow", **opener),
        html.Button(
            "Pin", id="pin", title="Keep this prediction and compare the next ones", **attributes(data_act="pin")
        ),
        html.Button("Reset", title="Undo every change to the scenario", **attributes(data_act="reset")),
        html.Button("YAML", title="Download this scenario as YAML", **attributes(data_act="yaml")),
        html.Button("Theme", title="Switch between light and dark", **attributes(data_act="theme")),
    ]


def _tabs() -> list[Component]:
    return [html.Button(view.title, **attributes(data_view=name)) for name, view in VIEWS.items()]


def built(card: Card) -> Component:
    """A card whose texts and figure are still to come."""
    parts: list[Component] = [html.Div(id=f"head-{card.name}")]
    if card.choices:
        parts.append(html.Div(id=f"choices-{card.name}", className="choices"))
    if card.figure is not None:
        height = {"height": f"{card.height}px"}
        identity = {"kind": "graph", "name": card.name}
        graph = dcc.Graph(id=identity, config=_CONFIG, style=height)
        parts.append(html.Div(graph, id=f"figure-{card.name}", className="figure", style=height))
    parts.append(html.Div(id=f"body-{card.name}"))
    return html.Section(parts, className=card.classes, **attributes(aria_labelledby=f"title-{card.name}"))
