"""``hyscale fit-run``: a measured step narrows the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError

# Endings of traces.
TRACES = (".json", ".json.gz")


def fit_run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario of the run that was measured, or - for stdin.")],
    measured: Annotated[
        Path,
        typer.Option(
            metavar="RUN",
            help="YAML (system, measured, error), or a trace of the PyTorch profiler: .json or .json.gz.",
        ),
    ],
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which system the trace is of; default: the first.")
    ] = None,
    kernels: Annotated[
        Path | None,
        typer.Option(
            metavar="RULES", help="YAML: names of kernels of the trace and their terms, before those shipped."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Replace a field; repeatable.")
    ] = None,
    draws: Annotated[int, typer.Option(min=100, max=1_000_000, metavar="N", help="Draws before weighting.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
) -> None:
    """Narrow what is not known by a step that you measured or traced, and predict again.

    Exits with 1 where the measurement lies outside what the scenario leaves open.
    """
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.cli.outcome import Outcome
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.fit_run import render_fit_run
    from hyscale_model.studies.fit_run import fit_run as fit
    from hyscale_model.studies.fit_run import measured_in_trace, read_measured, told
    from hyscale_model.traces import attribute, read_rules, read_trace, shipped_rules

    resolved = read(file, override or ())
    if measured.name.endswith(TRACES):
        trace = read_trace(measured)
        found = attribute(trace, (*(read_rules(kernels) if kernels else ()), *shipped_rules()))
        seen = measured_in_trace(found, resolved.scenario, system)
    else:
        for option, value in (("--system", system), ("--kernels", kernels)):
            if value is not None:
                raise InputError(
                    "this is for a trace", field=option, expected=f"--measured RUN{' or RUN'.join(TRACES)}"
                )
        trace, seen = None, read_measured(measured, resolved.scenario)
    data = fit(resolved, seen, draws=draws, seed=seed)
    if trace is not None:
        data["trace"] = told(trace, found)
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
