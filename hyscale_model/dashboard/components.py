"""Parts that views are made of: cards with a figure, numbers with their origin, tables that download as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from hyscale_model.report.units import NOTHING

# No toolbar: its buttons overlap the figure; downloads have buttons of their own.
_CONFIG: Any = {"displayModeBar": False, "responsive": True, "doubleClick": "reset"}


def attributes(**named: str) -> dict[str, Any]:
    """Attributes of an element whose names have dashes."""
    return {name.replace("_", "-"): value for name, value in named.items()}


def card(
    name: str,
    title: str,
    about: str,
    *content: Component | None,
    figure: go.Figure | None = None,
    csv: str | None = None,
    wide: bool = False,
    picked: bool = False,
) -> Component:
    """A part of a view: a title, one sentence about what is shown, a figure and whatever else belongs to it.

    The height of a figure is reserved before it is drawn, so that nothing moves. ``csv`` is the name of a table of
    the card that can be downloaded; a part of a ``picked`` figure can be chosen by pointing at it.
    """
    parts: list[Component] = []
    actions: list[Component] = []
    if figure is not None:
        parts.append(_graph(name, figure, picked))
        actions = [_download(f"figure-{name}", kind) for kind in ("svg", "png")]
    if csv is not None:
        actions.append(_csv(csv))
    return html.Section(
        [
            html.Div(
                [html.H2(title, id=f"title-{name}"), html.Div(actions, className="actions")], className="card-head"
            ),
            html.P(about, className="about"),
            *parts,
            *(part for part in content if part is not None),
        ],
        className="card wide" if wide else "card",
        id=f"card-{name}",
        **attributes(aria_labelledby=f"title-{name}"),
    )


def _graph(name: str, figure: go.Figure, picked: bool) -> Component:
    height = {"height": f"{figure.layout.height}px"}
    identity: Any = {"kind": "pick", "name": name} if picked else f"graph-{name}"
    graph = dcc.Graph(id=identity, figure=figure, config=_CONFIG, style=height)
    return html.Div(graph, id=f"figure-{name}", className="figure", style=height)


def _download(figure: str, kind: str) -> Component:
    return html.Button(
        kind.upper(),
        className="small",
        title=f"Download this figure as {kind.upper()}",
        **attributes(data_figure=figure, data_format=kind),
    )


def told(text: str, tip: str, class_name: str = "") -> Component:
    """A number that tells its interval and origin when pointed at or reached by keyboard."""
    return html.Span(text, className=f"told {class_name}".strip(), tabIndex="0", **attributes(data_tip=tip))


def tip(*lines: str) -> str:
    """The text of a tip, empty lines left out."""
    return "\n".join(line for line in lines if line and not line.endswith(NOTHING))


def _csv(name: str) -> Component:
    about = attributes(data_table=f"table-{name}", data_name=name)
    return html.Button("CSV", className="small", title="Download the table as CSV", **about)


def table(
    name: str, head: Sequence[str], rows: Sequence[Sequence[Any]], *, left: int = 1, folded: str | None = None
) -> Component:
    """A table that scrolls in itself where it is wider than the page.

    Args:
        name: of the table, for its download.
        head: titles of the columns.
        rows: cells, text or components.
        left: how many columns from the left are text.
        folded: what a reader opens to see it; None: it is open.
    """
    titles = [html.Th(title, scope="col", className=_side(i, left)) for i, title in enumerate(head)]
    lines = [html.Tr([html.Td(cell, className=_side(i, left)) for i, cell in enumerate(row)]) for row in rows]
    body = html.Table([html.Thead(html.Tr(titles)), html.Tbody(lines)], id=f"table-{name}")
    # A region that scrolls must be reachable by keyboard.
    scroll = html.Div(body, className="scroll", tabIndex="0", role="region", **attributes(aria_label=f"table {name}"))
    return scroll if folded is None else html.Details([html.Summary(folded), scroll], className="fold")


def _side(index: int, left: int) -> str:
    return "text" if index < left else "number"


def choice(name: str, label: str, options: Mapping[str, str], value: str) -> Component:
    """A choice that belongs to a view and stays in the address."""
    return html.Label(
        [
            html.Span(label),
            dcc.Dropdown(
                id={"kind": "option", "name": name},
                options=[{"label": text, "value": key} for key, text in options.items()],
                value=value,
                clearable=False,
                searchable=len(options) > 12,
            ),
        ],
        className="choice",
    )


def message(kind: str, text: str) -> Component:
    """A message to the reader; errors are read out at once."""
    return html.Div(text, className=f"message {kind}", role="alert" if kind == "error" else "status")
