"""``hyscale calibrate``: measure this machine's GPU, fit what was measured, and keep both as a profile."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError

if TYPE_CHECKING:
    from hyscale_calibration.machine import Machine
    from hyscale_calibration.point import Point

INSTALL = "pip install 'hyscale-model[gpu]'"
COLLECTIVES = "collectives"


class Plan(StrEnum):
    """Which points are measured."""

    quick = "quick"
    full = "full"


class Scheduler(StrEnum):
    """What a job is written for."""

    slurm = "slurm"


def calibrate(
    output: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The profile's file; your data directory when left out.")
    ] = None,
    plan: Annotated[Plan, typer.Option(help="quick: some minutes; full: up to half an hour.")] = Plan.quick,
    op: Annotated[
        list[str] | None, typer.Option("--op", metavar="NAME", help="Only this operation; may be repeated.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="Begin nothing that would end later.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a profile that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its time; needs no GPU.")] = False,
    emit: Annotated[Scheduler | None, typer.Option(help="Print a job for a cluster and the merge command.")] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Catalogue GPU whose peaks to use, where yours is not in it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
) -> None:
    """Measure this machine's GPU and write a profile that predictions use.

    Under torchrun with several processes, collectives are measured.
    """
    calibration = _calibration()
    points = _points(calibration, plan.value, op or ())
    if emit is not None:
        names = sorted({point.operation for point in points})
        typer.echo(calibration["slurm"].job(plan.value, names, output or Path("profile.json")), nl=False)
        return
    if dry_run:
        _show_plan(points, as_json)
        return
    path = output if output is not None else _own_path(calibration)
    if calibration["collectives"].launched() or list(op or ()) == [COLLECTIVES]:
        _collectives(calibration, path, plan, resume, as_json)
        return
    profile, complete = measure(calibration, _machine(calibration), points, path, resume=resume, limit=max_seconds)
    result = finish(profile, path, gpu)
    if as_json:
        typer.echo(json.dumps({"path": str(path), "complete": complete, **result}, allow_nan=False))
    else:
        from hyscale_model.report.calibration import render_fits
        from hyscale_model.report.canvas import make_console

        render_fits(result, make_console())
    _say_next(result, path, complete, plan)


def _calibration() -> dict[str, Any]:
    """Modules of the package of the measurements, which is imported only when asked for.

    Raises:
        InputError: it is not installed; the message says what to install.
    """
    from importlib import import_module

    names = ("collectives", "machine", "plan", "profile_file", "progress", "session", "slurm", "benches.registry")
    try:
        return {name.rpartition(".")[2]: import_module(f"hyscale_calibration.{name}") for name in names}
    except ImportError as error:
        raise InputError(
            f"hyscale calibrate needs a package that is not installed: {error}", "calibrate", expected=INSTALL
        ) from None


def _points(calibration: Mapping[str, Any], level: str, operations: Sequence[str]) -> list[Point]:
    known = calibration["registry"].NAMES
    for name in operations:
        if name not in (*known, COLLECTIVES):
            from hyscale_model.scenario.fields import suggest

            raise InputError(f"there is no operation {name!r}", "--op", expected=suggest(name, (*known, COLLECTIVES)))
    if list(operations) == [COLLECTIVES]:
        return []
    found: list[Point] = calibration["plan"].plan(level, operations)
    if not found:
        raise InputError(f"the plan {level} has no points of {', '.join(operations)}", "--op")
    return found


def _machine(calibration: Mapping[str, Any]) -> Machine:
    """The GPU of this machine; a test puts another in its place."""
    from hyscale_calibration.benches.arguments import UsageError
    from hyscale_calibration.gpu import GpuMachine

    try:
        return GpuMachine.current()
    except UsageError as error:
        raise InputError(str(error), "calibrate", expected="a CUDA GPU, or --dry-run") from None


def _own_path(calibration: Mapping[str, Any]) -> Path:
    """A file of the user's data directory, named after the host."""
    import platform

    from hyscale_model.locations import user_profile_directory

    folder = user_profile_directory()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{platform.node() or 'this-machine'}.json"


def measure(
    calibration: Mapping[str, Any],
    machine: Machine,
    points: Sequence[Point],
    path: Path,
    *,
    resume: bool,
    limit: float | None,
) -> tuple[dict[str, Any], bool]:
    """The profile with what was measured, and whether the plan is complete.

    Raises:
        InputError: the file cannot be continued or written, or the machine cannot go on; what was measured is kept.
    """
    errors = (calibration["profile_file"].ProfileError, calibration["machine"].MachineLost)
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", file=str(path.parent), field="--output")
    with calibration["progress"].shown(sys.stderr) as tell:
        session = calibration["session"].Session(machine, path, tell)
        try:
            session.begin(sorted({point.operation for point in points}), resume=resume)
            complete = session.run(points, max_seconds=limit)
        except errors as error:
            raise InputError(str(error), "calibrate") from None
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=str(path), field="--output") from None
        except KeyboardInterrupt:
            say(f"interrupted; {path} holds what was measured, --resume continues")
            raise
    return session.profile, complete


def finish(profile: Mapping[str, Any], path: Path, gpu: str | None = None) -> dict[str, Any]:
    """Fit a profile, write it, and return what is told of it.

    Raises:
        InputError: the GPU's peaks are not known; the measurements are kept without fits.
    """
    from hyscale_calibration.fits import missed_bars
    from hyscale_calibration.fitted import with_fits
    from hyscale_calibration.profile_file import ProfileError, write

    try:
        fitted = with_fits(profile, gpu)
    except ProfileError as error:
        raise InputError(f"{path} holds the measurements, but {error}", "calibrate") from None
    write(path, fitted)
    return {
        "name": fitted["name"],
        "gpu": fitted["gpu"],
        "measured": len(fitted["measurements"]),
        "failed": fitted["failed"],
        "collectives": fitted["collectives"],
        "fits": fitted["fits"],
        "missed_bars": missed_bars(fitted["fits"]["held_out"]),
    }


def _collectives(calibration: Mapping[str, Any], path: Path, plan: Plan, resume: bool, as_json: bool) -> None:
    """Measure collectives on every rank; the first one writes them."""
    try:
        found = calibration["collectives"].measure_into(path, plan.value, resume=resume)
    except calibration["profile_file"].ProfileError as error:
        raise InputError(str(error), "calibrate") from None
    if found is None:
        return
    if as_json:
        typer.echo(json.dumps({"path": str(path), "collectives": found}, allow_nan=False))
    else:
        for line in calibration["collectives"].told(found):
            typer.echo(line)
    say(f"wrote {path}")


def _show_plan(points: Sequence[Point], as_json: bool) -> None:
    total = sum(point.estimate_s for point in points)
    if as_json:
        rows = [{"id": point.id, "part": point.part, "estimate_s": point.estimate_s} for point in points]
        typer.echo(json.dumps({"points": rows, "estimate_s": total}, allow_nan=False))
        return
    for point in points:
        typer.echo(f"{point.estimate_s:7.2f} s  {point.part:8}  {point.id}")
    typer.echo(f"{len(points)} points, about {total:.0f} s on an H200")


def _say_next(result: Mapping[str, Any], path: Path, complete: bool, plan: Plan) -> None:
    """What to type next."""
    if result["failed"]:
        say(f"{len(result['failed'])} points failed; {path} holds their messages, --resume tries them again")
    for bar in result["missed_bars"]:
        say(f"missed: {bar}")
    if not complete:
        say(f"cut short: hyscale calibrate --plan {plan.value} --resume --output {path}")
    say(f"wrote {path}\nNext: hyscale predict SCENARIO --set profile={path}")
