"""All views of a prediction as one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from hyscale_model.dashboard.profiles import KnownProfiles
from hyscale_model.figures import THEMES
from hyscale_model.report.markup import Markup, element, joined
from hyscale_model.scenario import Resolved
from hyscale_model.views import VIEWS, Card, Page

ASSETS = Path(__file__).parent / "assets"

_DRAW = """
document.addEventListener("DOMContentLoaded", () => {
  const figures = JSON.parse(document.getElementById("figures").textContent)[window.hyscaleTheme()];
  Object.entries(figures).forEach(([id, figure]) => {
    Plotly.newPlot(id, figure.data, figure.layout, {displayModeBar: false, responsive: true});
  });
});
"""


def report(resolved: Resolved, data: dict[str, Any], command: str) -> str:
    """The text of the file.

    Args:
        resolved: the scenario.
        data: the JSON of its prediction.
        command: what gives the same numbers on the command line.
    """
    name = str(resolved.scenario.name)
    themed: dict[str, dict[str, Any]] = {}
    sections: list[Markup] = []
    for theme in THEMES.values():
        page = Page(resolved=resolved, data=data, theme=theme, command=command, profiles=KnownProfiles())
        views = {key: view.build(page) for key, view in VIEWS.items()}
        cards = [card for each in views.values() for card in each]
        themed[theme.name] = {f"plot-{card.name}": card.figure for card in cards if card.figure is not None}
        sections = [_view(key, VIEWS[key].title, each) for key, each in views.items()]
    links = (element("a", view.title, href=f"#{key}") for key, view in VIEWS.items())
    # In JSON inside HTML, only the end of a script could be taken for markup.
    figures = Markup(json.dumps(themed, allow_nan=False).replace("<", "\\u003c"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{name}, hyscale"),
        element("style", Markup((ASSETS / "style.css").read_text(encoding="utf-8"))),
        element("script", Markup(get_plotlyjs())),
        element("script", Markup((ASSETS / "base.js").read_text(encoding="utf-8"))),
        element("script", figures, type="application/json", id="figures"),
        element("script", Markup(_DRAW)),
    )
    top = element("header", element("div", element("h1", name), element("nav", *links)))
    body = element("body", top, element("main", *sections, class_="report"))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _view(key: str, title: str, cards: list[Card]) -> Markup:
    content = element("div", *(_card(card) for card in cards), class_="view")
    return joined(element("h2", title, class_="view-title", id=key), content)


def _card(card: Card) -> Markup:
    figure = None
    if card.figure is not None:
        plot = element("div", id=f"plot-{card.name}")
        figure = element("div", plot, id=f"figure-{card.name}", class_="figure", style=f"height: {card.height}px")
    # What there is to choose needs a server; the legend stands with it.
    key = card.key() if card.choices else None
    return element("section", card.head(), key, figure, card.body(), class_=card.classes)
