"""Train a small transformer as several systems side by side, and record where they differ and what a step takes.

Runs are ``<system>``, deterministic and without pairs of queries, ``<system>/pairs``, with them, or
``<system>/atomic``, whose kernels add in any order. The task is to recall what stood beside a key further back than
attention reads at a time. Exit status: 0 fine, 2 bad arguments or no GPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hyscale_calibration.kernel_hash import hash_of_sources
from hyscale_calibration.layers.__main__ import sources
from hyscale_calibration.profile_file import catalogue_name
from hyscale_calibration.progress import left
from hyscale_calibration.training.runs import RUNS

# Torch refuses deterministic products unless cuBLAS is told so before the device is first used.
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (those of the process by default) and return its exit status."""
    import torch

    os.environ.setdefault(*WORKSPACE)
    if not torch.cuda.is_available():
        # Before Triton is imported: without a GPU it can only interpret.
        os.environ.setdefault("TRITON_INTERPRET", "1")
    options = _parser().parse_args(arguments)
    try:
        return _train(options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _train(options: argparse.Namespace) -> int:
    import torch

    from hyscale_calibration.training.model import Sizes
    from hyscale_calibration.training.record import Record
    from hyscale_calibration.training.runs import run_named
    from hyscale_calibration.training.session import train
    from hyscale_calibration.training.sizes import SETTINGS
    from hyscale_calibration.training.trainer import Recipe, Step, Trainer

    setting, recipe = SETTINGS[options.size], Recipe()
    runs = [run_named(name) for name in options.run or RUNS]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and options.size != "tiny":
        raise ValueError(f"size {options.size} needs a CUDA GPU; without one there is --size tiny")
    stages = [_stage(text) for text in options.stage] or setting.stages
    steps = options.steps or sum(stage.steps for stage in stages)
    record = Record(
        {
            **_machine(device),
            "model": dict(setting.model),
            "task": asdict(setting.task),
            "stages": [asdict(stage) for stage in stages],
            "recipe": asdict(recipe),
        }
    )
    sizes = Sizes.of(dict(setting.model))
    trainers = [Trainer(run, sizes, setting.task.tokens, recipe, device) for run in runs]
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    began = time.monotonic()

    def stopped() -> bool:
        return bool(ended) or (options.max_seconds is not None and time.monotonic() - began > options.max_seconds)

    def say(step: int, told: dict[str, Step]) -> None:
        spent = time.monotonic() - began
        losses = ", ".join(f"{name} {each.loss:.4f} {each.time_ms:.0f} ms" for name, each in told.items())
        print(
            f"[{step + 1}/{steps}, {left(spent / (step + 1) * (steps - step - 1))} left] {losses}",
            file=sys.stderr,
            flush=True,
        )

    done = train(
        trainers,
        setting.task,
        stages,
        steps,
        record,
        options.json,
        atomic_steps=options.atomic_steps,
        say=say,
        stopped=stopped,
    )
    for each in record.data()["comparisons"]:
        first = ", ".join(f"{what} {'never' if at is None else at}" for what, at in each["first_difference"].items())
        apart = each["loss_difference"]["largest"]
        print(f"{' and '.join(each['runs'])}, {each['steps']} steps: first difference of {first}; {apart:.2e} at most")
    print(f"{done} steps of {len(runs)} runs; {options.json}")
    return 0


def _stage(text: str) -> Any:
    from hyscale_calibration.training.session import Stage

    steps, _, document = text.partition("x")
    if not (steps.isdecimal() and document.isdecimal()):
        raise ValueError(f"a stage is steps and tokens of a document, such as 50x512, not {text!r}")
    return Stage(steps=int(steps), document=int(document))


def _machine(device: str) -> dict[str, Any]:
    """The device in the catalogue's name and its own words, and which kernels ran on it."""
    import torch

    files = sources()
    kernels = {"kernel_hash": hash_of_sources(files), "sources": files}
    if device != "cuda":
        return {"gpu": None, "device": {"name": device, "torch": torch.__version__}, **kernels}
    from hyscale_calibration.benches.device import Gpu

    gpu = Gpu()
    described = gpu.description()
    return {"gpu": catalogue_name(described), "device": {**described, "driver": gpu.driver()}, **kernels}


def _parser() -> argparse.ArgumentParser:
    from hyscale_calibration.training.sizes import SETTINGS

    parser = argparse.ArgumentParser(
        prog="python -m hyscale_calibration.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="the record, written as it goes")
    parser.add_argument(
        "--run", action="append", default=[], metavar="NAME", help=f"only this one; may be repeated. {', '.join(RUNS)}"
    )
    parser.add_argument("--size", choices=sorted(SETTINGS), default="small", help="of the model and its task")
    parser.add_argument(
        "--stage",
        action="append",
        default=[],
        metavar="STEPSxTOKENS",
        help="in place of the setting's stages: steps on documents of so many tokens; may be repeated",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="those of the stages unless told")
    parser.add_argument(
        "--atomic-steps",
        type=int,
        default=40,
        metavar="N",
        help="of the last stage, of runs that are not deterministic",
    )
    parser.add_argument("--max-seconds", type=float, metavar="N", help="begin no step that late; SIGTERM ends it too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
