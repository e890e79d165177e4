"""The frame of a page: header, controls, navigation, message, view."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from hyscale_model.dashboard.components import attributes
from hyscale_model.dashboard.views import VIEWS
from hyscale_model.scenario.load import LIMIT_BYTES


def frame(names: tuple[str, ...]) -> Component:
    """The page before it asked anything.

    Args:
        names: of the offered scenarios.
    """
    return html.Div(
        [
            *_stores(),
            html.A("Skip to the figures", href="#view", className="skip"),
            html.Header(
                [
                    html.Div([html.H1("HyScale model"), html.Div(id="headline", className="headline")]),
                    html.Div(
                        [
                            _opener(),
                            html.Button("Pin", id="pin", title="Keep this prediction to compare the next ones with"),
                            html.Button("Reset", id="reset", title="Undo every change to the scenario"),
                            html.Button("YAML", id="download", title="Download this scenario as YAML"),
                            html.Button("Light or dark", id="theme-button", title="Switch between light and dark"),
                        ],
                        className="buttons",
                    ),
                ]
            ),
            html.Div(
                [
                    html.Aside(
                        [_scenario(names), html.Div(id="sidebar")], id="controls", **attributes(aria_label="Controls")
                    ),
                    html.Main(
                        [
                            _navigation(),
                            html.Div(id="message", className="messages"),
                            html.Div(id="changes", className="changes"),
                            html.Div(id="view", className="view", tabIndex="-1"),
                        ],
                        id="main",
                    ),
                ],
                className="columns",
            ),
        ],
        id="page",
    )


def _stores() -> list[Component]:
    return [
        dcc.Location(id="url", refresh=False),
        # What the page asks and shows; it is its address in another form.
        dcc.Store(id="state"),
        # What the controls are made from: set when they must be made anew.
        dcc.Store(id="frame"),
        # What the controls say without changes.
        dcc.Store(id="base"),
        dcc.Store(id="uploads", storage_type="session"),
        dcc.Store(id="uploaded"),
        dcc.Store(id="theme"),
        dcc.Download(id="yaml"),
    ]


def _scenario(names: tuple[str, ...]) -> Component:
    return html.Div(
        [
            html.Label(
                [
                    html.Span("Scenario"),
                    dcc.Dropdown(id="scenario", options=list(names), clearable=False, optionHeight="auto"),
                ]
            ),
            dcc.Upload(
                html.Button("Upload a scenario (YAML)", className="wide"),
                id="upload",
                multiple=False,
                max_size=LIMIT_BYTES,
            ),
        ],
        className="group first",
    )


def _controls(names: tuple[str, ...]) -> Component:
    content = [_scenario(names), html.Div(id="sidebar")]
    return html.Aside(content, id="controls", **attributes(aria_label="Controls"))


def _opener() -> Component:
    return html.Button("Controls", id="open-controls", className="only-narrow", **attributes(aria_expanded="false"))


def _navigation() -> Component:
    tabs = [html.Button(view.title, id={"kind": "view", "name": name}) for name, view in VIEWS.items()]
    return html.Nav(tabs, **attributes(aria_label="Views"))
