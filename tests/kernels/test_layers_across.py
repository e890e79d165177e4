"""Layers shared by processes of this computer: keys of others, selections, gradients, and how ranks end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hyscale_calibration.layers.__main__ import main
from hyscale_calibration.layers.across.check import variants
from hyscale_calibration.layers.across.exposure import Busy, communication, covered, union
from hyscale_calibration.layers.across.gathered import by_ranks, held_chunks, in_order
from hyscale_kernels.spans import zigzag_positions

ROOT = Path(__file__).parents[2]


def ranks(count, script, *arguments):
    """What ``count`` processes say that run a script of this folder."""
    paths = os.pathsep.join(str(ROOT / each) for each in ("", "kernels", "calibration"))
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    command += [str(Path(__file__).with_name(script)), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def as_one(name, *arguments):
    return ranks(2, "one_of_ranks.py", name, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["hyscale", "megatron"])
def test_ranks_select_compute_and_learn_as_one_process(system):
    done = as_one("layers", "--cp", "--check-only", "--system", system)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"2 ranks as {system}, gathers ")
    assert "the selections of one process" in line


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_rows_come_in_the_order_of_the_sequence_and_gradients_go_back_summed(count):
    done = ranks(count, "one_that_gathers.py")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_rows_in_another_order_are_found_out():
    done = as_one("misplaced")
    assert done.returncode != 0
    assert "check failed: the forward of rank" in done.stderr


@pytest.mark.slow
def test_a_rank_that_fails_ends_all_and_says_why():
    done = as_one("fails")
    assert done.returncode != 0
    assert "error: rank 1 of 2: ValueError: no rows of mine" in done.stderr


@pytest.mark.slow
def test_what_is_measured_is_in_the_file_of_rank_0(tmp_path):
    path = tmp_path / "layers-cp2.json"
    done = as_one("measures", path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(path.read_text())
    assert (found["gpu"], found["group"]["ranks"], found["group"]["complete"]) == ("h200", 2, True)
    (row,) = found["rows"]
    assert (row["system"], row["cp_overlap"]) == ("hyscale", "behind_selection")
    assert row["shape"] == {"n": 8, "L": 16, "ranks": 2}
    # Of the slowest rank.
    assert row["median_ms"] == 2.0
    assert row["selected_as_one_process"] == 1.0
    shown = row["communication"]
    assert shown["transfer_ms"] == {"AllGather": pytest.approx(0.04)}
    assert shown["exposed_ms"] == pytest.approx(0.03)
    assert shown["waiting_ms"] == pytest.approx(0.005)
    assert len(found["failed"]) == 3
    assert not list(tmp_path.glob("*.partial"))


def test_one_process_is_no_rank(monkeypatch, capsys):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert main(["--cp"]) == 2
    assert "torchrun --nproc-per-node 2 -m hyscale_calibration.layers --cp" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_what_ranks_hold_is_put_in_the_order_of_the_sequence_and_back(count):
    length = 6 * count
    gathered = torch.cat([zigzag_positions(length, count, rank) for rank in range(count)])[:, None]
    assert torch.equal(in_order(gathered, count)[:, 0], torch.arange(length))
    assert torch.equal(by_ranks(in_order(gathered, count), count), gathered)
    assert sorted(held_chunks(count)) == list(range(2 * count))


def test_gathers_are_hidden_and_exposed_in_both_systems():
    found = {(each.name, each.hides_gathers) for each in variants()}
    assert found == {(name, hidden) for name in ("megatron", "hyscale") for hidden in (False, True)}


def kernel(name, begin, end, category="kernel"):
    return {"cat": category, "name": name, "ts": begin, "dur": end - begin}


GATHER, SCATTER = "ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)"


def test_what_runs_beside_no_other_kernel_is_exposed():
    busy = Busy.of(
        [
            # What was before all ranks began does not count.
            kernel("fill", -30, -20),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", -20, -10),
            kernel("scores", 0, 10),
            kernel(GATHER, 5, 15),
            kernel("topk", 8, 12),
            kernel("attention", 20, 30),
            kernel(SCATTER, 30, 36),
            # What the profiler writes beside kernels is no work.
            kernel("nccl:_all_gather_base", 0, 40, "gpu_user_annotation"),
            {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 40},
        ]
    )
    found = communication([busy])
    assert found["collectives"] == {"AllGather": 1, "ReduceScatter": 1}
    assert found["exposed_ms"] == pytest.approx(1e-3 * (3 + 6))
    assert found["hidden_ms"] == pytest.approx(1e-3 * 7)
    assert found["idle_ms"] == pytest.approx(1e-3 * 5)
    assert found["waiting_ms"] == 0


def test_a_collective_that_waits_for_a_late_rank_takes_as_long_as_that_ranks():
    early = Busy.of([kernel(GATHER, 0, 50), kernel("scores", 50, 60)])
    late = Busy.of([kernel("before", 0, 40), kernel(GATHER, 40, 50), kernel("scores", 50, 60)])
    found = communication([early, late])
    assert found["transfer_ms"] == {"AllGather": pytest.approx(0.01)}
    assert found["waiting_ms"] == pytest.approx(0.02)
    assert found["exposed_ms"] == pytest.approx(0.03)
    assert found["exposed_transfer_ms"] == pytest.approx(0.01)
    assert found["exposed_ms_by_rank"] == [pytest.approx(0.05), pytest.approx(0.01)]


def test_ranks_of_different_collectives_are_refused():
    with pytest.raises(ValueError, match="different collectives"):
        communication([Busy.of([kernel(GATHER, 0, 1)]), Busy.of([kernel(SCATTER, 0, 1)])])


def test_covered_time_is_that_of_every_moment():
    generator = np.random.default_rng(0)
    begin = generator.integers(0, 90, (2, 12))
    spans, others = (np.column_stack([each, each + generator.integers(1, 9, 12)]).astype(float) for each in begin)
    busy = np.zeros(100, dtype=bool)
    for first, last in others.astype(int):
        busy[first:last] = True
    joined = union(others)
    assert (joined[1:, 0] > joined[:-1, 1]).all()
    assert np.array_equal(covered(spans, joined), [busy[int(a) : int(b)].sum() for a, b in spans])
    assert np.array_equal(covered(spans, union(np.empty((0, 2)))), np.zeros(12))
