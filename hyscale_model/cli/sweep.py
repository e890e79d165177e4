"""``hyscale sweep``: every combination of swept values, as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from hyscale_model.studies.sweep import Sweep

# Without a file, all rows are held and shown.
MOST_SHOWN = 100_000
# Below this many values (rows times draws) processes take longer to start than the work.
WORTH_PROCESSES = 300_000


def sweep(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario file with sweep or zip, or - for stdin.")],
    output: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Write every row to this .csv or .parquet file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    system: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this system; may be repeated.")] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Replace a field; 'sweep.layout.cp=[64, 128]' sweeps one. Repeatable."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=0, max=100_000, metavar="N", help="Draws behind an interval; 0: none, far faster.")
    ] = 64,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the draws.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Processes; default: one a core.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask scheduler at this address instead.")
    ] = None,
) -> None:
    """Predict every combination of swept values.

    One row a point and system; points that cannot run are kept, with the reason.
    """
    from hyscale_model.cli.files import read
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.sweep import render_sweep
    from hyscale_model.studies.columns import column_names, evaluate_table
    from hyscale_model.studies.pool import in_order, local_workers
    from hyscale_model.studies.sweep import Sweep
    from hyscale_model.studies.tables import open_table, work_for

    asked = Sweep.of(read(file, override or (), system or ()), draws, seed)
    rows = asked.axes.count * len(asked.systems)
    if output is None and rows > MOST_SHOWN:
        raise InputError(f"{rows:,} rows are too many to show", field="--output", expected="--output table.csv")
    work = evaluate_table if output is None else work_for(output)
    if workers is None:
        workers = local_workers() if rows * (draws + 1) > WORTH_PROCESSES else 1
    columns = column_names(asked.axes.paths, draws)
    shown: list[dict[str, Any]] = []
    start = time.perf_counter()
    with ExitStack() as stack:
        executor, count = stack.enter_context(dask(scheduler)) if scheduler else (None, workers)
        write = stack.enter_context(open_table(output, columns)) if output else None
        advance = stack.enter_context(progress(asked))
        for chunk, result in in_order(work, asked.chunks(), executor, count):
            if write is not None:
                write(result)
            else:
                shown += [dict(zip(result, row, strict=True)) for row in zip(*result.values(), strict=True)]
            advance(chunk.points)
    seconds = time.perf_counter() - start
    if output is not None:
        say(f"wrote {output}: {rows:,} rows of {asked.axes.count:,} points in {seconds:.1f} s")
    data = asked.as_json(shown)
    if as_json:
        typer.echo(dumps(data))
    elif output is None:
        render_sweep(data, make_console())


@contextmanager
def progress(asked: Sweep) -> Iterator[Callable[[int], None]]:
    """A bar on stderr with the time that is left; a function that moves it by some points."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda points: None
        return
    with Progress(
        TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("", total=asked.axes.count)
        yield lambda points: bar.advance(task, points)


@contextmanager
def dask(address: str) -> Iterator[tuple[Executor, int]]:
    """The executor of a Dask scheduler, and how many threads its workers have.

    Raises:
        InputError: Dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        expected = "pip install 'hyscale-model[cluster]'"
        raise InputError("--scheduler needs Dask", field="--scheduler", expected=expected) from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        problem = f"no scheduler answers at {address}: {error or type(error).__name__}"
        raise InputError(problem, field="--scheduler", expected="such as tcp://host:8786") from None
    with client:
        yield client.get_executor(pure=True, retries=3), max(1, sum(client.nthreads().values()))
