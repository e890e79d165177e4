"""How a command ends: the exit codes, and what a person reads when it does not end well."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from enum import IntEnum

import typer

from hyscale_model.errors import InputError


class Outcome(IntEnum):
    """Exit codes of ``hyscale``."""

    FINE = 0
    REQUIREMENT_FAILED = 1
    BAD_INPUT = 2
    INTERNAL_ERROR = 3
    INTERRUPTED = 130
    # What a shell reports for a program that a closed pipe ended.
    PIPE_CLOSED = 141


def say(text: str) -> None:
    """One message for the person at the terminal, on stderr, so that stdout stays a result."""
    lines = ("".join(char if char.isprintable() else " " for char in line) for line in text.splitlines())
    typer.echo("\n".join(lines), err=True)


def say_input_error(error: InputError) -> Outcome:
    """Tell what is wrong with the input."""
    say(f"error: {error}")
    return Outcome.BAD_INPUT


def say_usage_error(message: str, command: str) -> Outcome:
    """Tell how the command line was misused, in one line and a pointer to help."""
    say(f"error: {message}\nTry '{command} --help'.")
    return Outcome.BAD_INPUT


def say_internal_error(error: BaseException, arguments: Sequence[str], *, debug: bool) -> Outcome:
    """Own up to a defect: one line, where the details are, and how to report it."""
    details = "".join(traceback.format_exception(error))
    if debug:
        typer.echo(details, err=True)
        return Outcome.INTERNAL_ERROR
    summary = " ".join(f"{type(error).__name__}: {error}".split())
    say(f"internal error: {summary[:300]}")
    try:
        path = _keep(details, arguments)
    except OSError:
        say("This is a defect of hyscale. Run again with 'hyscale --debug ...' for the details, and report them.")
    else:
        say(
            "This is a defect of hyscale, not of your scenario. Please report it with the scenario and this file: "
            f"{path}"
        )
    return Outcome.INTERNAL_ERROR


def _keep(details: str, arguments: Sequence[str]) -> str:
    handle, path = tempfile.mkstemp(prefix="hyscale-error-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"hyscale {version()}, Python {platform.python_version()}, {platform.platform()}\n")
        file.write(f"arguments: {list(arguments)}\n\n{details}")
    return path


def version() -> str:
    """The installed version of hyscale-model."""
    from importlib import metadata

    try:
        return metadata.version("hyscale-model")
    except metadata.PackageNotFoundError:
        return "not installed"


def silence_stdout() -> None:
    """Let the interpreter shut down without complaint after the reader of stdout went away."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
