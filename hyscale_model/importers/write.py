"""Writes an import as a scenario file that says on each line where its value comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hyscale_model import catalog
from hyscale_model.importers.complete import systems
from hyscale_model.importers.imported import Entry, Imported

SECTIONS = ("model", "cluster", "layout", "workload", "training")

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.+/-]*")
# Words that YAML or a reader of it could take for something else.
_SPECIAL = frozenset({"null", "true", "false", "yes", "no", "on", "off", "none", "y", "n"})


def scenario_text(imported: Imported) -> str:
    """A complete import as the text of a scenario file."""
    name = imported.sections["model"]["name"].value
    lines = [
        f"# Imported from {_comment(imported.source)}.",
        "# After each value: where it comes from; (not stated) marks what follows from a rule or a default.",
    ]
    if imported.not_expressed:
        lines += ["#", "# Not expressed:", *(f"#   {_comment(str(note))}" for note in imported.not_expressed)]
    lines += ["schema_version: 1", f"name: {_scalar(f'{name}, imported')}"]
    for section in SECTIONS:
        lines += _section(section, imported.sections.get(section, {}))
    lines += _systems(imported)
    return "\n".join(lines) + "\n"


def mapping(imported: Imported) -> dict[str, Any]:
    """The import as plain data: each field with its value and origin, and what is not expressed."""
    fields = {
        (f"{section}.{name}" if name else section): _fact(entry)
        for section in SECTIONS
        for name, entry in imported.sections.get(section, {}).items()
    }
    fields |= {f"systems.*.{name}": _fact(entry) for name, entry in imported.systems.items()}
    return {
        "source": imported.source,
        "fields": fields,
        "systems": systems(imported),
        "not_expressed": [
            {"name": note.name, "value": note.value, "reason": note.reason, "line": note.line}
            for note in imported.not_expressed
        ],
    }


def _fact(entry: Entry) -> dict[str, Any]:
    return {"value": entry.value, "origin": entry.origin, "stated": entry.stated}


def _section(section: str, entries: Mapping[str, Entry]) -> list[str]:
    if not entries:
        return [f"{section}: {{}}"]
    if "" in entries:
        return [_line(f"{section}: {_value(entries[''].value)}", entries[""])]
    lines = [f"{section}:"]
    for name, entry in entries.items():
        lines.append(_line(f"  {name}: {_value(entry.value)}", entry))
    return lines


def _systems(imported: Imported) -> list[str]:
    lines = []
    for name in systems(imported):
        own = _own(name)
        changes = {field: entry for field, entry in imported.systems.items() if own.get(field) != entry.value}
        if not changes:
            lines.append(f"  - {name}")
            continue
        lines += [f"  - name: {name}", f"    extends: {name}"]
        lines += [_line(f"    {field}: {_value(entry.value)}", entry) for field, entry in changes.items()]
    return ["systems:", *lines]


def _own(name: str) -> dict[str, Any]:
    """The fields of a system of the catalogue, those it builds on included."""
    entry = catalog.entry("systems", name)
    return {**(_own(entry.extends) if entry.extends else {}), **entry.values}


def _line(text: str, entry: Entry) -> str:
    return f"{text}  # {_comment(entry.origin)}{'' if entry.stated else ' (not stated)'}"


def _comment(text: str) -> str:
    """Text on one line, without characters that a YAML file may not hold."""
    return "".join(char if char.isprintable() else " " for char in text)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_value(child)}' for key, child in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(child) for child in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _SPECIAL
        return value if plain else json.dumps(_comment(value), ensure_ascii=False)
    return json.dumps(value)
