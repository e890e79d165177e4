"""Finds and reads catalogue files. An entry is one file; its name is the file's stem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.prediction import Origin
from hyscale_model.scenario.fields import suggest
from hyscale_model.scenario.load import Document, loads
from hyscale_model.scenario.node import Node
from hyscale_model.scenario.scalars import shorten

# Kinds whose files are entries: a name, values, and where each value comes from.
KINDS = ("models", "gpus", "clusters", "systems")

_KEYS = ("name", "description", "source", "sources", "extends", "values")
_SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact sheet.

    Attributes:
        name: its name in scenario files.
        kind: one of ``KINDS``.
        description: what it is, for people.
        values: the fields it sets, as in the schema.
        source: where the values come from.
        sources: field -> source, where it differs.
        extends: the entry of the same kind it builds on.
        node: the values with their positions and origins.
    """

    name: str
    kind: str
    description: str
    values: Mapping[str, Any]
    source: str
    sources: Mapping[str, str]
    extends: str | None = None
    node: Node = field(repr=False, compare=False, kw_only=True)

    def origin(self, name: str) -> Origin:
        """The origin of one of its fields."""
        return Origin("published", self.sources.get(name, self.source))


def names(kind: str) -> tuple[str, ...]:
    """The names of all files of a kind, sorted.

    Raises:
        InputError: there is no such kind.
    """
    return tuple(_files(kind))


def path(kind: str, name: str) -> Traversable:
    """The file of an entry of any kind, be it in a folder or in an archive.

    Raises:
        InputError: there is no such kind or name; the nearest one is named.
    """
    found = _files(kind)
    if name not in found:
        singular = kind.removesuffix("s")
        raise InputError(f"there is no {singular} {shorten(name)!r} in the catalogue", expected=suggest(name, found))
    return found[name]


def document(kind: str, name: str) -> Document:
    """The contents of a file of any kind with their positions.

    Raises:
        InputError: there is no such kind or name, or the file is not YAML.
    """
    path(kind, name)
    return _document(kind, name)


def entry(kind: str, name: str) -> Entry:
    """One fact sheet of ``KINDS``.

    Raises:
        InputError: there is no such kind or name, or the file is not an entry.
    """
    if kind not in KINDS:
        raise InputError(f"there are no entries of kind {shorten(kind)!r}", expected=suggest(kind, KINDS))
    root = document(kind, name).root
    for key, child in root.value.items():
        if key not in _KEYS:
            raise InputError(f"unknown key {key!r}", child.file, child.line, key, suggest(key, _KEYS))
    values = root.child("values")
    if values is None or not values.is_mapping:
        raise InputError("an entry needs values", root.file, root.line, "values", "a mapping of fields")
    sources = root.child("sources")
    found = Entry(
        name=_text(root, "name"),
        kind=kind,
        description=_text(root, "description"),
        values=values.plain(),
        source=_text(root, "source"),
        sources={} if sources is None else {key: _text(sources, key) for key in sources.value},
        extends=_text(root, "extends") if root.child("extends") else None,
        node=values,
    )
    if found.name != name:
        raise InputError(f"the name is not that of the file, {name!r}", root.file, root.line, "name", name)
    marked = {key: child.with_origin(found.origin(key)) for key, child in values.value.items()}
    return Entry(**{**_shallow(found), "node": values.with_value(marked)})


def _shallow(found: Entry) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Entry.__dataclass_fields__}


def _text(node: Node, key: str) -> str:
    child = node.child(key)
    if child is None or not isinstance(child.value, str) or not child.value.strip():
        raise InputError(f"an entry needs {key}", node.file, node.line, key, "text that is not empty")
    return child.value


@cache
def _folders() -> dict[str, Traversable]:
    root = files("hyscale_model.catalog")
    return {folder.name: folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("_")}


@cache
def _files(kind: str) -> dict[str, Traversable]:
    folders = _folders()
    if kind not in folders:
        known = sorted(folders)
        raise InputError(f"the catalogue has no {shorten(kind)!r}", expected=suggest(kind, known))
    found = {file.name.removesuffix(_SUFFIX): file for file in folders[kind].iterdir() if file.name.endswith(_SUFFIX)}
    return dict(sorted(found.items()))


@cache
def _document(kind: str, name: str) -> Document:
    return loads(_files(kind)[name].read_bytes(), f"hyscale_model/catalog/{kind}/{name}{_SUFFIX}")
