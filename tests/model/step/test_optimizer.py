"""Muon, and optimizer states and activations in host memory."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.step.muon import Iterations, Matrices, iterations, muon_operation
from hyscale_model.traffic import traffic

SYSTEM = "megatron"


def case(tp=1, mode="blockwise", steps=5):
    return SimpleNamespace(
        layout=SimpleNamespace(tp=tp), training=SimpleNamespace(muon_tp_mode=mode, muon_num_ns_steps=steps)
    )


@given(rows=st.integers(1, 4096), columns=st.integers(1, 4096), steps=st.integers(1, 10))
def test_an_iteration_is_three_products(rows, columns, steps):
    """X X^T, its square, and their sum times X, on the shorter side."""
    short, long = sorted((rows, columns))
    flops = 2 * short * short * long + 2 * short**3 + 2 * short * short * long
    found = iterations(case(steps=steps), Matrices(rows, columns, 3))
    assert found.flops == pytest.approx(3 * steps * flops)
    assert found.largest == pytest.approx(steps * flops)
    assert iterations(case(steps=steps), Matrices(columns, rows, 3)).flops == pytest.approx(found.flops)


@given(tp=st.sampled_from([2, 4, 8]), split=st.sampled_from([0, 1]))
def test_modes_of_tensor_parallel_matrices(tp, split):
    each = Matrices(4096, 4096, 1, split)
    whole, block, duplicated, distributed = (
        iterations(case(ranks, mode), each)
        for ranks, mode in ((1, "blockwise"), (tp, "blockwise"), (tp, "duplicated"), (tp, "distributed"))
    )
    assert duplicated.flops == whole.flops
    assert block.flops < distributed.flops < whole.flops
    # The square of the small product does not shrink with the ranks.
    assert distributed.flops == pytest.approx(whole.flops * 2 / 3 / tp + whole.flops / 3)
    assert (block.gathered, block.summed) == (0, 0)
    assert duplicated.gathered == 2 * 4096 * 4096
    assert distributed.summed == 5 * 2 * 4096**2


def test_no_rank_does_less_than_its_largest_matrix():
    work = Iterations(flops=100.0, largest=10.0, edges=1.0, moved=10.0, matrices=10.0)
    assert muon_operation(work, 4).flops == pytest.approx(25)
    assert muon_operation(work, 1000).flops == pytest.approx(10)


def memory(predicted, *overrides):
    return predicted(*overrides)["systems"][SYSTEM]["memory"]


def test_muon_keeps_one_moment_of_matrices_and_two_of_the_rest(predicted):
    adam, muon = (
        [stage["at_peak_bytes"] for stage in memory(predicted, f"training.optimizer={name}")["stages"]]
        for name in ("adam", "muon")
    )
    # A stage in the middle has no embedding: 8 bytes a parameter instead of 12.
    assert muon[1]["optimizer"] / adam[1]["optimizer"] == pytest.approx(8 / 12)
    assert 8 / 12 < muon[0]["optimizer"] / adam[0]["optimizer"] < 1
    for kind in ("parameters", "gradients"):
        assert [stage[kind] for stage in muon] == [stage[kind] for stage in adam]


def test_muon_takes_longer_and_exchanges_more(predicted):
    adam, muon = (predicted(f"training.optimizer={name}")["systems"][SYSTEM] for name in ("adam", "muon"))
    assert muon["time_s"]["optimizer"] > adam["time_s"]["optimizer"]
    # At most a quarter more bytes than Adam's: 4 + 2 + 2 here, against 4 + 2 (arXiv 2502.16982, section 2.3).
    ratio = muon["time_s"]["dp_communication_exposed"] / adam["time_s"]["dp_communication_exposed"]
    assert 1 < ratio < 1.35
    steps = predicted("training.optimizer=muon", "training.muon_num_ns_steps=10")["systems"][SYSTEM]
    assert steps["time_s"]["optimizer"] > muon["time_s"]["optimizer"]
    assert sum(muon["time_s"].values()) == pytest.approx(muon["step_time_s"]["nominal"])


OFFLOAD = "training.optimizer_cpu_offload=true"


@pytest.mark.parametrize("fraction", [0.25, 1.0])
def test_what_the_host_holds_is_gone_from_the_device(predicted, fraction):
    here, there = memory(predicted), memory(predicted, OFFLOAD, f"training.optimizer_offload_fraction={fraction}")
    states = [stage["at_peak_bytes"]["optimizer"] for stage in here["stages"]]
    left = [stage["at_peak_bytes"].get("optimizer", 0.0) for stage in there["stages"]]
    assert left == pytest.approx([(1 - fraction) * state for state in states])
    assert there["host_bytes"] == pytest.approx(fraction * max(states))
    assert here["host_bytes"] == 0


def test_copies_and_update_cost_time_that_overlap_shortens(predicted):
    plain, turns, beside = (
        predicted(*overrides)["systems"][SYSTEM]
        for overrides in ((), (OFFLOAD,), (OFFLOAD, "training.overlap_cpu_optimizer_d2h_h2d=true"))
    )
    assert plain["time_s"].get("offload", 0.0) == 0
    assert turns["step_time_s"]["nominal"] > beside["step_time_s"]["nominal"] > plain["step_time_s"]["nominal"]
    assert beside["hidden_communication_s"]["host"] > 0
    for each in (turns, beside):
        assert sum(each["time_s"].values()) == pytest.approx(each["step_time_s"]["nominal"])
    faster = predicted(OFFLOAD, "cluster.host_bytes_per_s_per_gpu=500e9")["systems"][SYSTEM]
    assert faster["time_s"]["offload"] < turns["time_s"]["offload"]


def test_the_communication_graph_has_the_copies(resolve, predicted):
    data = traffic(resolve(OFFLOAD), SYSTEM)
    host = data["groups"]["host"]
    cluster = predicted(OFFLOAD)["scenario"]["cluster"]
    rate = cluster["gpu"]["pcie_bytes_per_s"] * cluster["pcie_efficiency"]
    assert host["seconds"] == pytest.approx(host["bytes"] / rate)
    assert host["bottleneck"]["kind"] == "host"


LAYERS = ("training.recompute=none", "workload.sequence_length=262144")


def test_offloaded_activations_free_memory_and_cost_time_only_where_nothing_hides_them(predicted):
    def found(*overrides):
        return predicted(*LAYERS, *overrides)["systems"][SYSTEM]

    here, some, all_ = (found(f"training.cpu_offloading_num_layers={layers}") for layers in (0, 4, 19))
    peaks = [each["memory"]["stored_activations_bytes"] for each in (here, some, all_)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[2] < 0.3 * peaks[0]
    assert some["memory"]["host_bytes"] == pytest.approx(all_["memory"]["host_bytes"] * 4 / 19, rel=0.05)
    times = [each["step_time_s"]["nominal"] for each in (here, some, all_)]
    assert times == sorted(times)
    slow = found("training.cpu_offloading_num_layers=19", "cluster.gpu.pcie_bytes_per_s=8e9")
    assert slow["time_s"]["offload"] > 2 * all_["time_s"]["offload"]
    fast = found("training.cpu_offloading_num_layers=19", "cluster.gpu.c2c_bytes_per_s=4e12")
    # Hidden copies still take something from the computation beside them.
    exposed = fast["time_s"].get("offload", 0.0)
    assert exposed <= 0.15 * fast["hidden_communication_s"]["host"] + 1e-9
    assert sum(all_["time_s"].values()) == pytest.approx(all_["step_time_s"]["nominal"])


def test_what_is_sent_out_comes_back(resolve):
    data = traffic(resolve(*LAYERS, "training.cpu_offloading_num_layers=19"), SYSTEM)
    sizes = {"to_host": 0.0, "from_host": 0.0}
    for row in data["collectives"]:
        if row["kind"] in sizes:
            sizes[row["kind"]] += row["runs"] * row["payload_bytes"]
    assert sizes["to_host"] == pytest.approx(sizes["from_host"])
    assert sizes["to_host"] > 0


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (("training.optimizer=muon", OFFLOAD), "training.optimizer_cpu_offload"),
        (("training.cpu_offloading_num_layers=20",), "training.cpu_offloading_num_layers"),
        (("training.optimizer_offload_fraction=1.5",), "training.optimizer_offload_fraction"),
    ],
)
def test_what_no_host_can_do_is_refused(resolve, overrides, field):
    with pytest.raises(InputError) as error:
        resolve(*overrides)
    assert field in str(error.value)


def test_intervals_carry_over(predicted):
    found = predicted("training.optimizer=muon", draws=8)["systems"]
    for each in found.values():
        assert np.isfinite(each["step_time_s"]["p90"])
    offloaded = predicted(OFFLOAD, "training.cpu_offloading_num_layers=4", draws=8)["systems"][SYSTEM]
    assert offloaded["step_time_s"]["p10"] <= offloaded["step_time_s"]["p90"]


def test_instances_of_the_distributed_optimizer_hold_all_of_its_state_and_sum_their_shares(resolve, predicted):
    """Hybrid sharding: more state on a rank, a shorter exchange over neighbours, and a sum over the instances."""
    instances = "layout.num_distributed_optimizer_instances=4"
    plain, hybrid = (
        [stage["at_peak_bytes"]["optimizer"] for stage in memory(predicted, "layout.ep=32", *overrides)["stages"]]
        for overrides in ((), (instances,))
    )
    assert all(a < b <= 4 * a * (1 + 1e-9) for a, b in zip(plain, hybrid, strict=True))
    data = traffic(resolve("layout.ep=32", instances), SYSTEM)
    rows = {(row["group"], row["kind"]): row for row in data["collectives"] if row["phase"] == "step"}
    scattered, summed = rows["dp", "reduce_scatter"], rows["odp", "all_reduce"]
    # 128 context ranks, 32 of them an instance.
    assert summed["payload_bytes"] == pytest.approx(scattered["payload_bytes"] / 32)
    assert data["groups"]["dp"]["ranks"] == 32
    assert data["groups"]["odp"]["ranks"] == 4
    found = predicted("layout.ep=32", instances)["systems"][SYSTEM]
    assert sum(found["time_s"].values()) == pytest.approx(found["step_time_s"]["nominal"])


@pytest.mark.parametrize(
    "overrides",
    [
        ("layout.num_distributed_optimizer_instances=3",),
        ("layout.num_distributed_optimizer_instances=2",),
        ("layout.num_distributed_optimizer_instances=2", "layout.zero=0", "layout.ep=64"),
    ],
)
def test_instances_divide_the_ranks_that_share_state(resolve, overrides):
    with pytest.raises(InputError) as error:
        resolve(*overrides)
    assert error.value.field == "layout.num_distributed_optimizer_instances"
