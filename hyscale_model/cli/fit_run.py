"""``hyscale fit-run``: a measured step narrows the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.outcome import say


def fit_run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario of the run that was measured, or - for stdin.")],
    measured: Annotated[
        Path, typer.Option(metavar="RUN", help="YAML: system, measured (step_time_s and others), error.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Replace a field; repeatable.")
    ] = None,
    draws: Annotated[int, typer.Option(min=100, max=1_000_000, metavar="N", help="Draws before weighting.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
) -> None:
    """Narrow what is not known by a step that you measured, and predict again.

    Exits with 1 where the measurement lies outside what the scenario leaves open.
    """
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.cli.outcome import Outcome
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.fit_run import render_fit_run
    from hyscale_model.studies.fit_run import fit_run as fit
    from hyscale_model.studies.fit_run import read_measured

    resolved = read(file, override or ())
    data = fit(resolved, read_measured(measured, resolved.scenario), draws=draws, seed=seed)
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_fit_run(data, make_console())
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")
    if not data["explained"]:
        say("the measurement is not explained by any of the draws")
        raise typer.Exit(Outcome.REQUIREMENT_FAILED)
