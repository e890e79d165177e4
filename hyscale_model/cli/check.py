"""``hyscale check``: predictions beside what others and your own runs report."""

from __future__ import annotations

from typing import Annotated

import typer

from hyscale_model.cli.outcome import Outcome, say

# Those of hyscale_model.checks, which takes long to import.
GROUPS = ("paper", "kernels", "layers", "training", "memory", "runs", "collectives")


def _split(given: list[str] | None) -> list[str]:
    """Names that stand alone or between commas."""
    names = [name.strip() for each in given or () for name in each.split(",")]
    for name in names:
        if name not in GROUPS:
            raise typer.BadParameter(f"there is no group {name!r}, there are {', '.join(GROUPS)}")
    return names


def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Scenario files with reported results of their own."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help=f"Only these groups: {', '.join(GROUPS)}; may be repeated.",
            callback=_split,
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Profile to predict with instead of each GPU's best.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
) -> None:
    """Compare predictions with published results and your own.

    Exits with 1 when a stated bar is missed.
    """
    from hyscale_model.checks import check as run_checks
    from hyscale_model.report import dumps, failed_bars, make_console, render_check

    data = run_checks(tuple(group or ()), tuple(files or ()), profile=profile)
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_check(data, make_console())
    failed = failed_bars(data)
    if failed:
        say(f"{len(failed)} bars missed" if len(failed) > 1 else "1 bar missed")
        raise typer.Exit(Outcome.REQUIREMENT_FAILED)
