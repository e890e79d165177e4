"""Entry point of ``hyscale``: the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from hyscale_model.cli import (
    calibrate,
    catalog,
    check,
    dashboard,
    decide,
    doctor,
    fit_run,
    import_,
    network,
    predict,
    profile,
    schema,
    search,
    sensitivity,
    sweep,
)
from hyscale_model.cli.outcome import (
    Outcome,
    say_input_error,
    say_internal_error,
    say_usage_error,
    silence_stdout,
    version,
)
from hyscale_model.errors import InputError

# Plain help: it reads the same in a pipe, and a cold start does not load rich.
app = typer.Typer(
    name="hyscale",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("predict")(predict.predict)
app.command("sweep")(sweep.sweep)
app.command("search")(search.search)
app.command("sensitivity")(sensitivity.sensitivity)
app.command("fit-run")(fit_run.fit_run)
app.command("decide")(decide.decide)
app.command("network")(network.network)
app.command("check")(check.check)
# Arguments of another program look like options, so those that are none of ours are left alone.
app.command("import", context_settings={"ignore_unknown_options": True})(import_.import_)
app.command("catalog")(catalog.catalog)
app.command("schema")(schema.schema)
app.command("dashboard")(dashboard.dashboard)
app.command("doctor")(doctor.doctor)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(profile.profile, name="profile")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hyscale {version()}")
        raise typer.Exit(Outcome.FINE)


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Step time and memory of long-context sparse-attention training, with an interval and the origin of each number.

    Exit status: 0 fine, 1 a stated requirement fails, 2 bad input, 3 internal error.
    """
    context.obj["debug"] = debug


@cache
def _commands() -> Callable[..., Any]:
    """The commands as Typer understands them."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``hyscale`` with ``arguments`` (those of the process by default) and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character shows a question mark instead of ending the command.
            stream.reconfigure(errors="replace")
    state: dict[str, Any] = {"debug": False}
    try:
        code = _commands()(arguments, standalone_mode=False, prog_name="hyscale", obj=state)
        sys.stdout.flush()
        return int(code or Outcome.FINE)
    except KeyboardInterrupt:
        return Outcome.INTERRUPTED
    except (BrokenPipeError, SystemExit, typer.Abort) as error:
        return _ended(error)
    except InputError as error:
        return say_input_error(error)
    except Exception as error:
        if callable(getattr(error, "format_message", None)):
            return _misused(error)
        return say_internal_error(error, arguments, debug=state["debug"])


def _ended(error: BaseException) -> int:
    """Exit code of a command that stopped early without an error of its own."""
    # Typer turns a closed pipe into exit 1, which here would read as a failed requirement.
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        silence_stdout()
        return Outcome.PIPE_CLOSED
    if isinstance(error, typer.Abort):
        return Outcome.INTERRUPTED
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else Outcome.FINE


def _misused(error: Any) -> int:
    """Exit code of a command line that typer could not use; its exceptions moved between its releases."""
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message)
        return Outcome.BAD_INPUT
    return say_usage_error(message, context.command_path if context else "hyscale")


if __name__ == "__main__":
    sys.exit(main())
