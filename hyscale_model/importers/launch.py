"""The arguments of a training program, from a launch script, a YAML file or the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hyscale_model.errors import InputError
from hyscale_model.importers.shell import Word, commands
from hyscale_model.scenario.load import decode, loads, read_bytes
from hyscale_model.scenario.node import Node

YAML_SUFFIXES = (".yaml", ".yml")

_NUMBER = re.compile(r"-?[0-9.]+(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument.

    Attributes:
        name: without the leading dashes, words separated by ``-``.
        values: what follows it; none for a switch.
        line: where it stands; None on the command line.
    """

    name: str
    values: tuple[str, ...]
    line: int | None

    @property
    def unknown(self) -> str | None:
        """The variable or command its value depends on, which nothing here sets."""
        return next((name for value in self.values if (name := Word(value, 0).unknown)), None)


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments of the program, and those of what launches it on every GPU."""

    source: str
    program: dict[str, Argument]
    launcher: dict[str, Argument]


def read_launch(path: str | Path) -> Launch:
    """The arguments in a launch script or a YAML file.

    Raises:
        InputError: the file cannot be read, or names no arguments.
    """
    file = str(path)
    content = decode(read_bytes(path), file).removeprefix("\ufeff")
    if Path(path).suffix.lower() in YAML_SUFFIXES:
        found = list(_from_yaml(loads(content, file).root))
        return _launch(file, found, [])
    try:
        scripts = commands(content)
    except InputError as error:
        raise replace(error, file=file) from None
    return _launch(file, *_best(scripts))


def parse_arguments(words: Sequence[str]) -> Launch:
    """The arguments of a command line, with or without the command before them.

    Raises:
        InputError: there are none.
    """
    split = list(_split([Word(word, 0) for word in words]))
    launcher, program = _parts(split)
    return _launch(
        "arguments",
        [replace(item, line=None) for item in _arguments(program)],
        [replace(item, line=None) for item in _arguments(launcher)],
    )


def _launch(source: str, program: list[Argument], launcher: list[Argument]) -> Launch:
    if not program:
        raise InputError("there are no arguments such as --num-layers", source, expected="Megatron-LM arguments")
    # As argparse has it, the last of several wins.
    # What follows the value of a launcher's argument is the next command of the line.
    first = {item.name: replace(item, values=item.values[:1]) for item in launcher}
    return Launch(source, {item.name: item for item in program}, first)


def _best(scripts: list[list[Word]]) -> tuple[list[Argument], list[Argument]]:
    """Of all commands, the one with the most arguments; one that names a program goes before one that does not."""
    found = []
    for words in scripts:
        launcher, program = _parts(list(_split(words)))
        found.append((bool(launcher), list(_arguments(program)), list(_arguments(launcher))))
    _, program_arguments, launcher_arguments = max(
        found, key=lambda each: (each[0] and bool(each[1]), len(each[1])), default=(False, [], [])
    )
    return program_arguments, launcher_arguments


def _split(words: Sequence[Word]) -> Iterator[Word]:
    """Words, those that hold a whole command line cut up: ``bash -c "torchrun ... --num-layers 2"``."""
    for word in words:
        if re.search(r"(^|\s)--\w", word.text) and len(word.text.split()) > 1:
            yield from (Word(text, word.line) for text in word.text.split())
        else:
            yield word


def _parts(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """The words up to the program, which is the first one that ends in .py, and those after it."""
    places = [index for index, word in enumerate(words) if word.text.endswith(".py")]
    if places:
        # The program itself belongs to what launches it.
        return words[: places[0] + 1], words[places[0] + 1 :]
    return [], words


def _arguments(words: Sequence[Word]) -> Iterator[Argument]:
    name, line, values = "", 0, list[str]()
    for word in words:
        text = word.text
        if text.startswith("-") and len(text) > 1 and not _NUMBER.fullmatch(text):
            if name:
                yield Argument(name, tuple(values), line)
            name, separator, value = text.lstrip("-").partition("=")
            name, line, values = name.replace("_", "-"), word.line, [value] if separator else []
        elif re.fullmatch(r"\d*>+.*|<.*", text):
            break
        elif name:
            values.append(text)
    if name:
        yield Argument(name, tuple(values), line)


def _from_yaml(node: Node) -> Iterator[Argument]:
    """Arguments as keys of a mapping; a mapping below one is a group, ``true`` a switch, ``false`` its absence."""
    for key, child in node.value.items():
        name = str(key).lstrip("-").replace("_", "-")
        if child.is_mapping:
            yield from _from_yaml(child)
        elif name != name.upper() and child.value is not None and child.value is not False:
            items = child.value if child.is_list else [child]
            if child.value is True:
                items = []
            yield Argument(name, tuple(_text(item) for item in items), child.line)


def _text(node: Node) -> str:
    value = node.plain()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
