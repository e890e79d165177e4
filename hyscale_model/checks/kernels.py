"""Published times of single kernels on Hopper GPUs, beside what a profile measured elsewhere says of them.

Tests the rules of transfer (``rates.transfer``), so the bars are over GPUs that were not measured, and over the library
whose kernels the profile measured. The measured GPU in other hands shows what is left without a transfer; another
library's kernels show how far apart libraries are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hyscale_model import catalog
from hyscale_model.catalog import measured
from hyscale_model.checks.bars import bar
from hyscale_model.errors import InputError, UnpricedError
from hyscale_model.layers.operation import Operation
from hyscale_model.layers.sizes import BF16_BYTES
from hyscale_model.layers.tiles import product_turns
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import gpu_named, load_profile
from hyscale_model.rates.profile import Profile
from hyscale_model.rates.roofline import Rates
from hyscale_model.summary import interval

GROUP = "kernels"
KIND = "kernels"
TRANSFERRED = "transferred"
# For GPUs of the same architecture that nobody has measured.
USUAL_PROFILE = "h200-sxm"
MEDIAN_BAR, COVERAGE_BAR = 0.12, 0.7
_BYTES = {"bf16": 2, "fp8": 1}
_QUERY_TILE = 128

Shape = Mapping[str, float]


def _gemm(shape: Shape, precision: str) -> Operation:
    m, n, k, groups = shape["m"], shape["n"], shape["k"], shape.get("groups", 1)
    size = _BYTES[precision]
    return Operation(
        family="grouped_gemm" if "groups" in shape else "gemm",
        flops=2.0 * m * n * k,
        hbm_bytes=size * (m * k + groups * n * k) + float(BF16_BYTES * m * n),
        fp8=float(precision == "fp8"),
        units=lambda: {"values": m * n},
        turns=lambda sms: float(product_turns(m, n, sms, groups)),
    )


def _attention(shape: Shape, precision: str) -> Operation:
    length, heads, widths = shape["L"], shape["heads"], shape["D"] + shape["V"]
    logits = length * (length + 1) / 2 * heads
    programs = -(-length // _QUERY_TILE) * heads
    return Operation(
        family="dense_attention_forward",
        flops=2.0 * logits * widths,
        hbm_bytes=float(BF16_BYTES * length * (heads + shape["groups"]) * widths),
        units=lambda: {"logits": logits},
        turns=lambda sms: -(-programs // sms) * sms / programs,
    )


def _scoring(shape: Shape, precision: str) -> Operation:
    pairs = shape["n"] * shape["L"]
    return Operation(
        family="index_scoring.filter",
        flops=2.0 * pairs * shape["H"] * shape["D"],
        hbm_bytes=pairs / 8 + _BYTES[precision] * shape["D"] * (shape["n"] * shape["H"] + shape["L"]),
        fp8=float(precision == "fp8"),
        units=lambda: {"products": pairs * shape["H"], "scores": pairs},
    )


# Operation of a row of a file by its ``kernel``.
KERNELS: Mapping[str, Callable[[Shape, str], Operation]] = {
    "gemm": _gemm,
    "grouped_gemm": _gemm,
    "dense_attention_forward": _attention,
    "index_scoring.filter": _scoring,
}


def kernel_rows(profile: str | None, draws: int, seed: int) -> list[dict[str, Any]]:
    """Every published kernel and what the profile says of it; or, of a profile whose GPU was predicted in advance,
    those predictions and what it measured.

    Raises:
        InputError: there is no such profile, or a file of the catalogue is not as it should be.
    """
    own = own_rows(profile) if profile is not None else []
    if own:
        return own
    rates: dict[str, Rates] = {}
    rows = []
    for name in catalog.names(KIND):
        file = catalog.document(KIND, name).data
        gpu = str(file["gpu"])
        if gpu not in rates:
            found = load_profile(profile or measured.for_gpu(gpu) or _usual())
            rates[gpu] = Rates(found, gpu_named(gpu), Draws(draws, seed), gpu_named)
        rows += _rows(name, file, gpu, rates[gpu])
    return rows


def _usual() -> str:
    return USUAL_PROFILE if USUAL_PROFILE in measured.paths() else "published"


def _rows(name: str, file: Mapping[str, Any], gpu: str, rates: Rates) -> list[dict[str, Any]]:
    columns, kernel, precision = file["columns"], str(file["kernel"]), str(file["precision"])
    if kernel not in KERNELS or columns[-1] != "ms":
        raise InputError(
            f"kernel {kernel} with columns {', '.join(columns)}",
            file=f"hyscale_model/catalog/{KIND}/{name}.yaml",
            expected=f"one of {', '.join(KERNELS)}, and times in the last column, ms",
        )
    shapes = [dict(zip(columns[:-1], row[:-1], strict=True)) for row in file["rows"]]
    operations = [KERNELS[kernel](shape, precision) for shape in shapes]
    try:
        predicted = rates.seconds([rates.alone(each) for each in operations])[:, 0]
    except UnpricedError:
        return []
    split = split_of(str(file["library"]), gpu, rates.profile, kernel)
    return [
        compared(
            f"{gpu} {kernel} {' '.join(f'{key}={value}' for key, value in shape.items())}",
            seconds=row[-1] * 1e-3,
            predicted=interval(draws[None, :]),
            family=f"{gpu}: {kernel}" + (", other library" if split == "other" else ""),
            source=str(file["source"]),
            split=split,
        )
        for shape, row, draws in zip(shapes, file["rows"], predicted, strict=True)
    ]


def split_of(library: str, gpu: str, profile: Profile, kernel: str) -> str:
    """``transferred``: of the kernels that a profile measured, on another GPU; ``same_gpu``: on that GPU; ``other``."""
    fitted = profile.family(kernel).fitted
    if library != "same" or fitted is None:
        return "other"
    return "same_gpu" if fitted.gpu == gpu else TRANSFERRED


def compared(
    identity: str, *, seconds: float, predicted: Mapping[str, float], family: str, source: str, split: str
) -> dict[str, Any]:
    """One row of the result."""
    return {
        "group": GROUP,
        "split": split,
        "family": family,
        "id": identity,
        "metric": "kernel.time_s",
        "relation": "equal",
        "reported": seconds,
        "predicted": dict(predicted),
        "error": predicted["nominal"] / seconds - 1,
        "inside": predicted["p10"] <= seconds <= predicted["p90"],
        "floor": None,
        "note": None,
        "source": source,
    }


def own_rows(profile: str) -> list[dict[str, Any]]:
    """Points of a measured profile beside what was predicted of its GPU before anyone measured it."""
    path = measured.paths().get(profile)
    data = measured.read(path) if path is not None else None
    gpu = data.get("gpu") if data is not None else None
    file = predicted_file(str(gpu))
    if data is None or file is None:
        return []
    # Of kernels that changed in between, a prediction says nothing.
    same = {name for name, kernel in data["kernels"].items() if file["kernels"].get(name, ...) == kernel}
    times = {
        entry["id"]: entry["median_ms"] * 1e-3
        for entry in data["measurements"]
        if entry["id"].partition("/")[0] in same
    }
    return [
        compared(
            f"{gpu} {row['id']}",
            seconds=times[row["id"]],
            predicted={"nominal": row["s"], "p50": row["s"], "p10": row["p10_s"], "p90": row["p90_s"]},
            family=f"{gpu}: {row['family']}",
            source=f"measured by {profile}; predicted in advance from {file['profile']}",
            split=TRANSFERRED,
        )
        for row in file["rows"]
        if row["id"] in times
    ]


def predicted_file(gpu: str) -> Mapping[str, Any] | None:
    """What was predicted of a GPU in advance; None where nothing was."""
    for folder in measured.folders():
        path = folder.parent / "results" / "predicted" / f"{gpu}.json"
        if path.is_file():
            found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
    return None


def kernel_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Errors by GPU and family, and the bars over ``transferred`` rows.

    ``by_family`` has the worst row of each.
    """
    families = {
        family: errors_of([row for row in rows if row["family"] == family])
        for family in dict.fromkeys(row["family"] for row in rows)
    }
    moved = errors_of([row for row in rows if row["split"] == TRANSFERRED])
    bars = []
    if moved["n"]:
        bars = [
            bar("median error", moved["median"], at_most=MEDIAN_BAR),
            bar("coverage of the 80 % interval", moved["coverage"], at_least=COVERAGE_BAR),
        ]
    return {"by_family": families, "transferred": moved, "bars": bars}


def errors_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median, bias, coverage and worst of rows that have an error; of none, that there are none."""
    rows = [row for row in rows if row["error"] is not None]
    if not rows:
        return {"n": 0}
    errors = np.array([row["error"] for row in rows])
    worst = rows[int(np.abs(errors).argmax())]
    # What has no draws has no interval to be inside of.
    inside = [row["inside"] for row in rows if row["inside"] is not None]
    return {
        "n": len(rows),
        "median": float(np.median(np.abs(errors))),
        "bias": float(np.median(errors)),
        "coverage": float(np.mean(inside)) if inside else None,
        "worst": {"id": worst["id"], "error": worst["error"]},
    }
