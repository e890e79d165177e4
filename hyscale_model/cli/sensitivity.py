"""``hyscale sensitivity``: which unknown moves the answer most."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.outcome import say


def sensitivity(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario file (YAML), or - for stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Compare the first and last of these; repeatable.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Replace a field; repeatable.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Draws behind an interval.")] = 64,
    minutes: Annotated[
        float, typer.Option(min=0, max=10_000, metavar="M", help="Time for measurements on your cluster; 0: none.")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
) -> None:
    """Which assumption or rate moves the speed-up most.

    Also what would have to be true for no gain, from which sequence length on each technique brings one, and what to
    measure first on your own cluster.
    """
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.sensitivity import render_sensitivity
    from hyscale_model.studies.measurements import first_measurements
    from hyscale_model.studies.sensitivity import sensitivity as study

    resolved = read(file, override or (), system or ())
    data = study(resolved, draws=draws, seed=seed)
    first = first_measurements(resolved.scenario, minutes=minutes, seed=seed)
    if first is not None:
        data["measure_first"] = first
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_sensitivity(data, make_console())
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")
