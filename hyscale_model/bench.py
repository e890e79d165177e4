"""How fast the model itself is: ``python -m hyscale_model.bench``, which ``make bench`` runs.

Cold start of ``hyscale predict``, one warm prediction, and points a second: one point is a scenario with its first
and last system, step time and peak memory of both, and with draws the interval of each.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from hyscale_model import catalog
from hyscale_model.evaluate import Evaluator
from hyscale_model.predict import predict
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import profile_of
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.studies.pool import single_thread

SCENARIO = "glm-5.1-1m-512xh20"
DRAWS = 64
WORKERS = 2
# Points evaluated at once: enough to amortise Python, few enough to stay in the caches.
CHUNK = {0: 4096, DRAWS: 128}
CHUNKS = 24


@cache
def shipped() -> Resolved:
    """The shipped scenario of the paper's setting."""
    return read_scenario(SCENARIO, text=catalog.path("published", SCENARIO).read_bytes())


def cold_start_s(runs: int = 5) -> float:
    """Median seconds of ``hyscale predict --json`` in a new interpreter."""
    path = Path(str(catalog.path("published", SCENARIO)))
    command = [sys.executable, "-m", "hyscale_model.cli.main", "predict", str(path), "--json"]
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def warm_prediction_s(runs: int = 50) -> float:
    """Median seconds of one prediction with draws, everything loaded."""
    resolved = shipped()
    predict(resolved, draws=DRAWS)
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        predict(resolved, draws=DRAWS)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def evaluate_chunk(seed: int, points: int, draws: int) -> float:
    """Evaluate random points around the shipped scenario; the mean speed-up, so that nothing is left out."""
    scenario = shipped().scenario
    generator = np.random.default_rng(seed)
    values = {
        "workload.sequence_length": generator.integers(1, 33, (points, 1)) * 32768,
        "workload.global_batch_size": generator.choice([4, 8], (points, 1)),
        "cluster.nic_efficiency": generator.uniform(0.7, 0.9, (points, 1)),
        "training.moe_imbalance": generator.uniform(1.0, 1.3, (points, 1)),
    }
    evaluator = Evaluator(scenario, values, Draws(draws), profile_of(scenario))
    pair = [scenario.systems[0], scenario.systems[-1]]
    before, after = evaluator.steps(pair)
    fits = np.logical_and.reduce([evaluator.memory(system).peak() < 2**40 for system in pair])
    return float((before.step.seconds / after.step.seconds)[fits].mean())


def points_per_second(draws: int) -> float:
    """Points a second over two processes, after one warm-up chunk in each."""
    points = CHUNK[draws]
    with ProcessPoolExecutor(WORKERS, initializer=single_thread) as pool:
        list(pool.map(evaluate_chunk, range(2 * WORKERS), [points] * 2 * WORKERS, [draws] * 2 * WORKERS))
        start = time.perf_counter()
        list(pool.map(evaluate_chunk, range(CHUNKS), [points] * CHUNKS, [draws] * CHUNKS))
        return CHUNKS * points / (time.perf_counter() - start)


def main() -> None:
    """Print the table."""
    rows = (
        ("cold start of hyscale predict", f"{cold_start_s():.2f} s", "1.0 s"),
        (f"one warm prediction, {DRAWS} draws", f"{1e3 * warm_prediction_s():.1f} ms", "10 ms"),
        ("points a second, 1 draw", f"{points_per_second(0):,.0f}", "100,000"),
        (f"points a second, {DRAWS} draws", f"{points_per_second(DRAWS):,.0f}", "5,000"),
    )
    print(f"{'':34} {'measured':>12} {'bar':>10}")
    for name, measured, bar in rows:
        print(f"{name:34} {measured:>12} {bar:>10}")


if __name__ == "__main__":
    main()
