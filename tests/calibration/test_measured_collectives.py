"""Collectives over two processes of this computer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hyscale_calibration.collectives import FACTORS, SIZES, launched, line

ROOT = Path(__file__).parents[2]


def torchrun(*arguments):
    paths = os.pathsep.join(str(ROOT / each) for each in ("", "kernels", "calibration"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "hyscale_model.cli.main", "calibrate", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_two_processes_measure_every_collective(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "c.json"
    done = torchrun("--op", "collectives", "--output", path)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())["collectives"]
    assert found["measured"]
    assert (found["ranks"], found["backend"]) == (2, "gloo")
    assert len(found["rows"]) == len(FACTORS) * len(SIZES["quick"])
    assert {row["kind"] for row in found["rows"]} == set(FACTORS)
    assert all(row["median_s"] > 0 and row["bus_bytes_per_s"] > 0 for row in found["rows"])
    assert set(found["fits"]) == set(FACTORS)
    # Told once, by the first rank.
    assert done.stdout.count("over 2 ranks") == len(FACTORS)


def test_what_links_carry_is_counted_as_the_library_does():
    assert FACTORS["all_reduce"](8) == pytest.approx(2 * 7 / 8)
    assert FACTORS["all_gather"](2) == pytest.approx(0.5)
    assert SIZES["full"][0] == 4096
    assert SIZES["full"][-1] == 2**30


def test_latency_is_of_the_smallest_and_bandwidth_of_the_largest():
    rows = [
        {"bytes": 2**12, "median_s": 1e-5, "bus_bytes_per_s": 4e8},
        {"bytes": 2**30, "median_s": 1e-2, "bus_bytes_per_s": 1e11},
        {"bytes": 2**28, "median_s": 3e-3, "bus_bytes_per_s": 9e10},
    ]
    assert line(rows) == {"latency_s": 1e-5, "bus_bytes_per_s": 1e11}


def test_one_process_is_not_several(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched()
