from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.families import anatomy, count_parameters
from hyscale_model.prediction import MEMORY_KINDS
from hyscale_model.rates.draws import Draws
from hyscale_model.step.orders import rank_order
from hyscale_model.step.pipeline import Structure
from hyscale_model.summary import verdict

# (overrides, GPUs of a stage): layouts of the same model on the same 512 GPUs.
LAYOUTS = {
    "published": ((), 128),
    "two replicas": (("layout.cp=64", "layout.ep=64", "workload.global_batch_size=8"), 128),
    "fewer experts a group": (("layout.ep=32",), 128),
    "uneven stages": (("layout.stage_layers=[18, 20, 22, 18]", "layout.vpp=2"), 128),
    "no interleaving": (("layout.vpp=1", "layout.schedule=1f1b"), 128),
    "eight stages": (("layout.pp=8", "layout.vpp=1", "layout.schedule=1f1b", "layout.cp=64", "layout.ep=64"), 64),
}


def memory(predicted, *overrides, system="megatron", **options):
    return predicted(*overrides, systems=(system,), **options)["systems"][system]["memory"]


def of_stages(found, kind):
    return [stage["at_peak_bytes"].get(kind, 0.0) for stage in found["stages"]]


def test_the_published_score_table_and_indices(predicted):
    """32 GiB and 64 MiB a layer and GPU: 8,192 queries of 1,048,576 FP32 scores, and of 2,048 INT32 indices."""
    layer = memory(predicted)["per_layer_bytes"]
    assert layer["score_table"] == 8192 * 1048576 * 4 == 34_359_738_368
    assert layer["selection_indices"] == 8192 * 2048 * 4 == 67_108_864
    assert layer["score_table"] == 512 * layer["selection_indices"]
    assert memory(predicted, system="hyscale")["per_layer_bytes"]["score_table"] == 0


def test_a_table_never_has_more_rows_than_there_are_queries(predicted):
    whole = memory(predicted, "systems.megatron.table_rows=all")["per_layer_bytes"]["score_table"]
    assert whole == memory(predicted, "systems.megatron.table_rows=100000")["per_layer_bytes"]["score_table"]
    half = memory(predicted, "systems.megatron.table_rows=4096")["per_layer_bytes"]["score_table"]
    assert 2 * half == whole


def test_a_gathered_sequence_holds_a_latent_and_an_index_key_a_token(predicted):
    layer = memory(predicted)["per_layer_bytes"]
    assert layer["gathered_kv"] == 1048576 * (512 + 64 + 128) * 2
    fp8 = memory(predicted, "training.index_precision=fp8")["per_layer_bytes"]
    assert fp8["gathered_kv"] == 1048576 * ((512 + 64) * 2 + 128 + 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_of_all_ranks_are_the_model_as_often_as_it_is_replicated(predicted, resolve, layout):
    overrides, gpus = LAYOUTS[layout]
    scenario = resolve(*overrides).scenario
    counted = count_parameters(anatomy(scenario.model))
    experts = 75 * 256 * 3 * 6144 * 2048
    per_rank = (counted.total - experts) + experts / scenario.layout.ep
    found = memory(predicted, *overrides)
    assert len(found["stages"]) == scenario.layout.pp
    assert gpus * sum(of_stages(found, "parameters")) == pytest.approx(gpus * 2 * per_rank, rel=1e-12)
    # One expert group spans a stage: then nothing of the experts is there twice.
    if scenario.layout.ep == gpus:
        total = sum(of_stages(found, "parameters")) * gpus
        assert total == pytest.approx(2 * (counted.total + (gpus - 1) * (counted.total - experts)), rel=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_distributed_optimizer_holds_every_state_once(predicted, resolve, layout):
    overrides, gpus = LAYOUTS[layout]
    total = count_parameters(anatomy(resolve(*overrides).scenario.model)).total
    states = sum(of_stages(memory(predicted, *overrides), "optimizer")) * gpus
    assert states == pytest.approx(3 * 4 * total, rel=1e-12)


def test_without_zero_every_rank_holds_the_state_of_its_weights(predicted):
    found = memory(predicted, "layout.zero=0")
    assert of_stages(found, "optimizer") == pytest.approx([6 * size for size in of_stages(found, "parameters")])


def test_gradients_have_the_size_of_the_weights_in_their_precision(predicted):
    for precision, ratio in (("fp32", 2), ("bf16", 1)):
        found = memory(predicted, f"training.gradient_precision={precision}")
        assert of_stages(found, "gradients") == pytest.approx([ratio * x for x in of_stages(found, "parameters")])


@pytest.mark.parametrize("system", ["megatron", "megatron-best", "hyscale"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kinds_sum_to_the_peak_and_the_peak_is_that_of_the_fullest_stage(predicted, system, layout):
    found = memory(predicted, *LAYOUTS[layout][0], system=system)
    assert sum(found["at_peak_bytes"].values()) == pytest.approx(found["peak_bytes"], rel=1e-12)
    peaks = [stage["peak_bytes"] for stage in found["stages"]]
    assert found["peak_bytes"] == max(peaks) == peaks[found["peak_stage"]]
    assert found["at_peak_bytes"] == found["stages"][found["peak_stage"]]["at_peak_bytes"]
    assert found["peak_when"] == found["stages"][found["peak_stage"]]["peak_when"]
    for stage in found["stages"]:
        assert sum(stage["at_peak_bytes"].values()) == pytest.approx(stage["peak_bytes"], rel=1e-12)
    assert set(found["at_peak_bytes"]) <= set(found["largest_bytes"]) <= set(MEMORY_KINDS)
    for kind, size in found["at_peak_bytes"].items():
        assert 0 < size <= found["largest_bytes"][kind]


def test_hytopk_takes_less_memory_than_a_table(predicted):
    for policy in ("rerun", "keep_indices", "replay", "skip"):
        switch = f"systems.*.recompute_selection={policy}"
        table, without = (memory(predicted, switch, system=name) for name in ("megatron", "hyscale"))
        assert without["peak_bytes"] < table["peak_bytes"]
        assert "score_table" not in without["largest_bytes"]
        assert "candidates" not in table["largest_bytes"]


def test_kept_scores_are_a_table_for_every_layer_in_flight(predicted):
    kept, rerun = (
        memory(predicted, f"systems.megatron.recompute_selection={policy}") for policy in ("keep_scores", "rerun")
    )
    assert rerun["largest_bytes"]["score_table"] == 34_359_738_368
    assert kept["largest_bytes"]["score_table"] >= 20 * 34_359_738_368
    assert kept["peak_bytes"] > rerun["peak_bytes"]


def test_replay_keeps_the_indices_of_every_layer_in_flight(predicted):
    replay, rerun = (
        memory(predicted, f"systems.hyscale.recompute_selection={policy}", system="hyscale")["largest_bytes"]
        for policy in ("replay", "rerun")
    )
    assert replay["selection_indices"] >= 20 * rerun["selection_indices"]


def test_indices_on_the_host_leave_the_device(predicted):
    host = memory(predicted, "systems.hyscale.index_storage=host", system="hyscale")
    assert host["peak_bytes"] < memory(predicted, system="hyscale")["peak_bytes"]


def test_recomputing_everything_takes_less_memory_than_keeping_it(predicted):
    full, none = (memory(predicted, f"training.recompute={name}", system="hyscale") for name in ("full", "none"))
    assert full["peak_bytes"] < none["peak_bytes"]


def test_longer_sequences_take_more_memory(predicted):
    peaks = [
        memory(predicted, f"workload.sequence_length={length}", system=system)["peak_bytes"]
        for system in ("megatron", "hyscale")
        for length in (262144, 524288, 1048576)
    ]
    assert peaks[:3] == sorted(set(peaks[:3]))
    assert peaks[3:] == sorted(set(peaks[3:]))


@given(pp=st.integers(1, 6), vpp=st.integers(1, 4), rounds=st.integers(1, 4), rank=st.integers(0, 5))
def test_passes_in_flight_are_those_of_the_schedule(pp, vpp, rounds, rank):
    vpp = vpp if pp > 1 else 1
    rank %= pp
    flying = most = 0
    for kind, _, _ in rank_order(rank, pp, vpp, rounds * pp):
        flying += 1 if kind == "F" else -1
        most = max(most, flying)
    assert flying == 0
    group = Structure(np.zeros(1), pp, vpp, rounds * pp, np.zeros((pp * vpp, 1)))
    assert group.in_flight[rank] == pytest.approx(most / vpp)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(50, 90, "fits"), (50, 100, "fits"), (50, 101, "at_risk"), (100, 101, "at_risk"), (101, 120, "does_not_fit")],
)
def test_a_verdict_needs_nine_of_ten_draws(low, high, expected):
    peak = {"nominal": (low + high) / 2, "p10": low, "p50": (low + high) / 2, "p90": high}
    assert verdict(peak, 100) == expected


@pytest.mark.parametrize("system", ["megatron", "megatron-best", "hyscale"])
def test_verdict_and_overflow_follow_from_the_peak(predicted, system):
    found = memory(predicted, system=system, draws=16)
    assert found["verdict"] == verdict(found["peak_interval_bytes"], found["capacity_bytes"])
    assert found["peak_interval_bytes"]["nominal"] == found["peak_bytes"]
    assert (found["overflow"] is None) == (found["peak_bytes"] <= found["capacity_bytes"])
    if found["overflow"]:
        assert found["overflow"]["by_bytes"] == pytest.approx(found["peak_bytes"] - found["capacity_bytes"])
        assert found["overflow"]["kind"] == max(found["at_peak_bytes"], key=found["at_peak_bytes"].get)
        assert found["overflow"]["stage"] == found["peak_stage"]


# What anybody can change, the least invasive first: smaller tables, then gradients in BF16.
WAYS = [{"table_rows": rows} for rows in (4096, 2048, 1024, 512)]
WAYS += [{"training.gradient_precision": "bf16"}]
WAYS += [way | {"training.gradient_precision": "bf16"} for way in WAYS[:4]]


@pytest.mark.parametrize("overrides", [(), ("workload.global_batch_size=16",), ("layout.ep=64",)])
@pytest.mark.parametrize("system", ["megatron", "megatron-best"])
def test_the_nearest_feasible_baseline_is_the_first_change_that_fits(predicted, system, overrides):
    whole = predicted(*overrides, draws=16)
    if whole["systems"][system]["memory"]["verdict"] == "fits":
        assert system not in whole["nearest_feasible"]
        return
    found = whole["nearest_feasible"][system]
    for way in WAYS:
        # A training field of a system is written as its override.
        settings = [f"systems.{system}.{name}={value}" for name, value in way.items()]
        tried = predicted(*overrides, *settings, draws=16)["systems"][system]
        if tried["memory"]["verdict"] == "fits":
            assert found["changes"] == way
            assert found["system"]["memory"] == tried["memory"]
            assert found["system"]["step_time_s"] == pytest.approx(tried["step_time_s"], rel=1e-12)
            return
    assert found["system"] is None
    assert found["changes"] == {}


def test_a_baseline_that_fits_needs_no_change(predicted):
    assert predicted("model.num_hidden_layers=4", small=True)["nearest_feasible"] == {}


def test_scores_that_were_never_stored_cannot_be_kept(predicted):
    with pytest.raises(InputError):
        predicted("systems.hyscale.recompute_selection=keep_scores", systems=("hyscale",))


def test_the_index_loss_keeps_the_gradients_of_the_kept_scores_until_backward(predicted):
    """FP32 gradients of 8,192 x 2,048 scores for each of the 20 layers of a stage, at least."""
    with_loss, without = (
        memory(predicted, "training.recompute=none", f"training.index_loss={loss}", system="hyscale")["peak_bytes"]
        for loss in ("sparse", "none")
    )
    assert with_loss - without >= 20 * 8192 * 2048 * 4


@pytest.mark.parametrize(("ranks", "expected"), [(8, 0.27), (32, 0.45), (128, 1.15)])
def test_queues_of_deepep_grow_with_the_nodes(predicted, ranks, expected):
    """GiB at a hidden size of 6,144, by the formulas of DeepEP; all-to-all has none."""
    held = [
        memory(predicted, f"layout.ep={ranks}", f"systems.hyscale.dispatcher={name}", system="hyscale")
        for name in ("deepep", "alltoall")
    ]
    queues, none = (each["at_peak_bytes"]["framework"] for each in held)
    assert (queues - none) / 2**30 == pytest.approx(expected, rel=0.02)


def test_a_point_of_a_batch_is_what_it_is_alone(evaluate, resolve):
    scenario = resolve("training.recompute=none").scenario
    system = scenario.systems[0]
    rows = (8192, 2048, 512)
    evaluator = evaluate(scenario, draws=Draws(3)).evaluator
    batch = evaluator.memory(replace(system, table_rows=np.array(rows)[:, None]))
    for point, size in enumerate(rows):
        alone, own = evaluator.memory(replace(system, table_rows=size)), batch.at_point(point)
        assert np.array_equal(own.totals, alone.totals)
        assert np.array_equal(own.nominal_kinds(), alone.nominal_kinds())
        assert own.nominal_on_host() == alone.nominal_on_host()
        assert np.array_equal(own.nominal_stored(), alone.nominal_stored())
