"""``hyscale import``: a scenario from a Hugging Face configuration or from Megatron-LM arguments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError

if TYPE_CHECKING:
    from hyscale_model.importers.imported import Imported


def import_(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|ARGS",
            help="config.json or its folder, a launch script or YAML of Megatron-LM arguments, or these themselves.",
        ),
    ],
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="The scenario file to write.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Cluster of the catalogue; as many H100 as needed when left out."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Each value with its origin as JSON on stdout, and nothing else there."),
    ] = False,
) -> None:
    """Turn a model configuration or a training command into a scenario.

    What the scenario cannot express is listed in the file and on stderr.
    """
    from hyscale_model.cli.files import write_text
    from hyscale_model.importers.complete import complete
    from hyscale_model.importers.source import read_source
    from hyscale_model.importers.write import mapping, scenario_text

    if output is None and not as_json:
        raise InputError("there is nowhere to write to", field="--output", expected="--output scenario.yaml, or --json")
    if output is not None and output.exists() and not force:
        raise InputError("the file exists", str(output), field="--output", expected="another name, or --force")
    imported = complete(read_source(source), cluster)
    text = scenario_text(imported)
    _check(text, imported)
    for note in imported.not_expressed:
        say(str(note))
    if as_json:
        typer.echo(json.dumps(mapping(imported), indent=2, ensure_ascii=False, allow_nan=False))
    if output is not None:
        write_text(output, text)
        say(f"wrote {output}; next: hyscale predict {output}")


def _check(text: str, imported: Imported) -> None:
    """Refuses what ``predict`` would refuse, in terms of the source.

    Raises:
        InputError: the scenario is not possible.
    """
    from hyscale_model.scenario import read_scenario

    try:
        read_scenario("the imported scenario", text=text)
    except InputError as error:
        section, _, name = (error.field or "").partition(".")
        entries = imported.sections.get(section, {})
        entry = entries.get(name.partition(".")[0])
        where = f" ({entry.origin})" if entry is not None else ""
        raise replace(error, file=imported.source, line=None, problem=f"{error.problem}{where}") from None
