"""``hyscale search``: the best layout of each system on a cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError


def search(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario file (YAML), or - for stdin.")],
    gpus: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Search for this many GPUs instead of the file's.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Layouts listed of each system.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Search only for this system; may be repeated.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Replace a field, such as workload.sequence_length=524288."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Draws behind an interval.")] = 64,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Processes; default: one a core.")
    ] = None,
) -> None:
    """Find the fastest layouts that fit, for each system.

    Every combination of tp, pp, vpp, cp, ep, micro-batch, recomputation and index storage is evaluated.
    """
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.search import render_search
    from hyscale_model.studies.points import evaluate
    from hyscale_model.studies.pool import in_order, local_workers
    from hyscale_model.studies.search import search as search_layouts

    resolved = read(file, override or (), system or ())
    nodes = None if gpus is None else whole_nodes(gpus, resolved.scenario.cluster.gpus_per_node)
    run = partial(in_order, evaluate, executor=None, workers=workers or local_workers())
    data = search_layouts(resolved, nodes=nodes, top=top, draws=draws, seed=seed, run=run)
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_search(data, make_console())
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")


def whole_nodes(gpus: int, each: int) -> int:
    """Nodes of ``each`` GPUs that ``gpus`` fill.

    Raises:
        InputError: the last would not be full.
    """
    if gpus % each:
        raise InputError(f"{gpus} GPUs are no whole nodes of {each}", field="--gpus", expected=f"a multiple of {each}")
    return gpus // each
