"""A Slurm job that calibrates on as many GPUs as the queue gives, and merges what they measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hyscale_calibration.plan import Level

_SCRIPT = """#!/bin/bash
#SBATCH --job-name=hyscale-calibrate
#SBATCH --gpus-per-node=1
#SBATCH --nodes=1
#SBATCH --time=01:00:00
#SBATCH --array=0-{last}
#SBATCH --output={folder}/%a.log
# One operation a task; a task that was cut short continues when the job is submitted again.
set -euo pipefail
operations=({operations})
operation=${{operations[$SLURM_ARRAY_TASK_ID]}}
part={folder}/$operation.json
mkdir -p {folder}
resume=$([ -e "$part" ] && echo --resume || true)
srun hyscale calibrate --plan {level} --op "$operation" --output "$part" $resume

# When all tasks are through:
#   hyscale profile merge {folder}/*.json --output {output}
# Collectives need all GPUs of a node, or of several:
#   srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 --rdzv-backend=c10d \\
#     --rdzv-endpoint=$(hostname):29500 \\
#     -m hyscale_model.cli.main calibrate --op collectives --output {folder}/collectives.json
"""


def job(level: Level, operations: Sequence[str], output: Path) -> str:
    """The text of the job: an array with a task an operation, and the commands that follow it."""
    folder = shlex.quote(f"{output.with_suffix('')}-parts")
    return _SCRIPT.format(
        last=len(operations) - 1,
        operations=" ".join(operations),
        level=level,
        folder=folder,
        output=shlex.quote(str(output)),
    )
