"""Measure this machine's GPU into a profile, without fitting it: needs torch, Triton and nothing of the model.

``hyscale calibrate`` does this and fits; on a machine without the model's packages this measures, and
``hyscale profile merge FILE --output PATH`` fits elsewhere. Under torchrun it measures collectives. Exit status:
0 fine, 2 bad arguments or no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hyscale_calibration.benches import registry
from hyscale_calibration.benches.arguments import UsageError
from hyscale_calibration.collectives import launched, measure_into, told
from hyscale_calibration.gpu import GpuMachine
from hyscale_calibration.machine import MachineLost
from hyscale_calibration.plan import LEVELS, plan
from hyscale_calibration.profile_file import ProfileError
from hyscale_calibration.progress import shown
from hyscale_calibration.session import Session

# Under torchrun nothing else is measured.
COLLECTIVES = "collectives"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (those of the process by default) and return its exit status."""
    options = _parser().parse_args(arguments)
    if launched() or options.op == [COLLECTIVES]:
        return _collectives(options)
    points = plan(options.plan, options.op)
    if options.dry_run:
        for point in points:
            print(f"{point.estimate_s:7.2f} s  {point.part:8}  {point.id}")
        print(f"{len(points)} points, about {sum(point.estimate_s for point in points):.0f} s")
        return 0
    try:
        with shown() as say:
            session = Session(GpuMachine.current(), options.output, say)
            session.begin(sorted({point.operation for point in points}), resume=options.resume)
            complete = session.run(points, max_seconds=options.max_seconds)
    except (UsageError, ProfileError, MachineLost) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counts = Counter(entry["row"] for entry in session.profile["measurements"])
    for row, count in sorted(counts.items()):
        print(f"{row:40} {count:4}")
    print(f"{sum(counts.values())} measured, {len(session.profile['failed'])} failed; {options.output}")
    if not complete:
        print("cut short by --max-seconds; continue with --resume")
    return 0


def _collectives(options: argparse.Namespace) -> int:
    try:
        found = measure_into(options.output, options.plan, resume=options.resume)
    except ProfileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if found is not None:
        print("\n".join((*told(found), str(options.output))))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hyscale_calibration", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="the profile's file")
    parser.add_argument("--plan", choices=LEVELS, default="quick", help="which points")
    parser.add_argument(
        "--op", action="append", default=[], choices=(*registry.NAMES, COLLECTIVES), help="only this operation"
    )
    parser.add_argument("--max-seconds", type=float, metavar="N", help="begin nothing that would end later")
    parser.add_argument("--resume", action="store_true", help="continue a profile that is there")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
