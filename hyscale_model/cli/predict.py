"""``hyscale predict``: step time, memory and speed-ups of one scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hyscale_model.cli.outcome import Outcome, say


def predict(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario file (YAML), or - for stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Predict only this system; may be repeated.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Replace a field, such as layout.cp=64; may be repeated."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Draws behind an interval.")] = 64,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
    explain: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Show formula, rates and origins of one number of the JSON instead."),
    ] = None,
    require_fit: Annotated[
        bool, typer.Option("--require-fit", help="Exit with 1 unless every system fits into memory.")
    ] = False,
) -> None:
    """Predict step time, memory and speed-ups of a scenario.

    Every number comes with an interval and its origin.
    """
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.predict import predict as predict_scenario
    from hyscale_model.report import dumps, make_console, render_prediction

    if explain is not None:
        explained(file, override or (), system or (), explain, as_json, output)
        return
    data = predict_scenario(read(file, override or (), system or ()), draws=draws, seed=seed).data
    # Before anything is shown: a result that JSON cannot carry is a defect for the tables too.
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_prediction(data, make_console())
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")
    misfits = unfit(data) if require_fit else []
    if misfits:
        say(f"required to fit, and not known to: {', '.join(misfits)}")
        raise typer.Exit(Outcome.REQUIREMENT_FAILED)


def explained(
    file: str, override: Sequence[str], system: Sequence[str], metric: str, as_json: bool, output: Path | None
) -> None:
    """Show what stands behind one number."""
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.explanation import explain_metric
    from hyscale_model.report import dumps, make_console, render_explanation

    data = explain_metric(read(file, override, system), metric)
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_explanation(data, make_console())
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")


def unfit(data: Mapping[str, Any]) -> Sequence[str]:
    """Systems whose memory does not fit or has no verdict, which a requirement cannot take for a yes."""
    return [
        name
        for name, system in data["systems"].items()
        if (system.get("memory") or {}).get("verdict") not in ("fits", "at_risk")
    ]
