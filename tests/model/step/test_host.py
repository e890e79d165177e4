"""A host that falls behind: small layers wait for it, large ones do not, CUDA graphs do not need it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.batch import assign
from hyscale_model.layers.operation import Block, Operation, Task, Transfer
from hyscale_model.rates.draws import Draws
from hyscale_model.scenario.schema import Training
from hyscale_model.step.host import captured_by, launches
from hyscale_model.timeline import timeline

SYSTEM = "megatron"
# A narrow model whose layers take less than their launches at 1,024 tokens.
NARROW = ("model.hidden_size=1024", "model.moe_intermediate_size=256", "model.intermediate_size=1024")
SHORT = (*NARROW, "model.index_topk=256", "workload.sequence_length=1024", "workload.global_batch_size=8")


def step(predicted, *overrides, **options):
    return predicted(*overrides, small=True, **options)["systems"][SYSTEM]


def test_small_layers_wait_for_their_host_and_large_ones_do_not(predicted):
    small, large = step(predicted, *SHORT), step(predicted, *NARROW)
    assert small["time_s"]["host_bound"] > 0.2 * small["step_time_s"]["nominal"]
    assert large["time_s"].get("host_bound", 0.0) == 0
    for each in (small, large):
        assert sum(each["time_s"].values()) == pytest.approx(each["step_time_s"]["nominal"])


def test_a_host_bound_step_takes_as_long_however_fast_its_gpu(predicted):
    """Kernels times seconds a launch: a floor that no tensor core moves."""
    one, twice = (step(predicted, *SHORT, f"cluster.gpu.host_slowdown={factor}") for factor in (10, 20))
    # Only the end of the step is not the host's.
    ends = [
        sum(each["time_s"].get(term, 0.0) for term in ("optimizer", "dp_communication_exposed"))
        for each in (one, twice)
    ]
    sends = [each["time_s"].get("pp_communication_exposed", 0.0) for each in (one, twice)]
    first, second = (
        each["step_time_s"]["nominal"] - end - send for each, end, send in zip((one, twice), ends, sends, strict=True)
    )
    assert second == pytest.approx(2 * first, rel=0.02)


@pytest.mark.parametrize("schedule", [("1f1b", 1), ("zero_bubble", 1), ("interleaved", 3), ("dualpipe", 1)])
def test_every_schedule_waits(predicted, schedule):
    name, vpp = schedule
    found = step(predicted, *SHORT, f"layout.schedule={name}", f"layout.vpp={vpp}", "cluster.gpu.host_slowdown=10")
    assert found["time_s"]["host_bound"] > 0
    assert sum(found["time_s"].values()) == pytest.approx(found["step_time_s"]["nominal"])
    assert min(found["time_s"].values()) >= -1e-9


def test_graphs_take_the_host_out(predicted):
    eager, attention, layers, whole = (
        step(predicted, *SHORT, *overrides)
        for overrides in (
            (),
            ("training.cuda_graph_impl=transformer_engine", "training.cuda_graph_modules=[attn]"),
            ("training.cuda_graph_impl=local",),
            ("training.cuda_graph_impl=full_iteration",),
        )
    )
    times = [each["step_time_s"]["nominal"] for each in (eager, attention, layers, whole)]
    assert times[0] > times[1] > times[2] >= times[3]
    assert whole["time_s"].get("host_bound", 0.0) == 0


def test_the_timeline_holds_the_waits(resolve, predicted):
    found = timeline(resolve(*SHORT, small=True), SYSTEM)
    assert found.step_s == pytest.approx(step(predicted, *SHORT)["step_time_s"]["nominal"])
    assert 0 < found.ending_s < 0.5 * found.step_s


def task(name, **work):
    return Task(name=name, term="moe", work=Operation(family="elementwise", **work))


@given(numbers=st.lists(st.integers(1, 50), max_size=6))
def test_every_launch_counts_once(numbers):
    tasks = [task(f"moe.{place}", launches=number) for place, number in enumerate(numbers)]
    tasks.append(Task(name="moe.dispatch", term="ep", work=Transfer(kind="all_to_all", group="ep", payload_bytes=1.0)))
    block = Block(name="moe", forward=tuple(tasks), recompute=(), backward=())
    assert launches(block, tasks, Training()) == sum(numbers) + 1
    assert launches(block, tasks, Training(cuda_graph_impl="full_iteration")) == 0
    assert launches(block, tasks, Training(cuda_graph_impl="local")) == 1


def test_streams_side_by_side_are_launched_one_by_one():
    experts = task("moe.experts", launches=4, host_launches=16)
    block = Block(name="moe", forward=(experts,), recompute=(), backward=())
    assert launches(block, [experts], Training()) == 16


def test_captured_modules():
    graphs = Training(cuda_graph_impl="transformer_engine", cuda_graph_modules=("attn", "moe_router"))
    assert captured_by("dsa.core", "selection.score", graphs) == "attn"
    assert captured_by("moe", "moe.router", graphs) == "moe_router"
    assert captured_by("moe", "moe.experts", graphs) is None
    assert captured_by("dense_ffn", "ffn.up", graphs) is None
    assert captured_by("head", "head.product", Training(cuda_graph_impl="local")) is None
    assert captured_by("dsa.core", "selection.score", Training()) is None


def test_slower_launches_never_make_a_step_faster(predicted):
    found = step(predicted, *SHORT, draws=16)["terms"]["host_bound"]
    assert found["p10"] < found["p50"] < found["p90"]
    assert found["origin"] == "assumed"
    times = [
        step(predicted, *SHORT, f"cluster.gpu.host_slowdown={factor}")["step_time_s"]["nominal"]
        for factor in (0.1, 0.5, 1, 2)
    ]
    assert np.all(np.diff(times) >= 0)


def test_launches_that_differ_between_draws_are_those_of_each_draw(resolve, evaluate):
    """The experts of a rank, hence its kernels, follow an assumed layout."""
    scenario = resolve(*SHORT, small=True).scenario
    columns = {2: [1, 3, 5, 7], 4: [0, 2, 4, 6, 8]}
    drawn = np.empty((1, 9), dtype=int)
    for ep, at in columns.items():
        drawn[0, at] = ep
    together = evaluate(scenario, {"layout.ep": drawn}, Draws(8, 4))
    for ep, at in columns.items():
        alone = evaluate(assign(scenario, {"layout.ep": ep}), draws=Draws(8, 4))
        for both, single in zip(together.steps, alone.steps, strict=True):
            np.testing.assert_allclose(both.terms[:, 0, at], single.terms[:, 0, at], rtol=1e-9, atol=1e-12)
