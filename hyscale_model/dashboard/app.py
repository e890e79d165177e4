"""The Dash application: which part of a page follows from which."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from hyscale_model.dashboard import sidebar
from hyscale_model.dashboard.answer import Answer, answer, resolve, scenario_text
from hyscale_model.dashboard.components import message
from hyscale_model.dashboard.layout import frame
from hyscale_model.dashboard.offer import Offer, received, shown_name
from hyscale_model.dashboard.question import Question
from hyscale_model.dashboard.views import FIRST, VIEWS, Page
from hyscale_model.errors import InputError
from hyscale_model.figures import LIGHT, THEMES

LOG = logging.getLogger(__name__)
ASSETS = Path(__file__).parent / "assets"
# A page sends at most two uploads along, each escaped as JSON.
LIMIT_REQUEST_BYTES = 8 << 20


def create_app(scenarios: Path | None = None) -> Dash:
    """The application.

    Args:
        scenarios: a folder of scenario files to offer; without it those of the catalogue.
    """
    offer = Offer(scenarios)
    app = Dash(
        __name__,
        title="HyScale model",
        update_title="",
        assets_folder=str(ASSETS),
        serve_locally=True,
        suppress_callback_exceptions=True,
    )
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    app.server.config["MAX_CONTENT_LENGTH"] = LIMIT_REQUEST_BYTES
    app.layout = frame(offer.names)
    _in_the_browser(app)
    _on_the_server(app, offer)
    return app


def _in_the_browser(app: Dash) -> None:
    """State, address and navigation, which need no server."""

    def function(name: str) -> ClientsideFunction:
        return ClientsideFunction("hyscale", name)

    app.clientside_callback(
        function("decide"),
        Output("state", "data"),
        Output("url", "search"),
        Output("frame", "data"),
        Output("scenario", "value"),
        Output("scenario", "options"),
        Input("url", "search"),
        Input("scenario", "value"),
        Input("uploaded", "data"),
        Input("uploads", "data"),
        Input({"kind": "control", "path": ALL}, "value"),
        Input({"kind": "range", "path": ALL}, "value"),
        Input({"kind": "systems", "path": ALL}, "value"),
        Input({"kind": "option", "name": ALL}, "value"),
        Input({"kind": "pick", "name": ALL}, "clickData"),
        Input({"kind": "view", "name": ALL}, "n_clicks"),
        Input({"kind": "undo", "path": ALL}, "n_clicks"),
        Input("pin", "n_clicks"),
        Input("reset", "n_clicks"),
        State({"kind": "control", "path": ALL}, "id"),
        State({"kind": "range", "path": ALL}, "id"),
        State({"kind": "option", "name": ALL}, "id"),
        State("state", "data"),
        State("base", "data"),
        State("scenario", "options"),
    )
    app.clientside_callback(
        function("scale"),
        Output({"kind": "control", "path": MATCH}, "value"),
        Input({"kind": "halve", "path": MATCH}, "n_clicks"),
        Input({"kind": "double", "path": MATCH}, "n_clicks"),
        State({"kind": "control", "path": MATCH}, "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        function("show_place"),
        Output({"kind": "view", "name": ALL}, "className"),
        Output("changes", "children"),
        Output("pin", "children"),
        Input("state", "data"),
        State({"kind": "view", "name": ALL}, "id"),
    )
    app.clientside_callback(
        function("theme"), Output("theme", "data"), Input("theme-button", "n_clicks"), State("theme", "data")
    )


def _on_the_server(app: Dash, offer: Offer) -> None:
    """Controls, figures, uploads and downloads."""

    @app.callback(
        Output("sidebar", "children"),
        Output("base", "data"),
        Input("frame", "data"),
        State("uploads", "data"),
        prevent_initial_call=True,
    )
    def make_controls(state: Any, uploads: Any) -> tuple[Any, Any]:
        return _controls(state, uploads or {}, offer)

    @app.callback(
        Output("view", "children"),
        Output("headline", "children"),
        Output("message", "children"),
        Output("main", "className"),
        Input("state", "data"),
        Input("theme", "data"),
        Input("uploads", "data"),
        prevent_initial_call=True,
    )
    def show(state: Any, theme: Any, uploads: Any) -> tuple[Any, Any, Any, str]:
        if not state or not theme:
            return no_update, no_update, no_update, ""
        try:
            content, headline, notes = _view(state, str(theme), uploads or {}, offer)
        except InputError as error:
            return no_update, no_update, message("error", f"error: {error}"), "stale"
        except Exception as error:
            LOG.exception("a view failed for %s", state)
            text = f"internal error: {type(error).__name__}. This is a defect of hyscale; the server's log tells more."
            return no_update, no_update, message("error", text), "stale"
        return content, headline, notes, ""

    @app.callback(
        Output("uploads", "data"),
        Output("uploaded", "data"),
        Output("message", "children", allow_duplicate=True),
        Input("upload", "contents"),
        State("upload", "filename"),
        State("uploads", "data"),
        State("state", "data"),
        prevent_initial_call=True,
    )
    def take(contents: Any, filename: Any, uploads: Any, state: Any) -> tuple[Any, Any, Any]:
        if not contents:
            return no_update, no_update, no_update
        try:
            key, kept = received(str(contents), str(filename))
            # Only what can be asked about is kept.
            answer(Question(f"upload:{key}"), offer, {key: kept})
        except InputError as error:
            return no_update, no_update, message("error", f"error: {error}")
        except Exception as error:
            LOG.exception("the upload %s failed", shown_name(str(filename)))
            return no_update, no_update, message("error", f"internal error: {type(error).__name__}")
        return {**_in_use(state, uploads or {}), key: kept}, {"key": key, "name": kept["name"]}, None

    @app.callback(
        Output("yaml", "data"),
        Input("download", "n_clicks"),
        State("state", "data"),
        State("uploads", "data"),
        prevent_initial_call=True,
    )
    def download(_: Any, state: Any, uploads: Any) -> Any:
        try:
            question = Question.from_page(state)
            text = scenario_text(question, offer.source(question.scenario, uploads or {}))
        except InputError:
            # The message of the same error is on the page already.
            return no_update
        return dcc.send_string(text, "scenario.yaml")


def _in_use(state: Any, uploads: Mapping[str, Any]) -> dict[str, Any]:
    """The uploads that the page or its pinned prediction still speaks of."""
    state = state or {}
    wanted = {str(part.get("scenario", "")) for part in (state, state.get("pinned") or {})}
    return {key: kept for key, kept in uploads.items() if f"upload:{key}" in wanted}


def _controls(state: Any, uploads: Mapping[str, Any], offer: Offer) -> tuple[Any, Any]:
    try:
        question = Question.from_page(state)
        source = offer.source(question.scenario, uploads)
        try:
            resolved = resolve(question.structure, source)
        except InputError:
            # A name that does not go with the rest: the controls stay those of the scenario, the view says why.
            resolved = resolve(Question(question.scenario), source)
    except InputError:
        return no_update, no_update
    return sidebar.build(resolved, dict(question.changes), {path: ",".join(each) for path, each in question.ranges})


def _view(state: Any, theme: str, uploads: Mapping[str, Any], offer: Offer) -> tuple[list[Component], Any, Any]:
    now = answer(Question.from_page(state), offer, uploads)
    before, notes = None, [message("note", text) for text in (*now.resolved.notes, *now.data["warnings"])]
    if state.get("pinned"):
        try:
            before = answer(Question.from_page(state["pinned"]), offer, uploads)
        except InputError as error:
            notes.append(message("error", f"the pinned prediction: {error}"))
    name = state.get("view")
    options = {str(key): str(value) for key, value in (state.get("options") or {}).items()}
    page = Page(now, before, THEMES.get(theme, LIGHT), options)
    content = VIEWS[name if name in VIEWS else FIRST].build(page)
    return content, _headline(now), notes


def _headline(found: Answer) -> Component:
    scenario = found.resolved.scenario
    cluster, workload = scenario.cluster, scenario.workload
    facts = (
        f"{scenario.model.name}, {cluster.nodes * cluster.gpus_per_node:,} x {cluster.gpu.name}",
        f"{workload.sequence_length:,} tokens a sequence",
        f"{workload.global_batch_size:,} sequences a step",
        f"profile {scenario.profile}",
        f"{found.data['draws']} draws, seed {found.data['seed']}",
    )
    return html.Div([html.Strong(scenario.name), html.Span(", ".join(facts))])
