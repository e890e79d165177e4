"""``hyscale profile``: work on measured profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.calibrate import INSTALL
from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError

profile = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Work on profiles.")


@profile.callback()
def _group() -> None:
    """Work on measured profiles."""


@profile.command("merge")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Measured profiles of one GPU.")],
    output: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The merged profile; the first when left out.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Catalogue GPU whose peaks to use, where yours is not in it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
) -> None:
    """Put measured profiles of one GPU together, point by point, and fit them anew."""
    try:
        from hyscale_calibration.profile_file import ProfileError, merged, read
    except ImportError as error:
        raise InputError(f"merging needs a package that is not installed: {error}", expected=INSTALL) from None
    from hyscale_model.cli.calibrate import finish
    from hyscale_model.report.calibration import render_fits
    from hyscale_model.report.canvas import make_console

    try:
        whole = merged([(str(file), read(file)) for file in files])
    except ProfileError as error:
        raise InputError(str(error)) from None
    target = output or files[0]
    whole["name"] = target.name.removesuffix(".json")
    if not target.parent.is_dir():
        raise InputError("the folder does not exist", file=str(target.parent), field="--output")
    result = finish(whole, target, gpu)
    if as_json:
        typer.echo(json.dumps({"path": str(target), **result}, allow_nan=False))
    else:
        render_fits(result, make_console())
    say(f"wrote {target}")
