"""``hyscale catalog``: the facts the model knows, each with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer


class Kind(StrEnum):
    """Kinds of catalogue entries."""

    models = "models"
    gpus = "gpus"
    clusters = "clusters"
    systems = "systems"
    profiles = "profiles"
    published = "published"


def catalog(
    kind: Annotated[Kind | None, typer.Argument(metavar="KIND", help="What to list; all kinds when left out.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this entry with its sources.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
) -> None:
    """List catalogue entries, or one with its sources."""
    if kind is not None and name is not None:
        data: dict[str, Any] = describe(str(kind), name)
        show = _show_entry
    else:
        kinds = [kind] if kind is not None else list(Kind)
        data = {str(each): listing(str(each)) for each in kinds}
        show = _show_listing
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=list))
    else:
        show(data)


def listing(kind: str) -> list[dict[str, Any]]:
    """Name and description of every entry of a kind."""
    from hyscale_model import catalog as facts

    return [{"name": name, "description": facts.entry(kind, name).description} for name in facts.names(kind)]


def describe(kind: str, name: str) -> dict[str, Any]:
    """One entry: its values, and for each the source, its own or that of the whole entry."""
    from hyscale_model import catalog as facts

    entry = facts.entry(kind, name)
    sources = dict(entry.sources or {})
    return {
        "kind": kind,
        "name": entry.name,
        "description": entry.description,
        "extends": entry.extends,
        "source": entry.source,
        "values": {
            field: {"value": value, "source": sources.get(field, entry.source)} for field, value in entry.values.items()
        },
    }


def _show_listing(data: Mapping[str, Any]) -> None:
    from hyscale_model.report.canvas import heading, make_console, plain_table, printable, sentence

    console = make_console()
    for kind, entries in data.items():
        heading(console, kind)
        if not entries:
            sentence(console, "none", "dim")
            continue
        rows = [[printable(entry["name"]), printable(entry["description"] or "")] for entry in entries]
        console.print(plain_table(["name", "description"], rows, left=(0, 1), fold=(1,)))


def _show_entry(data: Mapping[str, Any]) -> None:
    from hyscale_model.report.canvas import make_console, plain_table, printable, sentence

    console = make_console()
    sentence(console, f"{data['name']}: {data['description'] or ''}", "bold")
    if data["extends"]:
        sentence(console, f"extends {data['extends']}")
    if data["source"]:
        sentence(console, f"source: {data['source']}")
    rows = []
    for field, fact in data["values"].items():
        # A source that stands above already is not repeated on every line.
        own = "" if fact["source"] == data["source"] else fact["source"]
        rows.append([printable(field), printable(_text(fact["value"])), printable(own)])
    if rows:
        console.print()
        console.print(
            plain_table(["field", "value", "source, where it has its own"], rows, left=(0, 1, 2), fold=(1, 2))
        )


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
