"""Measure operations on the CUDA GPU of this machine.

Each measurement is checked before it is timed. Exit status: 0 fine, 1 a check or a run failed and nothing is written of
that operation, 2 bad arguments or no GPU, 130 interrupted: what was measured until then is written and says what is
missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hyscale_calibration.benches import registry
from hyscale_calibration.benches.arguments import UsageError, count, parse_shape, select_cases, select_dtypes
from hyscale_calibration.benches.record import write
from hyscale_calibration.benches.runner import INTERRUPTED, Failed, measure
from hyscale_calibration.benches.table import describe_ceilings

if TYPE_CHECKING:
    from hyscale_calibration.benches.device import Gpu


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (those of the process by default) and return its exit status."""
    options = _parser().parse_args(arguments)
    # What stops a run that takes too long, such as a batch system, is an interruption like any other.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.list:
            for name in registry.NAMES:
                print(f"{name:28} {registry.load(name).description}")
            return 0
        return _run(options)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted before anything was measured", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.op))
    if not names:
        raise UsageError(f"name an operation with --op: {', '.join(registry.NAMES)}")
    for name in names:
        if name not in registry.NAMES:
            raise UsageError(f"there is no operation {name!r}, there are {', '.join(registry.NAMES)}")
    values = parse_shape(options.shape) if options.shape else {}
    work = []
    for operation in map(registry.load, names):
        work.append((operation, select_cases(operation, values), select_dtypes(operation, options.dtype)))
    targets = destinations(names, options.json)
    gpu = find_gpu()
    from hyscale_calibration.benches.ceilings import measure_ceilings

    print(gpu.description()["name"])
    ceilings = measure_ceilings(gpu)
    print(describe_ceilings(ceilings), flush=True)
    failed = False
    for operation, cases, dtypes in work:
        print()
        try:
            results = measure(
                operation, cases, dtypes, device=gpu, ceilings=ceilings, samples=options.samples, say=_say
            )
        except Failed as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
            if operation.name in targets:
                print(f"nothing is written of {operation.name}", file=sys.stderr, flush=True)
            continue
        if operation.name in targets:
            write(targets[operation.name], results)
            _say(f"wrote {targets[operation.name]}")
        if any(each["reason"].startswith(INTERRUPTED) for each in results["skipped"]):
            return 130
    return int(failed)


def find_gpu() -> Gpu:
    """The GPU that measurements run on.

    Raises:
        UsageError: torch is missing, or sees no CUDA GPU.
    """
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"benchmarks need torch and Triton, pip install 'hyscale-model[gpu]': {error}") from error
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise UsageError(f"benchmarks need a CUDA GPU; torch {torch.__version__} sees none here")
    from hyscale_calibration.benches.device import Gpu

    return Gpu()


def destinations(names: Sequence[str], path: Path | None) -> dict[str, Path]:
    """Where the results of each operation go: ``path`` itself for one, files in it for several or if it is a folder.

    Raises:
        UsageError: results could not be written there.
    """
    if path is None:
        return {}
    if len(names) > 1 and path.exists() and not path.is_dir():
        raise UsageError(f"--json must be a directory for several operations, {path} is a file")
    into_folder = len(names) > 1 or path.is_dir()
    folder = path if into_folder else path.parent
    # Found out now, not after an hour of measuring.
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--json: {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--json: {folder} cannot be written to")
    return {name: folder / f"{name}.json" if into_folder else path for name in names}


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hyscale_calibration.benches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="show the operations and exit")
    parser.add_argument("--op", action="append", default=[], metavar="NAME", help="an operation; may be repeated")
    parser.add_argument("--dtype", metavar="TYPE", help="only this type of inputs, such as bf16 or fp8")
    parser.add_argument(
        "--shape", metavar="KEY=VALUE,...", help="values in place of those of the cases, such as n=1024"
    )
    parser.add_argument("--samples", type=count, metavar="N", help="timed runs of each measurement")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="write results: a file for one operation, a directory for several"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
