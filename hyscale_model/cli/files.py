"""Reading a scenario and writing results, for every command alike."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError
from hyscale_model.whole import replacing

if TYPE_CHECKING:
    from hyscale_model.scenario import Resolved

STDIN = "-"


def read(file: str, overrides: Sequence[str] = (), systems: Sequence[str] = ()) -> Resolved:
    """The scenario of a file, or of stdin for ``-``, which has no folder and so cannot refer to other files.

    Raises:
        InputError: it cannot be read or says something that cannot be used.
    """
    from hyscale_model.scenario import read_scenario

    if file != STDIN:
        resolved = read_scenario(file, overrides=tuple(overrides), systems=tuple(systems))
        for note in resolved.notes:
            say(note)
        return resolved
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text: {error.reason} at byte {error.start}", file="stdin") from None
    return read_scenario("stdin", overrides=tuple(overrides), systems=tuple(systems), text=text)


def write_text(path: Path, text: str, option: str = "--output") -> None:
    """Write ``text`` whole or not at all: a reader never sees half a file, a failure leaves the old one.

    ``option`` is what named the path.

    Raises:
        InputError: the folder is missing, the path is a folder, or the system refuses.
    """
    path = path.resolve()
    if path.is_dir():
        raise InputError("is a folder, not a file", file=str(path), field=option)
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", file=str(path.parent), field=option)
    try:
        if path.exists() and not path.is_file():
            # A pipe or device is written to; replacing it would destroy it.
            path.write_text(text, encoding="utf-8")
            return
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path), field=option) from None
