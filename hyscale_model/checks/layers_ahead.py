"""Whole layers on GPUs predicted in advance: ``results/predicted/layers/<gpu>.json``.

Whoever owns the GPU measures them with ``python -m hyscale_calibration.layers`` and compares with
``hyscale check --group layers --profile NAME``. With ``--cp`` layers that several GPUs share, which are measured with
the option of that name: ``results/predicted/layers-cp/<gpu>.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyscale_model import catalog
from hyscale_model.checks.kernels import USUAL_PROFILE
from hyscale_model.checks.layers import USUAL_SHARED_KEYS, Layer, as_json, predict_layer
from hyscale_model.checks.layers_across import predict_shared, shared_layers
from hyscale_model.errors import InputError
from hyscale_model.rates.load import load_profile

DRAWS, SEED = 256, 0
DIGITS = 5


def layers() -> list[Layer]:
    """Those of the catalogue, as every system."""
    file = catalog.document("layers", "one-rank").data
    return [
        Layer(
            model=row["model"],
            layer=row["layer"],
            system=system,
            length=row["sequence_length"],
            ranks=row["cp"],
            shared_keys=USUAL_SHARED_KEYS,
        )
        for row in file["rows"]
        for system in file["systems"]
    ]


def predictions(gpu: str, profile: str, kernel_hash: str | None = None) -> dict[str, Any]:
    """What a profile says of every layer on a GPU, with intervals.

    Args:
        gpu: of the catalogue; profile: measured.
        kernel_hash: of the kernels that predictions are of, None: whatever is measured.

    Raises:
        InputError: there is no such GPU or profile.
    """
    rates = load_profile(profile)
    rows = [{"id": each.id, **_short(as_json(predict_layer(each, gpu, rates, DRAWS, SEED)))} for each in layers()]
    head = {"schema_version": 1, "gpu": gpu, "profile": rates.name, "kernel_hash": kernel_hash}
    return {**head, "shared_keys": USUAL_SHARED_KEYS, "rows": rows}


def shared_predictions(gpu: str, profile: str, kernel_hash: str | None = None) -> dict[str, Any]:
    """What a profile says of every layer that several GPUs share, as ``predictions``.

    Raises:
        InputError: there is no such GPU or profile.
    """
    rates = load_profile(profile)
    rows = [{"id": each.id, **_short(predict_shared(each, gpu, rates, DRAWS, SEED))} for each in shared_layers()]
    head = {"schema_version": 1, "gpu": gpu, "profile": rates.name, "kernel_hash": kernel_hash}
    return {**head, "shared_keys": USUAL_SHARED_KEYS, "rows": rows}


def _short(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _short(value) for key, value in found.items()}
    return float(f"{found:.{DIGITS}g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the predictions of GPUs into a folder."""
    parser = argparse.ArgumentParser(prog="python -m hyscale_model.checks.layers_ahead", description=__doc__)
    parser.add_argument("gpus", nargs="+", metavar="GPU", help="name in the catalogue")
    parser.add_argument("--profile", default=USUAL_PROFILE, help="a measured profile")
    parser.add_argument("--cp", action="store_true", help="layers that several GPUs share")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        for gpu in options.gpus:
            of = shared_predictions if options.cp else predictions
            text = json.dumps(of(gpu, options.profile), indent=1) + "\n"
            options.output.mkdir(parents=True, exist_ok=True)
            (options.output / f"{gpu}.json").write_text(text, encoding="utf-8")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
