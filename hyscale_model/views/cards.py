"""Parts that views are made of: cards with a figure, numbers with their origin, tables that download as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.figures import Figure, legend
from hyscale_model.report.markup import Markup, element, joined
from hyscale_model.report.units import NOTHING
from hyscale_model.views.page import Progress


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that belongs to a view and stays in the address.

    Attributes:
        name: in the address.
        label: what is chosen.
        options: what there is to choose from, by value.
        value: what is chosen now.
        clears: other choices, separated by spaces, that another value takes back.
    """

    name: str
    label: str
    options: Mapping[str, str]
    value: str
    clears: str | None = None

    def entry(self) -> Markup:
        """A list to choose from."""
        options = [element("option", text, value=key, selected=key == self.value) for key, text in self.options.items()]
        return element("select", *options, data_option=self.name, data_clears=self.clears)


@dataclass(frozen=True, slots=True)
class Typed:
    """A choice that is typed, with values to pick from; attributes as of ``Choice``.

    Attributes:
        hint: what it accepts.
        usual: what stands for nothing.
        wide: whether it takes a long text.
    """

    name: str
    label: str
    value: str
    hint: str
    usual: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    clears: str | None = None
    wide: bool = False

    def entry(self) -> Markup:
        """A line of text."""
        offered = f"offered-{self.name}" if self.options else None
        line = element(
            "input",
            type="text",
            value=self.value,
            list=offered,
            title=self.hint,
            placeholder=self.usual or None,
            spellcheck="false",
            autocomplete="off",
            class_="long-text" if self.wide else None,
            data_option=self.name,
            data_clears=self.clears,
        )
        if offered is None:
            return line
        values = [element("option", text, value=key) for key, text in self.options.items()]
        return joined(line, element("datalist", *values, id=offered))


@dataclass(frozen=True, slots=True)
class Tick:
    """A choice between yes and no; in the address it is ``on`` or not there."""

    name: str
    label: str
    on: bool

    def entry(self) -> Markup:
        """A box to tick."""
        return element("input", type="checkbox", value="on", checked=self.on, data_option=self.name)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to choose; the browser keeps it, and ``name`` in the address says which it is."""

    name: str
    label: str
    accept: str

    def entry(self) -> Markup:
        """A file."""
        return element("input", type="file", accept=self.accept, data_upload=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A part of a view: a title, one sentence about what is shown, choices, a figure and whatever else belongs to it.

    Attributes:
        name: unique on the page.
        title: none where the content speaks for itself.
        about: what is shown and how to read it.
        content: what stands below the figure.
        choices: what the reader may choose.
        figure: the figure.
        csv: the name of a table of the card that can be downloaded.
        wide: whether it takes the whole width of a wide page.
    """

    name: str
    title: str = ""
    about: str = ""
    content: tuple[Markup | None, ...] = ()
    choices: tuple[Choice | Typed | Tick | Upload, ...] = ()
    figure: Figure | None = None
    csv: str | None = None
    wide: bool = False

    @property
    def classes(self) -> str:
        """Its look: in a frame or bare, as wide as the page or half."""
        return " ".join(["card" if self.title else "bare", *(["wide"] if self.wide else [])])

    @property
    def height(self) -> int:
        """Pixels reserved for its figure, so that nothing moves when it is drawn."""
        return int(self.figure["layout"]["height"]) if self.figure is not None else 0

    def head(self) -> Markup:
        """Title, downloads and what is shown."""
        if not self.title:
            return Markup()
        actions = [_download(self.name, kind) for kind in ("svg", "png") if self.figure is not None]
        if self.csv is not None:
            attributes = {"data_table": f"table-{self.csv}", "title": "Download the table as CSV"}
            actions.append(element("button", "CSV", type="button", class_="small", **attributes))
        title = element("h2", self.title, id=f"title-{self.name}")
        bar = element("div", title, element("div", *actions, class_="actions"), class_="card-head")
        return joined(bar, element("p", self.about, class_="about"), None if self.choices else self.key())

    def key(self) -> Markup | None:
        """The legend of its figure, if colours need one."""
        entries = legend(self.figure) if self.figure is not None else []
        if not entries:
            return None
        parts = [
            element("li", element("span", class_=entry.shape, style=f"--mark: {entry.colour}"), entry.name)
            for entry in entries
        ]
        return element("ul", *parts, class_="legend")

    def chosen(self) -> Markup:
        """The choices."""
        return joined(*(_choice(each) for each in self.choices), self.key())

    def body(self) -> Markup:
        """What stands below the figure."""
        return joined(*self.content)


def _choice(choice: Choice | Typed | Tick | Upload) -> Markup:
    return element("label", element("span", choice.label), choice.entry(), class_="choice")


def _download(card: str, kind: str) -> Markup:
    attributes = {
        "data_figure": f"figure-{card}",
        "data_format": kind,
        "title": f"Download this figure as {kind.upper()}",
    }
    return element("button", kind.upper(), type="button", class_="small", **attributes)


def told(text: str, tip: str, class_name: str = "") -> Markup:
    """A number that tells its interval and origin when pointed at or reached by keyboard."""
    return element("span", text, class_=f"told {class_name}".strip(), tabindex="0", data_tip=tip)


def tip(*lines: str) -> str:
    """The text of a tip, lines without a value left out."""
    return "\n".join(line for line in lines if line and not line.endswith(NOTHING))


def table(
    name: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, folded: str | None = None
) -> Markup:
    """A table that scrolls in itself where it is wider than the page.

    Args:
        name: of the table, for its download.
        head: titles of the columns.
        rows: cells.
        left: how many columns from the left are text.
        folded: what a reader opens to see it; None: it is open.
    """
    titles = [element("th", title, scope="col", class_=_side(index, left)) for index, title in enumerate(head)]
    lines = [
        element("tr", *(element("td", cell, class_=_side(index, left)) for index, cell in enumerate(row)))
        for row in rows
    ]
    body = element("table", element("thead", element("tr", *titles)), element("tbody", *lines), id=f"table-{name}")
    # A region that scrolls must be reachable by keyboard.
    scroll = element("div", body, class_="scroll", tabindex="0", role="region", aria_label=f"table {name}")
    return scroll if folded is None else element("details", element("summary", folded), scroll, class_="fold")


def _side(index: int, left: int) -> str:
    return "text" if index < left else "number"


def problem(error: InputError) -> Markup:
    """What is wrong with the choices of a card, as the command line says it."""
    return element("p", f"error: {error}", class_="problem", role="alert")


def pending(progress: Progress) -> Markup:
    """How far a study is, and a button that ends it."""
    share = f"{100 * progress.done:.0f}"
    return element(
        "div",
        element("progress", value=share, max="100", aria_label="share that is done"),
        element("span", f"{share} %", class_="share"),
        element("button", "Cancel", type="button", class_="small", data_cancel=progress.job),
        class_="pending",
        data_job=progress.job,
    )


def sentences(texts: Sequence[str]) -> Markup:
    """A list of sentences."""
    return element("ul", *(element("li", text) for text in texts), class_="sentences")


def command_box(command: str, name: str = "command") -> Markup:
    """A command to copy; ``name`` is unique on the page."""
    button = element("button", "Copy", type="button", class_="small", data_copy=name)
    return element("div", element("code", command, id=name), button, class_="command")


def origin_mark(origin: Any) -> Markup:
    """An origin with its sign."""
    return element("span", str(origin), class_=f"origin {origin}")
