"""Replaces names by what they stand for: catalogue entries, Hugging Face files, ``extends``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.importers import huggingface
from hyscale_model.prediction import Origin
from hyscale_model.scenario.documents import DOCUMENTS
from hyscale_model.scenario.node import Node, node_of
from hyscale_model.scenario.problems import Problems, at_node
from hyscale_model.scenario.scalars import show

# Where a catalogue name may stand for a mapping -> the kind of entry.
REFERENCES: dict[tuple[str, ...], str] = {("model",): "models", ("cluster",): "clusters", ("cluster", "gpu"): "gpus"}

LIMIT_SYSTEMS = 64

# Keys that say what a mapping builds on.
BASES = ("extends", "hf_config")


def merge(base: Node, over: Node, path: tuple[str, ...] = (), keep_place: bool = False) -> Node:
    """``over`` laid on ``base``: mappings key by key, everything else replaced.

    Where ``base`` is a catalogue name and ``over`` some fields, the fields change the named entry.
    A merged mapping stands where ``over`` does, or with ``keep_place`` where ``base`` does.
    """
    if not over.is_mapping or path == DOCUMENTS:
        return over
    if path in REFERENCES:
        if any(key in over.value for key in BASES):
            return over
        if isinstance(base.value, str):
            base = replace(base, value={"extends": base})
    if not base.is_mapping:
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = merge(merged[key], child, (*path, str(key)), keep_place) if key in merged else child
    return (base if keep_place else over).with_value(merged)


def expand(root: Node, problems: Problems, allow_files: bool) -> Node:
    """The scenario with every name replaced by its fields.

    ``allow_files`` is false for a text without a folder that ``hf_config`` could be relative to.
    """
    for path, kind in REFERENCES.items():
        node = root.find(path)
        if node is None:
            continue
        dotted = ".".join(path)
        try:
            expanded = _expand_one(node, kind, path, allow_files)
        except InputError as error:
            problems.take(error if error.file else at_node(error, node, dotted))
            problems.cover(dotted)
            continue
        root = _put(root, path, expanded)
    systems = root.child("systems")
    if systems is None:
        return root
    if not systems.is_list:
        found = show(systems.plain())
        problems.add(f"this is {found}", systems, "systems", "a list of catalogue names or mappings with a name")
        return root
    if len(systems.value) > LIMIT_SYSTEMS:
        problems.add(f"there are {len(systems.value)} systems", systems, "systems", f"at most {LIMIT_SYSTEMS}")
        return root.without("systems")
    return root.with_child("systems", systems.with_value(list(_systems(systems, problems))))


def system_name(node: Node) -> str | None:
    """The name of an entry of ``systems``, be it a catalogue name or a mapping."""
    named = node.child("name") if node.is_mapping else node
    return named.value if named is not None and isinstance(named.value, str) else None


def _put(root: Node, path: tuple[str, ...], node: Node) -> Node:
    head, *rest = path
    if rest:
        node = _put(root.value[head], tuple(rest), node)
    return root.with_child(head, node)


def _expand_one(node: Node, kind: str, path: tuple[str, ...], allow_files: bool) -> Node:
    field = ".".join(path)
    if isinstance(node.value, str):
        return _entry(node, kind, path, field)
    if not node.is_mapping:
        found = show(node.plain())
        raise InputError(f"this is {found}", node.file, node.line, field, "a name from the catalogue or a mapping")
    extends, hf_config = node.child("extends"), node.child("hf_config")
    if extends is not None and hf_config is not None:
        raise InputError(
            "extends and hf_config are both given", node.file, node.line, field, "either extends or hf_config"
        )
    own = node.without("extends", "hf_config") if kind == "models" else node.without("extends")
    if extends is not None:
        base = _entry(extends, kind, path, f"{field}.extends")
    elif hf_config is not None and kind == "models":
        base = _hugging_face(hf_config, f"{field}.hf_config", allow_files)
    else:
        return own
    # The mapping's place, so that what it lacks is reported there.
    return merge(base, own, path)


def _entry(at: Node, kind: str, path: tuple[str, ...], field: str, seen: tuple[str, ...] = ()) -> Node:
    """The fields of the entry a node names, with those it builds on below them."""
    name = at.value
    if not isinstance(name, str):
        known = ", ".join(catalog.names(kind))
        raise InputError(f"this is {show(at.plain())}", at.file, at.line, field, f"a name from the catalogue: {known}")
    try:
        found = catalog.entry(kind, name)
    except InputError as error:
        # A fault of the catalogue itself keeps its own place.
        raise (error if error.file else at_node(error, at, field)) from None
    if name in seen:
        chain = " -> ".join([*seen, name])
        raise InputError(f"catalogue entries extend each other: {chain}", at.file, at.line, field, "no cycle")
    named = Node(found.name, found.node.file, found.node.line, Origin("published", found.source))
    node = found.node.with_value({"name": named, **found.node.value})
    if found.extends:
        base = _entry(replace(at, value=found.extends), kind, path, field, (*seen, name))
        node = merge(base, node, path)
    return replace(node, file=at.file, line=at.line)


def _hugging_face(at: Node, field: str, allow_files: bool) -> Node:
    if not isinstance(at.value, str) or not at.value:
        raise InputError(f"this is {show(at.plain())}", at.file, at.line, field, "the path of a config.json")
    if not allow_files:
        raise InputError(
            "a scenario given as text cannot refer to other files", at.file, at.line, field, "a catalogue name"
        )
    # What --set names is relative to the working directory, as on any command line.
    path = Path(at.value) if at.line is None else Path(at.file).parent / at.value
    try:
        values = huggingface.model_fields(path)
    except InputError as error:
        where = f"{error.file}: " if error.file else ""
        line = f"line {error.line}: " if error.line else ""
        names = f"{error.field}: " if error.field else ""
        raise InputError(f"{where}{line}{names}{error.problem}", at.file, at.line, field, error.expected) from None
    return replace(node_of(values, str(path), Origin("given", str(path))), file=at.file, line=at.line)


def _systems(systems: Node, problems: Problems) -> Iterable[Node]:
    lines: dict[str, Node] = {}
    for index, item in enumerate(systems.value):
        field = f"systems.{system_name(item) or index}"
        try:
            node = _system(item, field)
        except InputError as error:
            problems.take(error)
            yield item.with_value({"name": item.with_value(f"system {index}")})
            continue
        name = system_name(node)
        if name in lines:
            first = lines[name].line
            where = f" (the first on line {first})" if first and first != item.line else ""
            problems.add(f"two systems are called {name!r}{where}", item, field, "a name of its own for each system")
        elif name is not None:
            lines[name] = item
        yield node


def _system(item: Node, field: str) -> Node:
    if isinstance(item.value, str):
        return _entry(item, "systems", ("systems",), field)
    if not item.is_mapping:
        known = ", ".join(catalog.names("systems"))
        expected = f"a name from the catalogue ({known}) or a mapping with a name"
        raise InputError(f"this is {show(item.plain())}", item.file, item.line, field, expected)
    extends, own = item.child("extends"), item.without("extends")
    name = own.child("name")
    if extends is not None and name is not None:
        return merge(_entry(extends, "systems", ("systems",), f"{field}.extends"), own, ("systems",))
    if name is None:
        raise InputError("a system needs a name", item.file, item.line, f"{field}.name", "name: text of your choice")
    if name.value in catalog.names("systems"):
        raise InputError(
            f"{name.value!r} is the name of a catalogue entry, but the mapping does not build on it",
            name.file,
            name.line,
            f"{field}.name",
            f"'extends: {name.value}' as well, or another name",
        )
    return own
