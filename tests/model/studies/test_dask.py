"""A sweep on a Dask cluster of two workers, one of which is killed while it runs."""

import os
import signal

import pytest

from hyscale_model import catalog
from hyscale_model.cli.sweep import dask
from hyscale_model.scenario import read_scenario
from hyscale_model.studies import sweep as sweeps
from hyscale_model.studies.columns import evaluate_table
from hyscale_model.studies.pool import in_order
from hyscale_model.studies.sweep import Sweep

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

NAME = "glm-5.1-1m-512xh20"
SWEPT = "sweep.workload.sequence_length=[131072, 262144, 393216, 524288, 655360, 786432, 917504, 1048576]"


def test_a_lost_worker_costs_its_chunks_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(sweeps, "CHUNK_VALUES", 65)
    text = catalog.path("published", NAME).read_bytes()
    overrides = ("cluster.gpu=h200", "profile=h200-sxm", SWEPT, "sweep.workload.global_batch_size=[4, 8, 12, 16]")
    sweep = Sweep.of(read_scenario(NAME, text=text, overrides=overrides), 64)
    wanted = [columns for _, columns in in_order(evaluate_table, sweep.chunks(), None, 1)]
    assert len(wanted) == 32
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        first = next(iter(cluster.workers.values()))
        found = []
        with dask(cluster.scheduler_address) as (executor, workers):
            assert workers == 2
            for _, columns in in_order(evaluate_table, sweep.chunks(), executor, workers):
                found.append(columns)
                if len(found) == 3:
                    os.kill(first.pid, signal.SIGKILL)
    assert found == wanted
