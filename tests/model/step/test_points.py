"""Points that are evaluated together are what each is alone, whatever the schedule, optimizer and host do."""

import numpy as np
import pytest

DUAL = ("layout.schedule=dualpipe", "workload.global_batch_size=16")
WHOLE = {
    "dualpipe": DUAL,
    "zero bubble": ("layout.schedule=zero_bubble", "workload.global_batch_size=16"),
    "pairs": ("layout.overlap_moe_expert_parallel_comm=true", "workload.global_batch_size=16"),
    "muon": ("training.optimizer=muon", "training.muon_tp_mode=duplicated"),
    "host": ("training.optimizer_cpu_offload=true", "training.cpu_offloading_num_layers=2"),
    "beside": (*DUAL, "training.optimizer_cpu_offload=true", "training.overlap_cpu_optimizer_d2h_h2d=true"),
    "launches": ("cluster.gpu.host_slowdown=20", *DUAL),
}


@pytest.mark.parametrize("overrides", WHOLE.values(), ids=WHOLE)
def test_points_together_are_points_alone(resolve, evaluate, overrides):
    lengths = [16384, 65536, 131072]
    scenario = resolve(*overrides, small=True).scenario
    together = evaluate(scenario, {"workload.sequence_length": np.array(lengths)[:, None]})
    for row, length in enumerate(lengths):
        alone = evaluate(resolve(*overrides, f"workload.sequence_length={length}", small=True).scenario)
        for index in range(len(scenario.systems)):
            both = together.steps[index], alone.steps[index]
            np.testing.assert_allclose(both[0].seconds[row], both[1].seconds[0], rtol=2e-3)
            np.testing.assert_allclose(both[0].terms[:, row].sum(axis=0), both[0].seconds[row], rtol=1e-9)
            peaks = [found.memory[index].peak() for found in (together, alone)]
            np.testing.assert_allclose(np.broadcast_to(peaks[0], (3, 1))[row], peaks[1][0], rtol=1e-9)
