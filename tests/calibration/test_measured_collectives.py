"""Collectives over two processes of this computer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hyscale_calibration.alpha_beta import fit, held_out
from hyscale_calibration.collectives import FACTORS, SIZES, launched

ROOT = Path(__file__).parents[2]


def ranks(*arguments):
    paths = os.pathsep.join(str(ROOT / each) for each in ("", "kernels", "calibration"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += map(str, arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def torchrun(*arguments):
    return ranks("-m", "hyscale_model.cli.main", "calibrate", *arguments)


def with_own_files(folder, *fails):
    return ranks(Path(__file__).with_name("one_that_measures.py"), folder, *fails)


@pytest.mark.slow
def test_two_processes_measure_every_collective(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "c.json"
    done = torchrun("--op", "collectives", "--output", path)
    assert done.returncode == 0, done.stderr
    collectives = json.loads(path.read_text())["collectives"]
    assert collectives["measured"]
    (found,) = collectives["groups"]
    assert (found["ranks"], found["ranks_per_node"], found["backend"]) == (2, 2, "gloo")
    assert len(found["rows"]) == len(FACTORS) * len(SIZES["quick"])
    assert {row["kind"] for row in found["rows"]} == set(FACTORS)
    assert all(row["median_s"] > 0 and row["bus_bytes_per_s"] > 0 for row in found["rows"])
    assert set(found["fits"]) == set(FACTORS)
    # Told once, by the first rank.
    assert done.stdout.count("over 2 ranks") == len(FACTORS)
    again = torchrun("--op", "collectives", "--output", path)
    assert again.returncode != 0
    assert "exists; --resume continues it" in again.stderr


@pytest.mark.slow
def test_the_file_of_the_first_rank_alone_counts(tmp_path):
    pytest.importorskip("torch")
    first, second = tmp_path / "0.json", tmp_path / "1.json"
    second.write_text("of another node")
    done = with_own_files(tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(first.read_text())["collectives"]["measured"]
    assert second.read_text() == "of another node"
    second.unlink()
    kept = first.read_text()
    again = with_own_files(tmp_path)
    assert again.returncode != 0
    assert "0.json: exists; --resume continues it" in again.stderr
    assert first.read_text() == kept
    assert not second.exists()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_says_why_and_keeps_nobody_waiting(rank, tmp_path):
    pytest.importorskip("torch")
    done = with_own_files(tmp_path, rank)
    assert done.returncode != 0
    assert f"rank {rank} is wrong" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_links_carry_is_counted_as_the_library_does():
    assert FACTORS["all_reduce"](8) == pytest.approx(2 * 7 / 8)
    assert FACTORS["all_gather"](2) == pytest.approx(0.5)
    assert SIZES["full"][0] == 4096
    assert SIZES["full"][-1] == 2**30


def timed(latency, ramp, bus, factor, sizes):
    return [{"bytes": size, "median_s": latency + ramp * size**0.5 + size * factor / bus} for size in sizes]


@pytest.mark.parametrize(("latency", "ramp", "bus"), [(2e-5, 0.0, 3.4e11), (1e-5, 3e-9, 4e10), (1e-6, 1e-8, 1e12)])
def test_three_terms_are_found_again(latency, ramp, bus):
    found = fit(timed(latency, ramp, bus, 0.875, SIZES["full"]), 0.875)
    assert found["latency_s"] == pytest.approx(latency, rel=1e-3)
    assert found["ramp_s_per_sqrt_byte"] == pytest.approx(ramp, rel=1e-2, abs=1e-12)
    assert found["bus_bytes_per_s"] == pytest.approx(bus, rel=1e-3)
    assert found["held_out"]["n"] == sum(map(held_out, SIZES["full"]))
    assert found["held_out"]["median"] < 1e-3


def test_what_is_held_out_does_not_move_the_fit():
    rows = timed(2e-5, 0.0, 3e11, 1.0, SIZES["full"])
    wanted = fit(rows, 1.0)
    rows[1] = {**rows[1], "median_s": 2 * rows[1]["median_s"]}
    assert held_out(rows[1]["bytes"])
    found = fit(rows, 1.0)
    assert {key: found[key] for key in found if key != "held_out"} == {
        key: wanted[key] for key in wanted if key != "held_out"
    }
    assert found["held_out"]["worst"] == pytest.approx(-0.5, abs=0.01)


def test_two_sizes_are_too_few():
    with pytest.raises(ValueError, match="three sizes"):
        fit(timed(1e-5, 0.0, 1e11, 1.0, (2**12, 2**14, 2**15)), 1.0)


def test_one_process_is_not_several(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched()
