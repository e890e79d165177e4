"""The arguments of a training program, from a launch script, a YAML file or the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hyscale_model.errors import InputError
from hyscale_model.importers.imported import Unexpressed, unexpressed
from hyscale_model.importers.shell import UNKNOWN, Script, Word, read_script
from hyscale_model.scenario.load import decode, loads, read_bytes
from hyscale_model.scenario.node import Node

YAML_SUFFIXES = (".yaml", ".yml")

# Switches, after which a word that is not known cannot be a value.
_SWITCH = re.compile(
    "(no|use|disable|enable|untie|accumulate|overlap|apply|log)-.*|bf16|fp16|swiglu|sequence-parallel"
    "|group-query-attention|multi-latent-attention|qk-layernorm|moe-grouped-gemm|finetune|mock-data"
)
# The arguments of the script itself, which is read as called without any.
_OWN_ARGUMENTS = frozenset("@*")
# Words that mark a command as one that trains.
_LAUNCHERS = ("torchrun", "torch.distributed", "deepspeed")

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
    """The arguments of the program, those of what launches it on every GPU, and what of the source was not read."""

    source: str
    program: dict[str, Argument]
    launcher: dict[str, Argument]
    unread: tuple[Unexpressed, ...] = ()


@dataclass(frozen=True, slots=True)
class _Command:
    """A command of a script that may be the launch."""

    words: list[Word]
    launcher: list[Argument]
    program: list[Argument]

    @property
    def name(self) -> str:
        """The program it starts; "" where it names none."""
        return next((word.text for word in self.words if word.text.endswith(".py")), "")

    @property
    def line(self) -> int:
        """Where it starts."""
        return self.words[0].line

    def same(self, other: _Command) -> bool:
        """Whether both say the same, at whatever line."""
        return _plain(self.program) == _plain(other.program) and _plain(self.launcher) == _plain(other.launcher)


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
        script = read_script(content)
    except InputError as error:
        raise replace(error, file=file) from None
    best, others = _best(script)
    if best is None:
        return _launch(file, [], [])
    unread = [*_undecided(script), *_unread_words(best.words, _OWN_ARGUMENTS | script.passed), *_ignored(best, others)]
    return _launch(file, best.program, best.launcher, unread)


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


def _launch(
    source: str, program: list[Argument], launcher: list[Argument], unread: Sequence[Unexpressed] = ()
) -> Launch:
    if not program:
        raise InputError("there are no arguments such as --num-layers", source, expected="Megatron-LM arguments")
    # As argparse has it, the last of several wins.
    # What follows the value of a launcher's argument is the next command of the line.
    first = {item.name: replace(item, values=item.values[:1]) for item in launcher}
    return Launch(source, {item.name: item for item in program}, first, tuple(unread))


def _plain(arguments: list[Argument]) -> dict[str, tuple[str, ...]]:
    return {item.name: item.values for item in arguments}


def _best(script: Script) -> tuple[_Command | None, list[_Command]]:
    """Of all commands, the one with the most arguments; one that names a program goes before one that does not."""
    found = []
    for words in script.commands:
        split = list(_split(words))
        if split:
            launcher, program = _parts(split)
            found.append(_Command(split, list(_arguments(launcher)), list(_arguments(program))))
    best = max(found, key=lambda each: (bool(each.name and each.program), len(each.program)), default=None)
    return best, [each for each in found if each is not best]


def _ignored(best: _Command, others: list[_Command]) -> Iterator[Unexpressed]:
    """Other commands that train, with arguments of their own."""
    seen = [best]
    for each in others:
        trains = each.name == best.name or any(word.text.endswith(_LAUNCHERS) for word in each.words)
        if each.name and each.program and trains and not any(each.same(other) for other in seen):
            seen.append(each)
            reason = f"another launch, not read: the scenario is that of line {best.line}"
            yield unexpressed(each.name, None, reason, each.line)


def _undecided(script: Script) -> Iterator[Unexpressed]:
    for each in script.undecided:
        names = f"; what was read last holds for {', '.join(each.variables)}" if each.variables else ""
        yield unexpressed(_readable(each.text), None, f"not decided: its branches were read in order{names}", each.line)


def _unread_words(words: list[Word], empty: frozenset[str]) -> Iterator[Unexpressed]:
    """Words that stand for what only a running shell knows, and are no option's value; ``empty`` stands for nothing."""
    _, program = _parts(words)
    for word in _loose(program):
        name = word.unknown or ""
        if name not in empty:
            shown = f"${name}" if name.isidentifier() else name
            yield unexpressed(shown, None, "a word that was not read: nothing here tells what it stands for", word.line)


def _readable(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


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
    for word, is_option in _options(words):
        text = word.text
        if is_option:
            if name:
                yield Argument(name, tuple(values), line)
            name, separator, value = text.lstrip("-").partition("=")
            name, line, values = name.replace("_", "-"), word.line, [value] if separator else []
        elif name and not _is_loose(word, name, values):
            values.append(text)
    if name:
        yield Argument(name, tuple(values), line)


def _options(words: Sequence[Word]) -> Iterator[tuple[Word, bool]]:
    """Words up to a redirection, each with whether an option starts there."""
    for word in words:
        is_option = word.text.startswith("-") and len(word.text) > 1 and not _NUMBER.fullmatch(word.text)
        if not is_option and re.fullmatch(r"\d*>+.*|<.*", word.text):
            return
        yield word, is_option


def _loose(words: Sequence[Word]) -> Iterator[Word]:
    """Unknown words that are no value of the option before them."""
    name, values = "", list[str]()
    for word, is_option in _options(words):
        if is_option:
            name, separator, value = word.text.lstrip("-").replace("_", "-").partition("=")
            values = [value] if separator else []
        elif _is_loose(word, name, values):
            yield word
        else:
            values.append(word.text)


def _is_loose(word: Word, name: str, values: list[str]) -> bool:
    """Whether a word is nothing but what is not known, where an option needs no value, or no further one."""
    text = word.text
    whole = text.count(UNKNOWN) == 2 and text.startswith(UNKNOWN) and text.endswith(UNKNOWN)
    return whole and bool(values or not name or _SWITCH.fullmatch(name))


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
