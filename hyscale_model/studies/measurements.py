"""What ``hyscale calibrate`` can measure, which of it to measure first, and what to type for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyscale_model.rates.load import gpu_named
from hyscale_model.scenario.schema import Gpu, Scenario
from hyscale_model.studies.measuring import Measurement, measure_first

# Estimates of a plan are for this GPU; another takes longer by what it is slower in.
ESTIMATED_ON = "h200"
# Starting processes and NCCL, and 5 collectives at 7 sizes of 16 MiB at most: assumed, of two nodes.
COLLECTIVES_S = 60.0
COLLECTIVES = "collectives"
PROFILE = "mine.json"
LINKS = frozenset({"cluster.nic_efficiency", "cluster.alltoall_efficiency", "cluster.nvlink_efficiency"})


def first_measurements(scenario: Scenario, *, minutes: float, seed: int = 0) -> dict[str, Any] | None:
    """``measure_first`` of what can be measured on the scenario's GPU, for its last system over its first.

    Beside its JSON there are ``commands`` to type. None where there is no time, or no calibration installed.
    """
    able = measurements(scenario.cluster.gpu) if minutes else []
    if not able:
        return None
    pair = scenario.systems[0], scenario.systems[-1]
    found = measure_first(scenario, pair, able, budget_s=60 * minutes, seed=seed)
    chosen = [row["name"] for row in found["measurements"] if row["chosen"]]
    return found | {"commands": commands(chosen, 60 * minutes, scenario.cluster.gpus_per_node)}


def measurements(gpu: Gpu) -> list[Measurement]:
    """The operations of the quick plan with their seconds on a GPU; none where the calibration is not installed."""
    try:
        from hyscale_calibration.plan import plan
        from hyscale_calibration.work import families_of
    except ImportError:
        return []
    known = gpu_named(ESTIMATED_ON)
    slower = max(1.0, known.bf16_flops / gpu.bf16_flops, known.hbm_bytes_per_s / gpu.hbm_bytes_per_s)
    found = [Measurement(COLLECTIVES, COLLECTIVES_S, paths=LINKS)]
    for name in dict.fromkeys(point.operation for point in plan("quick")):
        points = plan("quick", [name], slower)
        seconds = sum(point.estimate_s for point in points)
        found.append(Measurement(name, seconds, families=families_of(points)))
    return found


def commands(names: Sequence[str], budget_s: float, gpus_per_node: int) -> list[str]:
    """What to type to make these measurements, in that order of importance."""
    kernels = [name for name in names if name != COLLECTIVES]
    found = []
    if kernels:
        chosen = " ".join(f"--op {name}" for name in kernels)
        found.append(f"hyscale calibrate --plan quick {chosen} --max-seconds {budget_s:.0f} --output {PROFILE}")
    if COLLECTIVES in names:
        launch = f"torchrun --nnodes=2 --nproc-per-node={gpus_per_node} --rdzv-backend=c10d --rdzv-endpoint=HOST:29500"
        found.append(f"{launch} -m hyscale_model.cli.main calibrate --op {COLLECTIVES} --output collectives.json")
    return found
