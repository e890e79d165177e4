"""Measure whole layers on the CUDA GPU of this machine, or with --cp on several of them.

Under torchrun, ``--cp`` shares a layer between its processes by context parallelism, with real collectives:

    torchrun --nproc-per-node 2 -m hyscale_calibration.layers --cp --json layers-cp2.json

Layers are checked at small sizes before anything is timed. Exit status: 0 fine, 1 a check or a layer failed, 2 bad
arguments or no GPU, 130 interrupted; what was measured until then is written.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyscale_calibration.benches.arguments import UsageError, count
from hyscale_calibration.benches.operation import CheckFailed
from hyscale_calibration.benches.record import write
from hyscale_calibration.kernel_hash import hash_of_sources, source_paths
from hyscale_calibration.layers.across.command import MAX_SECONDS
from hyscale_calibration.layers.cases import Case, all_cases, all_systems
from hyscale_calibration.profile_file import catalogue_name

# Steps that are timed whole.
SAMPLES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (those of the process by default) and return its exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(options)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def sources() -> list[str]:
    """Files of kernels that a layer runs: all of them but oracles, named relative to ``hyscale_kernels``."""
    (root,) = source_paths([""])
    found = (path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    return sorted(path for path in found if not path.endswith("reference.py"))


def _run(options: argparse.Namespace) -> int:
    if options.cp:
        from hyscale_calibration.layers.across.command import run

        return run(options, _recorded)
    from hyscale_calibration.benches.__main__ import find_gpu
    from hyscale_calibration.layers.check import check_layers

    gpu = find_gpu()
    cases = [case for case in all_cases() if not options.case or any(text in case.name for text in options.case)]
    systems = options.system or all_systems()
    if not cases:
        raise UsageError(f"no case is called so, there are {', '.join(case.name for case in all_cases())}")
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    status = 0
    try:
        if not options.unchecked:
            for line in check_layers(cases, gpu.name):
                print(line, flush=True)
        if options.check_only:
            return 0
        for case in cases:
            for system in systems:
                _one(case, system, options.samples, gpu, rows, failures)
                if options.json:
                    write(options.json, _recorded(gpu, rows, failures))
        for system in options.trace_system if options.trace else ():
            print(f"wrote {trace(cases[0], system, options.trace, gpu.name)}", flush=True)
    except CheckFailed as error:
        print(f"error: check failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    if options.json and rows:
        write(options.json, _recorded(gpu, rows, failures))
    from hyscale_calibration.layers.measure import row_table

    for line in row_table(rows):
        print(line)
    for line in failures:
        print(f"FAILED {line}", file=sys.stderr)
    return status or int(bool(failures))


def _one(case: Case, system: str, samples: int, gpu: Any, rows: list[dict[str, Any]], failures: list[str]) -> None:
    import torch

    from hyscale_calibration.layers.measure import measured, row_table

    try:
        rows.append(measured(case, system, samples, gpu))
        print(row_table(rows[-1:])[1], flush=True)
    except Exception as error:
        failures.append(f"{case.name} {system}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        print(f"FAILED {failures[-1]}", flush=True)
        error.__traceback__ = None
    gc.collect()
    torch.cuda.empty_cache()


def trace(case: Case, system: str, folder: Path, device: str) -> Path:
    """Write a Chrome trace of one step, gzipped.

    Returns:
        The file.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    from hyscale_calibration.layers.layer import Options
    from hyscale_calibration.layers.measure import Bench

    bench = Bench.of(case, system, Options(), device)
    for _ in range(2):
        bench.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        bench.step()
        torch.cuda.synchronize()
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / f"{case.model}-{case.length}-{system}.json"
    profiler.export_chrome_trace(str(plain))
    packed = plain.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    return packed


def _recorded(gpu: Any, rows: list[dict[str, Any]], failures: list[str]) -> dict[str, Any]:
    from hyscale_kernels.sparse_attention.pairs import TOGETHER

    files, device = sources(), gpu.description()
    return {
        "gpu": catalogue_name(device),
        "device": {**device, "driver": gpu.driver()},
        "kernel_hash": hash_of_sources(files),
        "sources": files,
        # Queries that share a pass where a system pairs them.
        "together": TOGETHER,
        "failed": failures,
        "rows": rows,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hyscale_calibration.layers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--case", action="append", default=[], metavar="TEXT", help="cases whose name has this")
    parser.add_argument("--system", action="append", default=[], choices=all_systems(), help="only this system")
    parser.add_argument("--samples", type=count, default=SAMPLES, metavar="N", help="steps that are timed")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write results")
    parser.add_argument("--trace", type=Path, metavar="FOLDER", help="write a Chrome trace of the first case")
    parser.add_argument("--trace-system", action="append", default=[], choices=all_systems(), help="whose trace")
    parser.add_argument("--cp", action="store_true", help="share a layer between the processes of torchrun")
    limit = "with --cp: begin no layer that would end later"
    parser.add_argument("--max-seconds", type=float, default=MAX_SECONDS, metavar="N", help=limit)
    parser.add_argument("--check-only", action="store_true", help="check layers and time none")
    parser.add_argument("--unchecked", action="store_true", help="time layers without checking them first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
