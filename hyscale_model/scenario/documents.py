"""Lengths of packed documents, from a list, a histogram or a file to the one form of the schema.

``workload.document_lengths`` is ``none``, a number, ``{lengths: [...], weights: [...]}`` (equal weights when left out),
``{histogram: {length: documents}}`` or ``{file: path}``, a text file with one length, or ``length,count``, a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.prediction import Origin
from hyscale_model.scenario.load import decode, read_bytes
from hyscale_model.scenario.node import Node, node_of
from hyscale_model.scenario.problems import Problems
from hyscale_model.scenario.scalars import shorten, show

DOCUMENTS = ("workload", "document_lengths")
FORMS = ("histogram", "file")
FORMS_IN_WORDS = "none, a length, {lengths: [...], weights: [...]}, {histogram: {length: documents}} or {file: path}"

# Millions of documents, one a line.
LIMIT_FILE_BYTES = 64 << 20
# More lengths than this are grouped: the result lists every one of them.
LIMIT_LENGTHS = 256

_FIELD = ".".join(DOCUMENTS)
_LONGEST = 10**15
_NUMBER = re.compile(r"[0-9]{1,16}")
_HEADER = re.compile(r"lengths?(\s*,\s*\w+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Some documents of one length, and the node to blame for them."""

    length: int
    weight: float
    at: Node


def expand_documents(root: Node, problems: Problems, allow_files: bool) -> Node:
    """The scenario with ``workload.document_lengths`` as a list of lengths with weights, where it is a mapping.

    ``allow_files`` is false for a text without a folder that a file could be relative to.
    """
    node = root.find(DOCUMENTS)
    workload = root.child("workload")
    if node is None or workload is None or not node.is_mapping:
        return root
    try:
        expanded = _expand(node, allow_files, _sequence_length(root))
    except InputError as error:
        problems.take(error)
        problems.cover(_FIELD)
        return root
    return root.with_child("workload", workload.with_child(DOCUMENTS[-1], expanded))


def _expand(node: Node, allow_files: bool, sequence_length: int | None) -> Node:
    given = [form for form in (*FORMS, "lengths") if node.child(form) is not None]
    if not set(FORMS).intersection(given):
        return _with_weights(node)
    if len(node.value) > 1:
        problem = f"{' and '.join(str(key) for key in node.value)} are given together"
        raise InputError(shorten(problem), node.file, node.line, _FIELD, FORMS_IN_WORDS)
    form = node.value[given[0]]
    if given[0] == "histogram":
        entries, origin = list(_histogram(form)), form.given()
    else:
        path = _file(form, allow_files)
        entries, origin = list(_lines(path)), Origin("given", str(path))
        if not entries:
            raise InputError("the file lists no documents", str(path), None, f"{_FIELD}.file", "one length a line")
    _refuse_long(entries, sequence_length, f"{_FIELD}.{given[0]}")
    lengths, weights = _grouped(entries)
    plain = node_of({"lengths": lengths, "weights": weights}, node.file, origin)
    return node.with_value({key: replace(child, line=node.line) for key, child in plain.value.items()})


def _with_weights(node: Node) -> Node:
    lengths, weights = node.child("lengths"), node.child("weights")
    if lengths is None or not lengths.is_list:
        return node
    if weights is None:
        return node.with_child("weights", lengths.with_value([lengths.with_value(1.0) for _ in lengths.value]))
    if weights.is_list and len(weights.value) != len(lengths.value):
        problem = f"there are {len(lengths.value)} lengths and {len(weights.value)} weights"
        raise InputError(problem, weights.file, weights.line, f"{_FIELD}.weights", "one weight for each length")
    return node


def _histogram(table: Node) -> Iterator[_Entry]:
    field = f"{_FIELD}.histogram"
    if not table.is_mapping or not table.value:
        found = show(table.plain())
        raise InputError(f"this is {found}", table.file, table.line, field, "a mapping of length: documents")
    for key, node in table.value.items():
        length, weight = _whole(key), node.value
        if length is None:
            found = show(key)
            raise InputError(f"the length is {found}", node.file, node.line, field, "a whole number at least 1")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight <= _LONGEST:
            found = show(node.plain())
            raise InputError(
                f"the number of documents is {found}", node.file, node.line, f"{field}.{length}", "a number above 0"
            )
        yield _Entry(length, float(weight), node)


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        return None
    return int(value) if 1 <= value <= _LONGEST else None


def _file(at: Node, allow_files: bool) -> Path:
    field = f"{_FIELD}.file"
    if not isinstance(at.value, str) or not at.value:
        raise InputError(f"this is {show(at.plain())}", at.file, at.line, field, "the path of a list of lengths")
    if not allow_files:
        raise InputError("a scenario given as text cannot refer to other files", at.file, at.line, field, "a histogram")
    # What --set names is relative to the working directory, as on any command line.
    path = Path(at.value) if at.line is None else Path(at.file).parent / at.value
    if not path.is_file():
        raise InputError(f"there is no file {shorten(str(path), 200)}", at.file, at.line, field, "a list of lengths")
    return path


def _lines(path: Path) -> Iterator[_Entry]:
    file, field = str(path), f"{_FIELD}.file"
    text = decode(read_bytes(path, LIMIT_FILE_BYTES), file).removeprefix("\ufeff")
    first = True
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0].strip()
        if not content or (first and _HEADER.fullmatch(content)):
            first = first and not content
            continue
        first = False
        parts = [part.strip() for part in content.split(",")]
        values = [_whole(part) for part in parts]
        if len(values) > 2 or None in values:
            problem = f"{shorten(content)!r} is not a length"
            raise InputError(problem, file, number, field, "a whole number at least 1, or length,count")
        length, count = values[0], values[1] if len(values) == 2 else 1
        assert length is not None
        assert count is not None
        yield _Entry(length, float(count), Node(None, file, number))


def _sequence_length(root: Node) -> int | None:
    node = root.find(("workload", "sequence_length"))
    value = node.value if node is not None else None
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _refuse_long(entries: list[_Entry], sequence_length: int | None, field: str) -> None:
    long = [entry for entry in entries if sequence_length is not None and entry.length > sequence_length]
    if not long:
        return
    count, total = sum(entry.weight for entry in long), sum(entry.weight for entry in entries)
    problem = (
        f"{count:,.6g} of {total:,.6g} documents are longer than the {sequence_length} positions of a sequence, "
        f"such as one of {long[0].length}"
    )
    at = long[0].at
    raise InputError(problem, at.file, at.line, field, f"lengths of at most {sequence_length}")


def _grouped(entries: list[_Entry]) -> tuple[list[int], list[float]]:
    """Distinct lengths, ascending, with their weights.

    Beyond ``LIMIT_LENGTHS``, neighbours with about the same number of tokens form a group of their mean length; the
    longest stays alone, so that it can still be compared with a sequence.
    """
    weights: dict[int, float] = {}
    for entry in entries:
        weights[entry.length] = weights.get(entry.length, 0.0) + entry.weight
    lengths = sorted(weights)
    if len(lengths) <= LIMIT_LENGTHS:
        return lengths, [weights[length] for length in lengths]
    total = sum(length * weights[length] for length in lengths[:-1])
    groups: dict[int, list[int]] = {}
    tokens = 0.0
    for length in lengths[:-1]:
        groups.setdefault(min(int(tokens / total * (LIMIT_LENGTHS - 1)), LIMIT_LENGTHS - 2), []).append(length)
        tokens += length * weights[length]
    grouped: dict[int, float] = {}
    for members in groups.values():
        weight = sum(weights[length] for length in members)
        mean = round(sum(length * weights[length] for length in members) / weight)
        grouped[mean] = grouped.get(mean, 0.0) + weight
    grouped[lengths[-1]] = grouped.get(lengths[-1], 0.0) + weights[lengths[-1]]
    return list(grouped), list(grouped.values())
