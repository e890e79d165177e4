"""The Dash application: which part of a page follows from which."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, no_update

from hyscale_model.dashboard import sidebar
from hyscale_model.dashboard.answer import answer, resolve, scenario_text
from hyscale_model.dashboard.jobs import Jobs
from hyscale_model.dashboard.layout import built, frame
from hyscale_model.dashboard.offer import Offer, received, shown_name
from hyscale_model.dashboard.profiles import KIND as PROFILE
from hyscale_model.dashboard.profiles import KnownProfiles, of_text
from hyscale_model.dashboard.question import Question
from hyscale_model.errors import InputError
from hyscale_model.figures import LIGHT, THEMES
from hyscale_model.report.markup import Markup, element, joined
from hyscale_model.scenario import Resolved
from hyscale_model.views import FIRST, VIEWS, Card, Page
from hyscale_model.views.cards import sentences

LOG = logging.getLogger(__name__)
ASSETS = Path(__file__).parent / "assets"
# A page sends at most two uploads along, each escaped as JSON.
LIMIT_REQUEST_BYTES = 8 << 20
# More than a page has cards.
MOST_STUDIES = 16


def create_app(scenarios: Path | None = None) -> Dash:
    """The application.

    Args:
        scenarios: a folder of scenario files to offer; without it those of the catalogue.
    """
    offer, jobs = Offer(scenarios), Jobs()
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
    app.layout = frame()
    _in_the_browser(app)
    _figures(app, offer, jobs)
    _studies(app, jobs)
    _controls(app, offer)
    _files(app, offer)
    return app


def _in_the_browser(app: Dash) -> None:
    """What ``assets/dashboard.js`` does when a value arrives."""

    def function(name: str) -> ClientsideFunction:
        return ClientsideFunction("hyscale", name)

    app.clientside_callback(function("restore"), Output("state", "data"), Input("url", "search"))
    app.clientside_callback(function("theme"), Output("theme", "data"), Input("theme", "id"))
    app.clientside_callback(
        function("deliver"),
        Output("view", "children"),
        Output({"kind": "graph", "name": ALL}, "figure"),
        Input("answer", "data"),
        State({"kind": "graph", "name": ALL}, "id"),
        prevent_initial_call=True,
    )
    for name, value in (
        ("fill_controls", Input("controls-text", "data")),
        ("fill_message", Input("message-text", "data")),
        ("take_upload", Input("uploaded", "data")),
        ("show_progress", Input("progress", "data")),
        ("pick", Input({"kind": "graph", "name": ALL}, "clickData")),
    ):
        app.clientside_callback(function(name), value, prevent_initial_call=True)


def _figures(app: Dash, offer: Offer, jobs: Jobs) -> None:
    """The view of a page."""

    @app.callback(
        Output("answer", "data"),
        Input("state", "data"),
        Input("theme", "data"),
        Input("uploads", "data"),
        prevent_initial_call=True,
    )
    def show(state: Any, theme: Any, uploads: Any) -> Any:
        if not state or not theme:
            return no_update
        # What the answer belongs to: answers may overtake one another, and the page takes the one it waits for.
        asked = {"at": state.get("at"), "theme": theme}
        try:
            cards, texts, problem = view(state, str(theme), uploads or {}, offer, jobs)
        except InputError as error:
            return asked | {"problem": told(f"error: {error}")}
        except Exception as error:
            LOG.exception("a view failed for %s", state)
            text = f"internal error: {type(error).__name__}. This is a defect of hyscale; the server's log tells more."
            return asked | {"problem": told(text)}
        return asked | {
            "problem": problem,
            "texts": texts,
            "cards": [built(card) for card in cards],
            "figures": {card.name: card.figure for card in cards if card.figure is not None},
        }


def _studies(app: Dash, jobs: Jobs) -> None:
    """How far the studies are that a page waits for."""

    @app.callback(Output("progress", "data"), Input("waiting", "data"), prevent_initial_call=True)
    def tell(waiting: Any) -> Any:
        asked = waiting if isinstance(waiting, Mapping) else {}
        names = [str(name) for name in list(asked.get("jobs") or ())[:MOST_STUDIES]]
        if asked.get("cancel"):
            for name in names:
                jobs.cancel(name)
        return {name: jobs.progress(name) for name in names}


def _controls(app: Dash, offer: Offer) -> None:
    """The controls of a page."""

    @app.callback(
        Output("controls-text", "data"), Input("frame", "data"), Input("uploads", "data"), prevent_initial_call=True
    )
    def make(state: Any, uploads: Any) -> Any:
        try:
            question = Question.from_page(state, offer.names[0])
            source = offer.source(question.scenario, uploads or {})
            try:
                resolved = resolve(question.structure, source)
            except InputError:
                # A name that does not go with the rest: the controls stay those of the scenario, the view says why.
                resolved = resolve(Question(question.scenario), source)
        except InputError:
            texts = {"scenarios": _offered(offer, uploads or {}, None)}
            return {"at": (state or {}).get("at"), "texts": texts}
        changes, ranges = dict(question.changes), {path: ",".join(each) for path, each in question.ranges}
        texts = {
            "scenarios": _offered(offer, uploads or {}, question.scenario),
            "sidebar": sidebar.build(resolved, changes, ranges),
        }
        return {"at": state.get("at"), "texts": texts}


def _files(app: Dash, offer: Offer) -> None:
    """Scenarios that come and go."""

    @app.callback(
        Output("uploads", "data"),
        Output("uploaded", "data"),
        Output("message-text", "data"),
        Input("upload", "data"),
        State("uploads", "data"),
        State("state", "data"),
        prevent_initial_call=True,
    )
    def take(upload: Any, uploads: Any, state: Any) -> tuple[Any, Any, Any]:
        upload = upload or {}
        name, kind = shown_name(str(upload.get("name"))), str(upload.get("kind") or "")
        try:
            key, kept = received(name, upload.get("content"))
            # Only what can be asked about is kept.
            if kind == PROFILE:
                of_text(kept["text"], name)
                kept["kind"] = PROFILE
            else:
                answer(Question(f"upload:{key}"), offer, {key: kept})
        except InputError as error:
            return no_update, no_update, told(f"error: {error}")
        except Exception as error:
            LOG.exception("the upload %s failed", name)
            return no_update, no_update, told(f"internal error: {type(error).__name__}")
        return {**_in_use(state, uploads or {}), key: kept}, {"key": key, "kind": kind}, ""

    @app.callback(
        Output("yaml", "data"),
        Input("yaml-wanted", "data"),
        State("state", "data"),
        State("uploads", "data"),
        prevent_initial_call=True,
    )
    def download(_: Any, state: Any, uploads: Any) -> Any:
        try:
            question = Question.from_page(state, offer.names[0])
            text = scenario_text(question, offer.source(question.scenario, uploads or {}))
        except InputError:
            # The message of the same error is on the page already.
            return no_update
        return dcc.send_string(text, "scenario.yaml")


def _in_use(state: Any, uploads: Mapping[str, Any]) -> dict[str, Any]:
    """The uploads that the page or its pinned prediction still speaks of."""
    state = state or {}
    wanted = {str(part.get("scenario", "")) for part in (state, state.get("pinned") or {})}
    wanted.add(str((state.get("options") or {}).get(PROFILE, "")))
    return {key: kept for key, kept in uploads.items() if f"upload:{key}" in wanted}


def view(
    state: Any, theme: str, uploads: Mapping[str, Any], offer: Offer, jobs: Jobs | None = None
) -> tuple[list[Card], dict[str, str], str]:
    """The cards of a page, its texts by the id of their element, and what is wrong with what was pinned.

    Without ``jobs`` there are no studies that take seconds.

    Raises:
        InputError: the scenario or a change to it cannot be used.
    """
    now = answer(Question.from_page(state, offer.names[0]), offer, uploads)
    before = None
    notes = [*now.resolved.notes, *now.data["warnings"]]
    problem = ""
    if state.get("pinned"):
        try:
            before = answer(Question.from_page(state["pinned"], offer.names[0]), offer, uploads).data
        except InputError as error:
            problem = told(f"the pinned prediction: {error}")
    name = state.get("view")
    cards = VIEWS[name if name in VIEWS else FIRST].build(
        Page(
            resolved=now.resolved,
            data=now.data,
            theme=THEMES.get(theme, LIGHT),
            command=now.command,
            profiles=KnownProfiles(uploads),
            study=None if jobs is None else partial(jobs.ask, (now.question, now.source)),
            pinned=before,
            options={str(key): str(value) for key, value in (state.get("options") or {}).items()},
        )
    )
    texts: dict[str, str] = {"headline": _headline(now.resolved, now.data)}
    for card in cards:
        texts |= {f"head-{card.name}": card.head(), f"body-{card.name}": card.body()}
        if card.choices:
            texts[f"choices-{card.name}"] = card.chosen()
    texts["notes"] = sentences(notes) if notes else ""
    return cards, texts, problem


def told(text: str) -> Markup:
    """An error, which is read out at once."""
    return element("div", text, class_="error", role="alert")


def _offered(offer: Offer, uploads: Mapping[str, Any], chosen: str | None) -> Markup:
    """The choice of a scenario, uploaded ones by the name of their file."""
    names = {name: name for name in offer.names}
    names |= {f"upload:{key}": f"{kept['name']} (uploaded)" for key, kept in uploads.items() if not kept.get("kind")}
    options = [element("option", text, value=name, selected=name == chosen) for name, text in names.items()]
    file = element("input", type="file", accept=".yaml,.yml", data_upload=True)
    return joined(
        element("label", element("span", "Scenario"), element("select", *options, data_scenario=True)),
        element("label", element("span", "Upload a scenario (YAML)"), file, class_="upload"),
    )


def _headline(resolved: Resolved, data: Mapping[str, Any]) -> Markup:
    scenario = resolved.scenario
    cluster, workload = scenario.cluster, scenario.workload
    facts = (
        f"{scenario.model.name}, {cluster.nodes * cluster.gpus_per_node:,} x {cluster.gpu.name}",
        f"{workload.sequence_length:,} tokens a sequence",
        f"{workload.global_batch_size:,} sequences a step",
        f"profile {scenario.profile}",
        f"{data['draws']} draws, seed {data['seed']}",
    )
    return joined(element("strong", scenario.name), element("span", ", ".join(facts)))
