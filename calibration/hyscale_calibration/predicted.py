"""Times of a plan's points on a GPU that nobody here has, predicted in advance: ``results/predicted/<gpu>.json``.

Whoever owns the GPU measures the same points with ``hyscale calibrate`` and compares with
``hyscale check --group kernels --profile NAME``; docs/calibration.md has the procedure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyscale_calibration.plan import plan
from hyscale_calibration.profile_file import short
from hyscale_calibration.work import Work, work_of
from hyscale_model.catalog import measured
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import gpu_named, load_profile
from hyscale_model.rates.roofline import Rates

DRAWS, SEED = 256, 0


def operation_of(work: Work, sms: int) -> Operation:
    """The work of a point as an operation of the model, on a GPU of so many SMs."""
    turns = {unit: count(sms) for unit, count in work.unit_turns.items()}
    units = {unit: amount * turns.get(unit, 1.0) for unit, amount in work.units.items()}
    return Operation(
        family=work.family,
        flops=work.flops,
        hbm_bytes=work.hbm_bytes + work.passed_bytes,
        passed_bytes=work.passed_bytes,
        fp8=float(work.fp8),
        launches=work.launches,
        units=lambda: units,
        turns=work.turns,
    )


def predictions(gpu: str, profile: str) -> dict[str, Any]:
    """Times of the points of the full plan, with intervals; what the profile has no law of is left out.

    Raises:
        InputError: there is no such GPU or profile.
    """
    known, base = gpu_named(gpu), load_profile(profile)
    rates = Rates(base, known, Draws(DRAWS, SEED), gpu_named)
    rows = []
    for point in plan("full"):
        work = work_of(point.row, point.dtype, point.shape)
        if point.sms or work is None:
            continue
        try:
            if base.family(work.family).fitted is None:
                continue
            draws = rates.seconds([rates.alone(operation_of(work, known.sms))])[0, 0]
        except UnpricedError:
            continue
        low, high = np.quantile(draws[1:], [0.1, 0.9])
        rows.append(
            {"id": point.id, "family": work.family, "s": short(draws[0]), "p10_s": short(low), "p90_s": short(high)}
        )
    kernels = measured.read(measured.paths()[profile])["kernels"]
    head = {"schema_version": 1, "gpu": gpu, "profile": base.name, "kernels": dict(sorted(kernels.items()))}
    return {**head, "rows": sorted(rows, key=lambda row: row["id"])}


def dumps(found: dict[str, Any]) -> str:
    """The text of a file of predictions, a row a line."""
    rows = ",\n  ".join(json.dumps(row) for row in found["rows"])
    keys = ("schema_version", "gpu", "profile", "kernels")
    head = "".join(f' "{key}": {json.dumps(found[key])},\n' for key in keys)
    return f'{{\n{head} "rows": [\n  {rows}\n ]\n}}\n'


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the predictions of GPUs into a folder."""
    parser = argparse.ArgumentParser(prog="python -m hyscale_calibration.predicted", description=__doc__)
    parser.add_argument("gpus", nargs="+", metavar="GPU", help="name in the catalogue")
    parser.add_argument("--profile", default="h200-sxm", help="a measured profile")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        for gpu in options.gpus:
            text = dumps(predictions(gpu, options.profile))
            (options.output / f"{gpu}.json").write_text(text, encoding="utf-8")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
