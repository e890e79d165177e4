"""Tables of the catalogue: models and GPUs, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from hyscale_model.report import canvas
from hyscale_model.report.units import MIB, NOTHING, count, finite, or_nothing, significant

# What a layer's short name means.
KINDS: Mapping[str, str] = {
    "dsa": "DeepSeek sparse attention",
    "dsa_shared": "the same with the selection of an earlier layer",
    "csa": "compressed sparse attention",
    "hca": "heavily compressed attention",
    "swa": "sliding window",
    "qsa": "Qwen sparse attention",
    "gdn": "Gated DeltaNet",
    "gqa": "grouped-query attention",
    "mla": "dense latent attention",
    "mha": "multi-head attention",
}


def render_models(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Size, keys and FLOP of one token, and layers of each model."""
    head = ["model", "total\n1e9", "active\n1e9", "scored\n1e6 keys", "attended\n1e6 keys", "forward\nGFLOP", "layers"]
    table = [
        [
            canvas.printable(row["name"]),
            _scaled(row["parameters"], 1e9),
            _scaled(row["active_parameters"], 1e9),
            _scaled(row["keys_scored"], 1e6, digits=3),
            _scaled(row["keys_attended"], 1e6, digits=3),
            _scaled(_total(row["token_flops"]), 1e9),
            ", ".join(f"{number} {kind}" for kind, number in row["layers"]["attention"].items()),
        ]
        for row in rows
    ]
    console.print(canvas.plain_table(head, table, left=(0, 6), fold=(6,)))
    used = dict.fromkeys(kind for row in rows for kind in row["layers"]["attention"])
    console.print()
    canvas.sentence(
        console,
        "total, active: parameters, embedding and head included; multi-token prediction, hyper-connections and n-gram "
        f"tables are not. Keys and FLOP: of the token at position {_position(rows)}, forward, over all layers.",
        "dim",
    )
    canvas.sentence(console, "; ".join(f"{kind}: {KINDS[kind]}" for kind in used if kind in KINDS) + ".", "dim")


def render_gpus(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Peaks of each GPU."""
    head = ["gpu", "architecture", "SMs", "BF16\nTFLOP/s", "FP8\nTFLOP/s", "HBM\nTB/s", "memory\nMiB", "NVLink\nGB/s"]
    table = [
        [
            canvas.printable(row["name"]),
            canvas.printable(row["architecture"] or NOTHING),
            or_nothing(row["sms"], count),
            _scaled(row["bf16_flops"], 1e12),
            _scaled(row["fp8_flops"], 1e12),
            _scaled(row["hbm_bytes_per_s"], 1e12),
            or_nothing(row["memory_bytes"], lambda value: count(finite(value) / MIB)),
            _scaled(row["nvlink_bytes_per_s"], 1e9),
        ]
        for row in rows
    ]
    console.print(canvas.plain_table(head, table, left=(0, 1)))
    console.print()
    canvas.sentence(console, "TFLOP/s without sparsity; memory as the driver reports it; NVLink one way.", "dim")


def _scaled(value: Any, unit: float, digits: int = 4) -> str:
    return or_nothing(value, lambda number: significant(finite(number) / unit, digits))


def _total(flops: Mapping[str, float] | None) -> float | None:
    return None if flops is None else sum(flops.values())


def _position(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(count(row["position"]) for row in rows))
