"""``hyscale decide``: port, or flip a flag?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.outcome import say


def decide(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario file (YAML), or - for stdin.")],
    tokens: Annotated[float, typer.Option(min=1.0, metavar="N", help="Tokens to train.")] = 1e11,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the sheet as a page of its own.")] = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Compare only these systems, in this order; repeatable.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Replace a field, such as cluster.usd_per_gpu_hour=2.5."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Draws behind an interval.")] = 64,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
    failures: Annotated[
        float | None, typer.Option(min=0.0, metavar="RATE", help="Failures in a million GPU-hours.")
    ] = None,
    restart_minutes: Annotated[float | None, typer.Option(min=0.0, metavar="MIN", help="From failure to step.")] = None,
    checkpoint_minutes: Annotated[
        float | None, typer.Option(min=0.0, metavar="MIN", help="Between two checkpoints.")
    ] = None,
) -> None:
    """The sheet behind a decision: time, GPU-hours, cost and energy before and after.

    Shows what each technique brings in every order, and what evidence stands behind it.
    """
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.decision import render_decision
    from hyscale_model.studies.decision import Operation
    from hyscale_model.studies.decision import decide as decide_scenario

    usual = Operation()
    operation = replace(
        usual,
        failures_per_gpu_hour=usual.failures_per_gpu_hour if failures is None else failures / 1e6,
        restart_s=usual.restart_s if restart_minutes is None else 60 * restart_minutes,
        checkpoint_s=usual.checkpoint_s if checkpoint_minutes is None else 60 * checkpoint_minutes,
    )
    resolved = read(file, override or (), system or ())
    data = decide_scenario(resolved, tokens=tokens, draws=draws, seed=seed, operation=operation)
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_decision(data, make_console())
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")
    if html is not None:
        import io

        console = make_console(io.StringIO(), width=120, record=True)
        render_decision(data, console)
        write_text(html, console.export_html(inline_styles=True))
        say(f"wrote {html}")
